"""A process that maps a buffer of int32 for writing and writes it, by numpy or by torch, until it gets a command to
stop or is killed.

As a program: share_writer.py SOCKET SESSION BUFFER LIBRARY WAY. It prints "ready", and then carries out commands from
its standard input. "fill N" sets all elements to N and prints "filled N". "go N" sets them to N, N + 1, ... until the
next line comes; it prints "going" after N is written, and "stopped M" at the end. "alive" prints whether the daemon is
alive. The end of its input ends the mapping."""
import os
import select
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "python"))
import gpubuf  # noqa: E402
from connected import PATIENCE_S, line_of  # noqa: E402


class Writer:
    """This file as a program."""

    def __init__(self, unix, session, buffer, library, way):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), unix, session, buffer, library,
                                         way],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")

    def expect(self, word):
        line = line_of(self.process.stdout).split()
        assert line and line[0] == word, f"it said {line} instead of {word}"
        return line[1:]

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def fill(self, value):
        self.tell("fill", value)
        assert self.expect("filled") == [str(value)]

    def go(self, value):
        self.tell("go", value)
        self.expect("going")

    def stop(self):
        """The value that all elements have now."""
        self.tell("stop")
        return int(self.expect("stopped")[0])

    def alive(self):
        self.tell("alive")
        return self.expect("alive") == ["True"]

    def kill(self):
        self.process.kill()
        self._gone()

    def end(self):
        """Ends in order: the lease ends with its answer."""
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0
        self._gone()

    def _gone(self):
        self.process.wait(PATIENCE_S)
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.process.stdout.closed:
            self.kill()


def elements_of(mapping, library):
    """Returns fill(value) for the mapped memory; the write is complete when it returns."""
    if library == "numpy":
        return mapping.array().fill
    import torch

    tensor = torch.from_dlpack(mapping)

    def fill(value):
        tensor.fill_(value)
        torch.cuda.synchronize()

    return fill


def write_on(fill, value):
    fill(value)
    print("going", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        value += 1
        fill(value)
    sys.stdin.readline()
    print("stopped", value, flush=True)


def main(unix, session, buffer, library, way):
    with gpubuf.Client(socket=unix, session=session) as client, client.map(buffer, "write", ways=[way]) as mapping:
        fill = elements_of(mapping, library)
        print("ready", flush=True)
        while True:
            words = sys.stdin.readline().split()  # not by iterating: Python's buffering would hide lines from select
            if not words:
                break
            if words[0] == "fill":
                fill(int(words[1]))
                print("filled", words[1], flush=True)
            elif words[0] == "go":
                write_on(fill, int(words[1]))
            elif words[0] == "alive":
                print("alive", mapping.alive, flush=True)
        del fill


if __name__ == "__main__":
    main(*sys.argv[1:])
