"""The Python package itself: installation, types and docstrings, dependencies (only numpy), older Python versions."""
import ast
import gc
import glob
import importlib
import inspect
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from pyclient import SOURCE, client_of, gpubuf

from harness import library

FILES = sorted(glob.glob(os.path.join(SOURCE, "gpubuf", "*.py")))
PUBLIC = [gpubuf.Client, gpubuf.Mapping, gpubuf.Sessions, gpubuf.Pools, gpubuf.Streams, gpubuf.Events, gpubuf.Devices,
          gpubuf.Operations, gpubuf.Leases, gpubuf.Feed, gpubuf.DeviceArray, gpubuf.AsyncClient]


def python(*args, **more):
    run = subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=300, **more)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_versions_are_one(daemon):
    with open(os.path.join(SOURCE, "pyproject.toml")) as f:
        assert f'\nversion = "{gpubuf.__version__}"\n' in f.read()
    with client_of(daemon) as c:
        assert c.about()["version"] == gpubuf.__version__


def test_it_installs(tmp_path):
    """pip installs it from a copy of the tree, without a network; the installed package is imported from another folder
    and typed."""
    library("setuptools")
    copy, target = tmp_path / "copy", tmp_path / "target"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    python("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation",
           "--disable-pip-version-check", "--target", str(target), str(copy))
    installed = {os.path.basename(p) for p in glob.glob(str(target / "gpubuf" / "*"))} - {"__pycache__"}
    assert installed == {os.path.basename(p) for p in FILES} | {"py.typed"}
    said = python("-c", "import gpubuf, importlib.metadata as m; print(gpubuf.__file__, m.version('gpubuf'), "
                  "m.requires('gpubuf'))",
                  cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)})
    assert said.startswith(f"{target}/gpubuf/__init__.py {gpubuf.__version__} ['numpy', ")


def test_it_needs_numpy_alone():
    if sys.version_info < (3, 10):
        pytest.skip("this Python has no list of its own modules")
    program = f"""if True:
        import sys
        import numpy
        before = set(sys.modules)
        sys.path.insert(0, {SOURCE!r})
        import gpubuf
        print(*{{m.partition(".")[0] for m in set(sys.modules) - before}} - sys.stdlib_module_names - {{"gpubuf", "numpy"}})"""
    assert python("-c", program).split() == []


@pytest.mark.parametrize("path", FILES, ids=os.path.basename)
def test_older_pythons_read_it(path):
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read(), path, feature_version=(3, 9))
    used = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "__future__" in used or path.endswith("__init__.py"), "annotations are not evaluated by older Pythons"


def test_types_are_complete(tmp_path):
    """mypy --strict, for the oldest Python version that numpy's own types support; and as a user's type checker sees
    them."""
    library("mypy")
    oldest = ["--python-version", "3.9"] if np.__version__ < "2" else []
    user = tmp_path / "user.py"
    user.write_text("""import gpubuf
import numpy as np
with gpubuf.Client(session="s") as c:
    meta = c.put("x", np.zeros(3), stream="s")
    reveal_type(meta["generation"])
    with c.map("x", mode="write") as m:
        reveal_type(m.array().shape)
        reveal_type(m.alive)
    try:
        reveal_type(c.sessions.get())
    except gpubuf.BufferNotFound as e:
        reveal_type(e.cuda)
    c.put("x")
    c.map("x", mood="write")
    meta["generatoin"]
""")
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *oldest,
                          "-p", "gpubuf"],
                         cwd=SOURCE, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *oldest,
                          str(user)],
                         cwd=SOURCE, capture_output=True, text=True, timeout=300)
    expected = {5: "int", 7: "tuple[", 8: "bool", 10: "idle_ttl_s", 12: "dict[", 13: "Missing positional argument",
                14: "Unexpected keyword", 15: "has no key"}
    for number, word in expected.items():
        said = [line for line in run.stdout.splitlines() if f"user.py:{number}:" in line]
        assert any(word.lower() in line.lower() for line in said), (number, word, run.stdout)


def finalized():
    """The classes with __del__, and their modules."""
    for path in FILES:
        module = importlib.import_module(f"gpubuf.{os.path.basename(path)[:-3]}" if not path.endswith("__init__.py")
                                         else "gpubuf")
        yield from (cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__
                    and "__del__" in vars(cls))


@pytest.fixture
def ignored(monkeypatch):
    """What the interpreter says of exceptions that it ignores."""
    said = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: said.append((event.object, event.exc_value)))
    return said


@pytest.mark.parametrize("cls", list(finalized()), ids=lambda cls: cls.__qualname__)
def test_half_an_object_ends_in_silence(cls, ignored):
    """An interrupt (KeyboardInterrupt) may come between the making of an object and its first member."""
    cls.__new__(cls)
    gc.collect()
    assert ignored == []


def test_an_interrupt_at_any_line_of_a_constructor(daemon, session, ignored):
    """The object ends in silence, whatever members it has by then, and the client continues."""
    codes = {cls.__init__.__code__ for cls in finalized()}
    values = np.arange(6.0)

    class Producer:
        def __dlpack__(self, **more):
            return values[::2].__dlpack__()

    def work():
        with client_of(daemon, session) as c:
            c.put("x", Producer())
            with c.feed(after=0) as feed:
                next(feed)

    def interrupted(at):
        """Whether there is a line with that number, which raises."""
        seen = 0

        def line(frame, event, _):
            nonlocal seen
            seen += event == "line"
            if event == "line" and seen == at:
                raise KeyboardInterrupt
            return line

        sys.settrace(lambda frame, event, _: line if frame.f_code in codes else None)
        try:
            work()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return seen >= at

    at = 1
    while interrupted(at):
        at += 1
    gc.collect()
    assert at > 20 and ignored == []
    work()


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda c: c.__name__)
def test_everything_is_described(cls):
    assert inspect.getdoc(cls)
    for name, member in vars(cls).items():
        what = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not callable(what):
            continue
        assert inspect.getdoc(what), f"{cls.__name__}.{name} has no docstring"
        signature = inspect.signature(what)
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in list(signature.parameters.values())[1:]:
            assert parameter.annotation is not inspect.Parameter.empty, (f"{cls.__name__}.{name}({parameter.name}) has "
                                                                         "no type")
