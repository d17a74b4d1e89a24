"""Markdown as the tests of the documents read it: its fenced blocks, a shell that runs them, its links and anchors.

Blocks of `console`, `sh` and `python` are run, all those of one document in order, in one folder and one bash: console
  commands stand behind "$ ", their further lines behind "> "; what lies below is what they print, and "..." is any text
  sh       is run as it stands and must not fail; a block of `text` right below it is what it prints python   the same,
  by python3
<!-- not run: WHY --> above a block keeps it from being run. Every other language is only shown.
"""
import os
import re
import select
import signal
import subprocess
import time

from connected import PATIENCE_S

RUN = ("console", "sh", "python")
SHOWN = ("text", "json", "ini", "conf", "c", "yaml")
# Values that differ from run to run, and the word that stands for each in both texts.
CHANGING = [(re.compile(pattern), word) for pattern, word in (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "TIME"),
    (r"\b(HOST|GPU)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r'"(\d+)\.(\d+)\.[0-9a-f]{8}"', r'"\1.\2.RUN"'),
    (r"\b[0-9a-f]{8}-(\d+)\b", r"RUN-\1"),
    (r'("request_id": ?")[0-9a-f]{16}"', r'\1ID"'),
    (r"(X-Request-Id: )[0-9a-f]{16}\b", r"\1ID"),
    (r"\b1[67]\d{14}\b", "LEASE"),
    (r"\bprocess \d+ of user \d+", "process PID of user UID"),
    (r"\bgpb_([0-9a-f]{64}|\.\.\.)", "SECRET"),
)]


class Block:
    def __init__(self, where, language, text, reason):
        self.where, self.language, self.text, self.reason = where, language, text, reason
        self.output = None  # of sh and python: what stands in the block of text below

    def steps(self):
        """[(where, command, what it prints)]; None where nothing is said of that."""
        if self.language == "sh":
            return [(self.where, f"set -eo pipefail\n{self.text}\nset +eo pipefail", self.output)]
        if self.language == "python":
            return [(self.where, f"python3 - <<'END OF BLOCK'\n{self.text}\nEND OF BLOCK", self.output)]
        steps = []
        for line in self.text.split("\n"):
            if line.startswith("$ "):
                steps.append([line[2:], []])
            elif line.startswith("> ") and steps and not steps[-1][1]:
                steps[-1][0] += "\n" + line[2:]
            else:
                assert steps, f"{self.where}: output before the first command"
                steps[-1][1].append(line)
        assert steps, f"{self.where}: a transcript without a command"
        return [(f"{self.where}: {command}", command, "\n".join(out)) for command, out in steps]


def blocks_of(text, name):
    """All fenced blocks of a document, in order."""
    blocks, reason, lines, i = [], None, text.split("\n"), 0
    last = None  # the block above, when nothing but blank lines follows it
    while i < len(lines):
        line = lines[i]
        i += 1
        if line.startswith("```"):
            first = i
            while not lines[i].startswith("```"):
                i += 1
            language, body, where = line[3:].strip(), "\n".join(lines[first:i]), f"{name}:{first}"
            i += 1
            assert language in RUN + SHOWN, f"{where}: a block of the language \"{language}\""
            assert not reason or language in RUN, f"{where}: it is not run in any case"
            if language == "text" and last and last.language != "console":
                last.output, last = body, None
                continue
            last = Block(where, language, body, reason)
            blocks.append(last)
            reason = None
            last = last if language in RUN and not last.reason else None
        elif line.strip():
            comment = re.fullmatch(r"<!-- not run: (.+) -->", line.strip())
            assert not reason, f"{name}:{i}: \"not run\" stands above no block"
            reason, last = comment.group(1) if comment else None, None
    return blocks


def alike(want, got):
    """Whether the output is what the document shows."""
    for pattern, word in CHANGING:
        want, got = pattern.sub(word, want), pattern.sub(word, got)
    want, got = ("\n".join(line.rstrip() for line in text.split("\n")).strip("\n") for text in (want, got))
    return re.fullmatch(".*?".join(map(re.escape, want.split("..."))), got, re.S) is not None


class Shell:
    """One bash for a whole document. What commands print comes to the reader, both streams as on a terminal."""

    LOOP = r"""trap 'printf "\0exit %d\0" $?' EXIT
        while IFS= read -r -d '' command <&{0}; do eval "$command" {0}<&- </dev/null; printf '\0%d\0' $?; done"""

    def __init__(self, folder, environment):
        read_end, self.commands = os.pipe()
        self.process = subprocess.Popen(["bash", "-c", self.LOOP.format(read_end)], cwd=folder, env=environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        pass_fds=(read_end,), start_new_session=True)
        os.close(read_end)

    def run(self, command):
        """(status, output); a status of "exit N" when the shell itself has ended."""
        os.write(self.commands, command.encode() + b"\0")
        output, end = b"", time.monotonic() + PATIENCE_S
        while output.count(b"\0") < 2:
            assert select.select([self.process.stdout], [], [],
                                 max(0, end - time.monotonic()))[0], f"no end of: {command}"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the shell has ended before: {command}"
            output += data
        text, status, _ = output.split(b"\0")
        return status.decode(), text.decode(errors="replace")

    def close(self):
        os.close(self.commands)
        self.process.stdout.close()
        self.process.wait(PATIENCE_S)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # what a document that failed has left in the background
        except ProcessLookupError:
            pass


def run_blocks(blocks, shell, substitute):
    """Runs all that may be run. Returns how many commands were run, and how many outputs were compared."""
    ran = compared = 0
    for block in blocks:
        if block.language not in RUN or block.reason:
            continue
        for where, command, want in block.steps():
            status, got = shell.run(substitute(command))
            assert status == "0", f"{where}\nended with status {status} and printed:\n{got}"
            if want is not None:
                assert alike(substitute(want), got), f"{where}\nshows:\n{want}\nprinted:\n{got}"
                compared += 1
            ran += 1
    return ran, compared


def prose_of(text):
    """The document without its fenced blocks and code within lines."""
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def anchors_of(text):
    """The anchors that GitHub gives the headings of a document."""
    found = set()
    for title in re.findall(r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        n = 0
        while (anchor if n == 0 else f"{anchor}-{n}") in found:
            n += 1
        found.add(anchor if n == 0 else f"{anchor}-{n}")
    return found


def links_of(text):
    """Where the links and pictures of a document lead, but for other sites."""
    targets = re.findall(r"\[[^]]*\]\(([^)\s]+)\)", prose_of(text)) + re.findall(r"^\[[^]]+\]: +(\S+)", text, re.M)
    return [t for t in targets if not re.match(r"https?://|mailto:", t)]
