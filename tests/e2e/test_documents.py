"""README.md and the documents: every command runs as pasted and prints what is shown, and every link leads
somewhere."""
import glob
import os
import re
import shutil
import sys
import tempfile

import pytest

from documents import RUN, Shell, alike, anchors_of, blocks_of, links_of, run_blocks
from harness import Daemon, binary, library
from ports import free_ports

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PORT = ":7070"  # in the documents; tests have a daemon of their own
ETCD_PORTS = (":2379", ":2380")  # the same
DOCUMENTS = sorted(os.path.relpath(path, ROOT) for pattern in ("*.md", "doc/*.md", "doc/design/*.md")
                   for path in glob.glob(os.path.join(ROOT, pattern)) if not path.endswith(".in.md"))
# Each document that has commands: how many are run at least, how many outputs are compared at least, and how many
# blocks are not run, each for a reason that stands above it.
COMMANDS = {
    "README.md": (7, 4, 2),
    "doc/c.md": (0, 0, 1),
    "doc/cli.md": (80, 77, 0),
    "doc/durable.md": (20, 20, 8),
    "doc/errors.md": (1, 1, 0),
    "doc/fleet.md": (20, 12, 0),
    "doc/http.md": (40, 40, 0),
    "doc/hubs.md": (12, 6, 1),
    "doc/kubernetes.md": (1, 0, 4),
    "doc/memory.md": (24, 24, 0),
    "doc/models.md": (20, 14, 2),
    "doc/monitoring.md": (10, 6, 1),
    "doc/operations.md": (10, 8, 2),
    "doc/packages.md": (0, 0, 6),
    "doc/python.md": (3, 3, 4),
    "doc/resident.md": (9, 2, 0),
    "doc/sharing.md": (20, 8, 1),
    "doc/sources.md": (9, 7, 0),
    "doc/tls.md": (4, 4, 4),
    "doc/troubleshooting.md": (10, 6, 0),
    "doc/tutorial.md": (40, 40, 0),
}
pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(ROOT, "README.md")), reason="a bundle has no documents")


def text_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


@pytest.fixture
def place():
    """(a folder as a fresh clone after the build, a shell in it, a daemon whose state is where clients of most users
    look for it)"""
    library("numpy")
    folder = tempfile.mkdtemp(prefix="gbe-doc-")
    for name in ("src", "etc", "bootstrap"):
        os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    os.symlink(os.path.dirname(os.path.abspath(binary())), os.path.join(folder, "build"))
    daemon = Daemon("host", state=os.path.join(folder, ".local", "state", "gpubufd"))
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUBUF", "XDG_")) and k
                   != "STATE_DIRECTORY"}
    environment.update(HOME=folder, GPUBUF_SOCKET=daemon.unix, PYTHONPATH=os.path.join(ROOT, "src", "python"),
                       LC_ALL="C.UTF-8", PATH=os.path.dirname(sys.executable) + os.pathsep + environment["PATH"])
    shell = Shell(folder, environment)
    yield folder, shell, daemon
    shell.close()
    try:
        daemon.stop()
    finally:
        daemon.clean()
        shutil.rmtree(folder)


def own_ports(daemon):
    """A function that puts the ports of this test in place of those that the documents name."""
    ports = {PORT: daemon.tcp[1], **dict(zip(ETCD_PORTS, free_ports(len(ETCD_PORTS))))}

    def put_in(text):
        for port, own in ports.items():
            text = text.replace(port, f":{own}")
        return text

    return put_in


@pytest.mark.parametrize("name", COMMANDS)
def test_it_runs_as_pasted(place, name):
    folder, shell, daemon = place
    blocks = blocks_of(text_of(name), name)
    ran, compared = run_blocks(blocks, shell, own_ports(daemon))
    at_least, outputs, not_run = COMMANDS[name]
    assert ran >= at_least and compared >= outputs, f"{name}: {ran} commands were run, {compared} outputs compared"
    reasons = [f"{b.where}: {b.reason}" for b in blocks if b.reason]
    assert len(reasons) == not_run, reasons


def left_by(daemon):
    """What the default session has, and which sessions there are."""
    lists = ("sessions/default/buffers", "sessions/default/pools", "sessions/default/streams",
             "sessions/default/events", "sessions", "checkpoints", "leases")
    return {of: [(item.get("name"), item.get("generation")) for item in daemon.ask("GET", f"/v1/{of}").json()["items"]]
            for of in lists}


def test_the_page_on_memory_touches_nothing_of_the_user(place):
    """Its commands run again, and beside what README has left."""
    folder, shell, daemon = place
    memory = blocks_of(text_of("doc/memory.md"), "doc/memory.md")
    run_blocks(blocks_of(text_of("README.md"), "README.md"), shell,
               lambda text: text.replace(PORT, f":{daemon.tcp[1]}"))
    before = left_by(daemon), sorted(os.listdir(folder))
    for _ in range(2):
        run_blocks(memory, shell, lambda text: text.replace(PORT, f":{daemon.tcp[1]}"))
        assert (left_by(daemon), sorted(os.listdir(folder))) == before


@pytest.mark.rest
@pytest.mark.timeout(450)
def test_pages_leave_nothing(place):
    """One after another, in one shell and one folder, against one daemon: so each can be pasted after every other."""
    folder, shell, daemon = place
    put_in, before = own_ports(daemon), (left_by(daemon), sorted(os.listdir(folder)))
    for name in COMMANDS:
        run_blocks(blocks_of(text_of(name), name), shell, put_in)
        _, running = shell.run("jobs -p; env | grep ^GPUBUF_ | grep -v ^GPUBUF_SOCKET=; pwd")
        assert running.split() == [folder], f"{name} leaves jobs, variables or another folder: {running}"
        assert (left_by(daemon), sorted(os.listdir(folder))) == before, f"{name} leaves buffers or files"


def test_the_commands_of_the_page_gpubufd_memory(place):
    """Those of the man page make what they use, and end with nothing left."""
    folder, shell, daemon = place
    blocks = re.findall(r"^\.nf\n(.*?)^\.fi\n", text_of("etc/man/gpubufd-memory.7"), re.S | re.M)
    commands = "".join(blocks).replace("\\-", "-").replace("curl ", "curl --fail-with-body -sS ").splitlines()
    before = left_by(daemon)
    for command in 2 * commands:
        status, said = shell.run(command.replace(PORT, f":{daemon.tcp[1]}"))
        assert status == "0", f"{command}\nended with status {status} and printed:\n{said}"
        assert "?stream=a" not in command or float(re.search(r"queue;dur=([\d.]+)", said)[1]) > 0, said
    assert left_by(daemon) == before and len(commands) >= 7


def test_no_command_stands_elsewhere():
    """Blocks that would be run stand in documents that are run, or say why they are not."""
    for name in DOCUMENTS:
        if name not in COMMANDS:
            ready = [b.where for b in blocks_of(text_of(name), name) if b.language in RUN and not b.reason]
            assert not ready, ready


ENDS = re.compile(r"--fail-with-body|curl -sSI|curl -\w*f")  # of commands whose status is that of the answer


def test_curl_ends_with_a_status():
    """A command of curl fails if the answer is an error, unless the error is what the document shows, or is nothing to
    it."""
    count = 0
    for name in COMMANDS:
        for block in blocks_of(text_of(name), name):
            for where, command, want in block.steps() if block.language in RUN else ():
                lines = [line for line in command.split("\n") if re.search(r"\bcurl -", line)]
                shows = re.search(r"urn:gpubuf:error|^4\d\d$|\"detail\"", want or "", re.M)
                for line in lines:
                    assert ENDS.search(line) or shows or ">/dev/null" in line, f"{where}: add --fail-with-body"
                count += len(lines)
    assert count >= 100, count


def test_links():
    count = 0
    for name in DOCUMENTS:
        for link in links_of(text_of(name)):
            file, _, anchor = link.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(name), file)) if file else name
            assert os.path.exists(os.path.join(ROOT, path)), f"{name}: {link}: there is no {path}"
            assert not anchor or anchor in anchors_of(text_of(path)), f"{name}: {link}: {path} has no such heading"
            count += 1
    assert len(DOCUMENTS) >= 12 and count >= 40, f"{count} links in {len(DOCUMENTS)} documents"


def test_pictures():
    """Each is shown by a document, and small; README.md shows one. That none is missing is said by test_links."""
    shown = {os.path.normpath(os.path.join(os.path.dirname(name), link)): name for name in DOCUMENTS
             for link in links_of(text_of(name)) if link.endswith(".png")}
    there = {os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, "doc", "**", "*.png"),
                                                               recursive=True)}
    assert there == set(shown) and "README.md" in shown.values(), there ^ set(shown)
    for name in there:
        with open(os.path.join(ROOT, name), "rb") as f:
            data = f.read()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) <= 150 << 10, f"{name}: {len(data)} bytes"


def test_files_that_are_named_are_there():
    """In code font: paths from the top of the tree, or of a source below src."""
    count = 0
    for name in DOCUMENTS:
        for path in re.findall(r"`((?:[a-z0-9_.]+/)+[a-zA-Z0-9_]+\.(?:c|h|def|js|py|md|json|am|conf))`", text_of(name)):
            assert any(os.path.exists(os.path.join(ROOT, top, path))
                       for top in ("", "src")), f"{name}: there is no {path}"
            count += 1
    assert count >= 30, count


def test_the_map_and_the_threads():
    """ARCHITECTURE.md: where to start in each folder is there, and every thread that the source names has a row."""
    text = text_of("ARCHITECTURE.md")
    starts = re.findall(r"^\| `([a-z/]+)` \|.*\| `([a-z_]+\.\w+)` \|$", text, re.M)
    assert len(starts) >= 15 and not [s for s in starts if not os.path.exists(os.path.join(ROOT, "src", *s))], starts
    names = {name for path in glob.glob(os.path.join(ROOT, "src", "**", "*.c"), recursive=True)
             for name in re.findall(r'"(gb-[a-z]+(?:-[a-z]+)?)(?:-%d)?"', text_of(path))}
    assert len(names) >= 25 and not [name for name in names if f"`{name}" not in text], names


def test_every_document_is_linked():
    """From README.md every other document is reached."""
    reached, ahead = set(), ["README.md"]
    while ahead:
        name = ahead.pop()
        if name not in reached and name in DOCUMENTS:
            reached.add(name)
            ahead += [os.path.normpath(os.path.join(os.path.dirname(name), link.partition("#")[0]))
                      for link in links_of(text_of(name)) if not link.startswith("#")]
    assert sorted(reached) == DOCUMENTS


FALSE = {
    "status exit 1": "```sh\ntrue\nfalse\ntrue\n```\n",
    "status 3": "```console\n$ true\n$ (exit 3)\n```\n",
    "status exit 0": "```console\n$ exit 0\n```\n",
    "printed:\nb": "```console\n$ echo b\na\n```\n",
    "shows:\nc": "```sh\nprintf 'a\\nb\\n'\n```\n\n```text\na\nc\n```\n",
    "shows:\n\nprinted:\nsaid": "```console\n$ echo said\n```\n",
}


@pytest.mark.parametrize("said", FALSE)
def test_what_is_false_is_found(tmp_path, said):
    """The block that failed is named by document and line."""
    with_one_before = "# Title\n\n```sh\nX=there\n```\n\n" + FALSE[said]
    shell = Shell(tmp_path, dict(os.environ))
    with pytest.raises(AssertionError) as error:
        run_blocks(blocks_of(with_one_before, "it.md"), shell, str)
    shell.close()
    assert "it.md:7" in str(error.value) and said.split("shows:\n")[-1] in str(error.value)


def test_what_is_right_passes(tmp_path):
    text = ("```sh\nX=there\n```\n<!-- not run: it would fail -->\n```sh\nfalse\n```\n```console\n$ echo $X \\\n> "
            "again\nth...gain\n$ true\n```\n```python\nprint('at 2026-01-01T00:00:00.000Z')\n```\n\n```text\nat "
            "2020-02-02T02:02:02Z\n```\n")
    shell = Shell(tmp_path, dict(os.environ))
    assert run_blocks(blocks_of(text, "it.md"), shell, str) == (4, 3)
    shell.close()
    assert not alike("a...c", "ab") and not alike("generation 1", "generation 2")
