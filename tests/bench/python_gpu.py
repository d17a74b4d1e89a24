#!/usr/bin/env python3
"""Measures put and get of arrays on a GPU through the Python client against a copy of torch on the device, and prints
the ratios.

The sides take turns round by round. A ratio is the median of the rounds' ratios: the time of torch's copy over ours, so
that 1 is as fast. Needs a GPU, torch, and a daemon that was built with CUDA."""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "..", "src", "python"))

import gpubuf  # noqa: E402

MIB = 1 << 20
SIZES = (64 * MIB, 256 * MIB, 1024 * MIB)
GOAL = 0.8
START_S = 60


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", default=os.environ.get("GPUBUFD", "build/gpubufd"),
                        help="the daemon's program (GPUBUFD)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", default=",".join(str(n // MIB) for n in SIZES), metavar="MIB",
                        help="by comma (%(default)s)")
    parser.add_argument("--out", metavar="FILE", help="the figures as JSON")
    return parser.parse_args()


class Daemon:
    """gpubufd on the GPU, with a UNIX socket alone, in a folder of its own."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(prefix="gpubuf-bench-")
        self.socket = os.path.join(self.folder.name, "gpubufd.sock")
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        self.process = subprocess.Popen([program, "--backend", "cuda", "--state-dir", self.folder.name, "--socket",
                                         self.socket, "--listen", "127.0.0.1:0"], stdout=self.log,
                                        stderr=subprocess.STDOUT)
        end = time.monotonic() + START_S
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                sys.exit(f"{program} did not start: {self.log.read()[-2000:]}")
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.log.close()
        self.folder.cleanup()


def timed(torch, work):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def measure(torch, client, nbytes, rounds):
    """The seconds of each side, by round."""
    source = torch.randint(0, 255, (nbytes,), dtype=torch.uint8, device="cuda")
    target, name = torch.empty_like(source), f"bench-{nbytes}"
    roads = set()

    def put():
        roads.add(client.put(name, source)["road"])

    def get():
        roads.add(client.get(name, device="cuda:0").road)

    sides = {
        "torch copy": lambda: target.copy_(source),
        "put": put,
        "get(out=)": lambda: client.get(name, out=target),
        "get(device=)": get,
        "put, first": lambda: client.put("first", source),
    }
    seconds = {side: [] for side in sides}
    for turn in range(rounds + 2):
        for side, work in sides.items():
            if side == "put, first":  # neither the loan nor the buffer is there
                client._roads.lending.close()
                if "first" in client:
                    client.delete("first")
            took = timed(torch, work)
            if turn >= 2:
                seconds[side].append(took)
    for left in (name, "first"):
        client.delete(left)
    client._roads.lending.close()
    return seconds, roads


def main():
    args = parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("this Python has no torch")
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    daemon = Daemon(os.path.abspath(args.daemon))
    figures = []
    try:
        with gpubuf.Client(socket=daemon.socket) as client:
            print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, {args.rounds} rounds; goal {GOAL}")
            print(f"{'MiB':>6}  {'side':<14}{'ms':>9}{'GB/s':>9}{'ratio':>8}")
            for size in (int(n) * MIB for n in args.sizes.split(",")):
                seconds, roads = measure(torch, client, size, args.rounds)
                for side, took in seconds.items():
                    ratio = statistics.median(a / b for a, b in zip(seconds["torch copy"], took))
                    median = statistics.median(took)
                    figures.append({"mib": size // MIB, "side": side, "ms": median * 1e3, "ratio": ratio})
                    print(f"{size // MIB:>6}  {side:<14}{median * 1e3:>9.3f}{size / median / 1e9:>9.1f}{ratio:>8.2f}")
                if roads != {"device"}:
                    print(f"        by way of {', '.join(sorted(roads))}: {client._roads.lending.refused}")
    finally:
        daemon.stop()
    if args.out:
        with open(args.out, "w") as f:
            json.dump(figures, f, indent=1)


if __name__ == "__main__":
    main()
