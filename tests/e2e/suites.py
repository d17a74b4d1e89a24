"""The tests that other projects have of their formats, run against the daemon. run() starts pytest on them with this
file as a plugin: what their library writes is uploaded and read back, and what it reads is uploaded first and read
from there. Where the library and the daemon judge a file differently, or bytes differ, the test that did it fails."""
import collections
import importlib.util
import io
import itertools
import json
import os
import subprocess
import sys
import threading
import urllib.parse

import numpy as np
import pytest

import values
from harness import Client, binary
from tensors import TYPES

HERE = os.path.dirname(os.path.abspath(__file__))
SAFETENSORS = "safetensors-0.8.0/bindings/python/tests"
OUTCOMES, REASONS, COUNTS = {}, {}, collections.Counter()
NAMES = dict(TYPES)
LOCK = threading.Lock()


def folder():
    """The folder of tests/e2e/venv that has what no wheel has."""
    venv = os.environ.get("GB_E2E_VENV") or os.path.join(os.path.dirname(binary()), "venv")
    return os.path.join(venv, "suites")


def run(daemon, session, cwd, which, paths, *arguments, timeout_s=110):
    """Runs the tests in cwd. Returns {"outcomes": {test: outcome}, "reasons": {test: text}, "counts": {what: number},
    "out": what pytest said}."""
    report = cwd / "report.json"
    (cwd / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  slow_pypy\n")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "GB_E2E_"))}
    env = {**clean, "GB_SUITE": which, "GB_SUITE_DAEMON": daemon.unix, "GB_SUITE_SESSION": session,
           "GB_SUITE_REPORT": str(report), "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}",
           "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # An exception in a thread of theirs would else be a warning.
    out = subprocess.run([sys.executable, "-m", "pytest", "-p", "suites", "-p", "no:cacheprovider", "-c", "pytest.ini",
                          "--rootdir", os.path.dirname(paths[0]), "--noconftest", "--basetemp", "tmp", "-q", "-rsfE",
                          "-W", "error::pytest.PytestUnhandledThreadExceptionWarning", *arguments, *paths],
                         cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout_s)
    assert out.returncode in (0, 1) and report.exists(), out.stdout + out.stderr
    return {"out": out.stdout, **json.loads(report.read_text())}


# --- the plugin -------------------------------------------------------------------------------------------------------


def pytest_configure(config):
    if "GB_SUITE" in os.environ:
        {"safetensors": redirect_safetensors, "numpy": redirect_numpy}[os.environ["GB_SUITE"]]()


def note(report):
    name = report.nodeid.rsplit("/", 1)[-1]
    OUTCOMES[name] = report.outcome
    REASONS[name] = REASONS.get(name, "") + str(report.longrepr or "")


def pytest_collectreport(report):
    if report.outcome != "passed":
        note(report)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        note(report)


def pytest_collection_modifyitems(items):
    """Rounds that add none but bytes."""
    for item in items:
        if hasattr(item.module, "NUM_ITERATIONS"):
            item.module.NUM_ITERATIONS = 2


def pytest_sessionfinish():
    if "GB_SUITE" in os.environ:
        with open(os.environ["GB_SUITE_REPORT"], "w", encoding="utf-8") as f:
            json.dump({"outcomes": OUTCOMES, "reasons": REASONS, "counts": COUNTS}, f)


def count(what, n=1):
    """Tests of theirs have threads."""
    with LOCK:
        COUNTS[what] += n


class Refused(Exception):
    """The daemon refused a body; the reason."""


class Buffer:
    """A body in a buffer of its own."""
    _numbers, _clients = itertools.count(1), threading.local()

    def __init__(self, body, query=""):
        self.path = f"/v1/sessions/{os.environ['GB_SUITE_SESSION']}/buffers/b{next(self._numbers)}"
        r = self.ask("PUT", "/data" + query, body)
        if r.status == 422:
            raise Refused(r.json()["detail"])
        self.meta = r.expect(201).json()

    def ask(self, method, path, body=None):
        if not hasattr(self._clients, "own"):
            self._clients.own = Client(os.environ["GB_SUITE_DAEMON"])
        return self._clients.own.ask(method, self.path + path, body)

    def get(self, path="/data"):
        return self.ask("GET", path).expect(200).body

    def close(self):
        self.ask("DELETE", "").expect(204)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# --- safetensors ------------------------------------------------------------------------------------------------------


class Absent:
    """Stands for a library that is not there: modules can be imported that use it, and what calls it is skipped."""

    def __init__(self, name, bases=(), _members=None):
        self.library = bases[0].library if bases else name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(self.library)

    def __call__(self, *_, **__):
        pytest.skip(f"{self.library} is not installed on this machine", allow_module_level=True)


class Table(Buffer):
    """A file that the daemon keeps as a table."""

    def __init__(self, body):
        super().__init__(body, "?format=safetensors&pack=true")
        assert self.meta["dtype"] == "tensors" and self.get() == body, "the file that came back is another"
        listed = json.loads(self.get("/tensors?limit=1000"))
        assert listed["tensors"] == len(listed["items"]) <= 1000
        self.metadata = listed["metadata"]
        self.items = {t["name"]: {**t, "dtype": NAMES[t["dtype"]]} for t in listed["items"]}

    def tensor(self, name, query=""):
        """The reply with a tensor, or with a slice of it."""
        quoted = urllib.parse.quote(name, safe="")
        return self.ask("GET", f"/data?tensor={quoted}&format=raw{query}")


def judged(body, read):
    """What the library makes of a file by read(), and its table. Raises as read() does, if both refuse it."""
    import safetensors
    table = refusal = None
    try:
        table = Table(body)
    except Refused as e:
        refusal = str(e)
    try:
        made = read()
    except safetensors.SafetensorError as e:
        assert table is None, f"the daemon takes what the library refuses: {e}"
        count("refused")
        raise safetensors.SafetensorError(refusal) from e
    assert table, f"the daemon refuses what the library reads: {refusal}"
    count("read")
    return made, table


def bytes_of(array):
    """Of numpy's, or of torch's."""
    if isinstance(array, np.ndarray):
        return array.tobytes()
    import torch
    return array.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() if array.numel() else b""


def made_of(reply, array):
    """An array such as that, whose bytes are those of the reply. They are compared."""
    raw = reply.expect(200).body
    assert reply.headers.get("Gpubuf-Shape", "") == ",".join(map(str, array.shape)) and raw == bytes_of(array)
    if isinstance(array, np.ndarray):
        return np.frombuffer(raw, array.dtype).reshape(array.shape)
    import torch
    if not raw:
        return array
    return torch.frombuffer(bytearray(raw), dtype=array.dtype).reshape(array.shape).to(array.device)


def spelled(index):
    """Of an index: ?slice= of the daemon; None if that has none such."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(p, int) or isinstance(p, slice) and p.step is None for p in parts):
        return None
    return ",".join(str(p) if isinstance(p, int) else
                    ":".join("" if e is None else str(e) for e in (p.start, p.stop)) for p in parts)


class Slice:
    """Of a tensor: what get_slice() gives."""

    def __init__(self, made, table, name):
        self.made, self.table, self.name = made, table, name

    def get_shape(self):
        assert self.table.items[self.name]["shape"] == self.made.get_shape()
        return self.table.items[self.name]["shape"]

    def get_dtype(self):
        assert self.table.items[self.name]["dtype"] == self.made.get_dtype()
        return self.table.items[self.name]["dtype"]

    def __getitem__(self, index):
        text = spelled(index)
        if not text:
            return self.made[index]
        reply = self.table.tensor(self.name, f"&slice={text}")
        try:
            wanted = self.made[index]
        except Exception:
            self.refused(index, reply)
            raise
        count("slices")
        return made_of(reply, wanted)

    def refused(self, index, reply):
        """Beyond the end of an axis the library refuses where numpy, and so the daemon, cuts a slice off."""
        whole = self.made[:]
        count("slices refused")
        try:
            wanted = whole[index]
        except IndexError:
            reply.problem(416, "range_not_satisfiable")
        else:
            made_of(reply, wanted)


class Opened:
    """A file that safe_open() opened: what it says is the daemon's, and compared with what the library says."""

    def __init__(self, body, read):
        self.made, self.table = judged(body, read)

    def __enter__(self):
        self.made.__enter__()
        return self

    def __exit__(self, *error):
        self.made.__exit__(*error)
        self.table.close()

    def __getattr__(self, name):
        return getattr(self.made, name)

    def keys(self):
        names = self.made.keys()
        assert sorted(names) == sorted(self.table.items)
        return names

    def offset_keys(self):
        assert self.made.offset_keys() == list(self.table.items)
        return list(self.table.items)

    def metadata(self):
        metadata = self.made.metadata()
        assert (metadata or {}) == self.table.metadata
        return self.table.metadata if metadata is not None else None

    def get_tensor(self, name):
        count("tensors")
        return made_of(self.table.tensor(name), self.made.get_tensor(name))

    def get_tensors(self):
        return {name: self.get_tensor(name) for name in self.made.get_tensors()}

    def get_slice(self, name):
        return Slice(self.made.get_slice(name), self.table, name)


def redirect_safetensors():
    """Puts other functions into the library, and a stand-in for torch where that is not installed."""
    import safetensors
    if importlib.util.find_spec("torch") is None:
        sys.modules["torch"] = Absent("torch")
    real = {name: getattr(safetensors, name) for name in
            ("serialize", "serialize_file", "deserialize", "safe_open", "_safe_open_handle")}

    def through(body):
        try:
            with Table(body) as table:
                count("written")
                return table.get()
        except Refused as e:
            raise AssertionError(f"the daemon refuses what the library writes: {e}") from e

    def serialize(*args, **named):
        return through(bytes(real["serialize"](*args, **named)))

    def serialize_file(tensors, filename, **named):
        real["serialize_file"](tensors, filename, **named)
        with open(filename, "rb") as f:
            body = through(f.read())
        with open(filename, "wb") as f:
            f.write(body)

    def deserialize(data):
        made, table = judged(data, lambda: real["deserialize"](data))
        with table:
            assert sorted(name for name, _ in made) == sorted(table.items)
            count("tensors", len(made))
            for name, tensor in made:
                item, raw = table.items[name], table.tensor(name).expect(200).body
                assert (tensor["dtype"], tensor["shape"], tensor["data"]) == (item["dtype"], item["shape"], raw)
                tensor["data"] = raw
        return made

    def safe_open(filename, *args, **named):
        body = b""
        if os.path.exists(filename):
            with open(filename, "rb") as f:
                body = f.read()
        return Opened(body, lambda: real["safe_open"](filename, *args, **named))

    def _safe_open_handle(f, *args, **named):
        body = os.pread(f.fileno(), os.fstat(f.fileno()).st_size, 0)
        return Opened(body, lambda: real["_safe_open_handle"](f, *args, **named))

    for function in (serialize, serialize_file, deserialize, safe_open, _safe_open_handle):
        for module in [m for name, m in sys.modules.items() if name.split(".")[0] == "safetensors"]:
            if hasattr(module, function.__name__):
                setattr(module, function.__name__, function)


# --- numpy ------------------------------------------------------------------------------------------------------------


class Tee:
    """Reads a file, and keeps what was read."""

    def __init__(self, file):
        self.file, self.seen = file, b""

    def read(self, *n):
        data = self.file.read(*n)
        self.seen += data
        return data

    def readline(self, *n):
        data = self.file.readline(*n)
        self.seen += data
        return data


def foreign(array):
    """Why the daemon has no such elements; None if it has."""
    if array.dtype.hasobject:
        return "objects"
    if array.dtype.fields is not None:
        return "fields"
    if array.dtype.kind not in "biufc":
        return "no numbers"
    if not array.dtype.isnative:
        return "big-endian"
    return None if array.dtype.name in values.DTYPES else "long double"


def redirect_numpy():
    from numpy.lib import format as npy
    real = {name: getattr(npy, name) for name in ("write_array", "read_array")}

    def through(body, array, what):
        """The array that the daemon makes of a .npy; None where it has no such elements."""
        reason = foreign(array)
        try:
            with Buffer(body, "?format=npy") as buffer:
                back = real["read_array"](io.BytesIO(buffer.get("/data?format=npy")))
        except Refused as e:
            assert reason, f"the daemon refuses an array of {array.dtype}: {e}"
            count(reason)
            return None
        assert not reason, f"the daemon takes an array of {reason}, of {array.dtype}"
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
        count(what)
        return back

    def write_array(fp, array, *args, **named):
        text = io.BytesIO()
        real["write_array"](text, array, *args, **named)
        body = text.getvalue()
        array = np.asanyarray(array)
        back = through(body, array, "written")
        if back is not None:
            fortran = array.flags.f_contiguous and not array.flags.c_contiguous
            body = body[:len(body) - array.nbytes] + back.tobytes("F" if fortran else "C")
        fp.write(body)

    def read_array(fp, *args, **named):
        tee = Tee(fp)
        try:
            array = real["read_array"](tee, *args, **named)
        except ValueError:
            with pytest.raises(Refused), Buffer(tee.seen + fp.read(), "?format=npy"):
                pass
            count("damaged")
            raise
        back = through(tee.seen, array, "read")
        if back is None:
            return array
        return np.asfortranarray(back) if array.flags.f_contiguous and not array.flags.c_contiguous else back

    npy.write_array, npy.read_array = write_array, read_array
