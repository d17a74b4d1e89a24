"""The access log, and what the daemon's own log says of requests."""
import contextlib
import json
import os
import re
import signal
import socket
import sys

import pytest

from harness import DATA, binary, until
from test_audit import command

S = "/v1/sessions/default"


def lines(path):
    with open(path) as f:
        return [json.loads(line) for line in f.read().splitlines() if line.endswith("}")]


def known(path, **wanted):
    """The line of the access log with these members, once it is there."""
    fits = lambda: [x for x in lines(path) if all(x.get(k) == v for k, v in wanted.items())]
    return until(f"a line has {wanted}", fits)[0]


def asked(d, method, target, own, body=None, token=None, **headers):
    return d.ask(method, target, body, {"X-Request-Id": own, **headers}, token=token)


def launched(tmp_path, before):
    """The words of a daemon whose process does that before."""
    launcher = tmp_path / "launch"
    launcher.write_text(f"import os, sys\n{before}\nos.execv(sys.argv[1], sys.argv[1:])\n")
    return [sys.executable, str(launcher), binary()]


def test_each_request_is_a_line(start, tmp_path):
    path = tmp_path / "access"
    secret = command(tmp_path / "s", "add", "writer", "--scope", "write")
    d = start("--access-log", str(path), state=str(tmp_path / "s"))
    asked(d, "PUT", DATA.format("default", "x") + "?dtype=int8&shape=5", "up", b"abcde", secret).expect(201)
    x = known(path, request_id="up")
    assert x["client"] == "127.0.0.1" and x["token"] == "writer" and x["certificate"] is None and x["method"] == "PUT"
    assert (x["route"] == "/v1/sessions/{session}/buffers/{buffer}/data" and x["path"] == DATA.format("default", "x")
            and x["code"] is None)
    assert ((x["status"], x["received"]) == (201, 5) and 0 <= x["body_us"] <= x["duration_us"]
            and x["time"].endswith("Z"))
    for own, method, target, status, sent, headers in [
            ("down", "GET", DATA.format("default", "x"), 200, 5, {}), ("part", "GET", DATA.format("default", "x"), 206,
                                                                       2, {"Range": "bytes=1-2"}),
            ("head", "HEAD", DATA.format("default", "x"), 200, 0, {}), ("live", "GET", "/livez", 200, 16, {})]:
        assert asked(d, method, target, own, None, secret, **headers).status == status
        assert known(path, request_id=own)["sent"] == sent
    asked(d, "GET", "/none", "lost").expect(404)
    x = known(path, request_id="lost")
    assert (x["route"], x["token"], x["code"]) == (None, None, "no_route")
    with contextlib.closing(d.client(unix=True)) as c:
        c.ask("GET", "/livez", headers={"X-Request-Id": "near"}).expect(200)
    assert known(path, request_id="near")["client"] == f"unix:{os.getuid()}"
    assert os.stat(path).st_mode & 0o777 & ~0o640 == 0
    assert secret not in path.read_text()


def test_long_bodies_and_one_that_breaks_off(start, tmp_path):
    path = tmp_path / "access"
    d = start("--access-log", str(path))
    size = 64 << 20
    asked(d, "PUT", DATA.format("default", "x"), "up", bytes(size)).expect(201)
    assert known(path, request_id="up")["received"] == size
    asked(d, "GET", DATA.format("default", "x"), "down").expect(200)
    assert known(path, request_id="down")["sent"] == size
    with d.raw() as r:
        r.request("GET", DATA.format("default", "x"), ["X-Request-Id: broken"]).head()
        r.reset()
    x = known(path, request_id="broken")
    assert x["status"] == 0 and 0 <= x["sent"] < size


def test_logrotate(start, tmp_path):
    path, old = tmp_path / "access", tmp_path / "old"
    d = start("--access-log", str(path))
    asked(d, "GET", "/livez", "one").expect(200)
    known(path, request_id="one")
    os.rename(path, old)
    asked(d, "GET", "/livez", "two").expect(200)
    known(old, request_id="two")
    d.process.send_signal(signal.SIGHUP)
    until("the file is there again", path.exists)
    asked(d, "GET", "/livez", "three").expect(200)
    known(path, request_id="three")
    assert len(lines(path)) == 1


def test_standard_output(start, tmp_path):
    """A reader that does not read holds nothing up; what does not fit is lost, and said."""
    read, write = os.pipe()
    d = start("--access-log", "-", program=launched(tmp_path, f"os.dup2({write}, 1)"), pass_fds=[write])
    os.close(write)
    n = 12000
    with contextlib.closing(d.client()) as c:
        for i in range(n):
            c.ask("GET", "/livez", headers={"X-Request-Id": str(i).rjust(128, "0")}).expect(200)
    until("the loss is logged", lambda: " access_log: " in d.log())
    with os.fdopen(read) as f:
        got, last = 0, json.loads(f.readline())
        assert last["request_id"] == "0" * 128
        while "lost" not in last:
            got, last = got + 1, json.loads(f.readline())
        assert got + last["lost"] == n and last["lost"] > 0


def test_journal(start, tmp_path):
    """Datagrams with a priority, to a socket that speaks journald's native protocol."""
    path = str(tmp_path / "journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(60)
        secret = command(tmp_path / "s", "add", "writer", "--scope", "write")
        d = start("--access-log", "journal:" + path, state=str(tmp_path / "s"))
        for own, status, token, priority in ("good", 200, secret, 6), ("bad", 401, None, 4):
            asked(d, "GET", "/v1", own, token=token).expect(status)
            fields = dict(x.split("=", 1) for x in s.recv(65536).decode().rstrip("\n").split("\n"))
            assert fields["PRIORITY"] == str(priority) and fields["SYSLOG_IDENTIFIER"] == "gpubufd"
            assert json.loads(fields["MESSAGE"])["request_id"] == own


@pytest.mark.parametrize("name", ["/none/access", "journal:/none/socket", "."])
def test_what_cannot_be_written_is_said(start, name):
    d = start("--access-log", name, wait=False)
    assert f"--access-log {name} cannot be written" in d.finished(70)


@pytest.mark.parametrize("form", ["text", "json"])
def test_refusals_of_rights_are_logged(start, tmp_path, form):
    secret = command(tmp_path / "s", "add", "reader", "--scope", "read")
    d = start("--log-format", form, state=str(tmp_path / "s"))
    asked(d, "GET", "/v1?x=secret", "none-401").expect(401)
    asked(d, "DELETE", S + "/buffers/x", "small-403", token=secret).expect(403)
    asked(d, "GET", "/v1", "fine", token=secret).expect(200)
    until("both are logged", lambda: "none-401" in d.log() and "small-403" in d.log())
    said = [x for x in d.log().splitlines() if "-401" in x or "-403" in x]
    assert len(said) == 2 and "fine" not in d.log() and "secret" not in "".join(said)
    if form == "json":
        first, second = map(json.loads, said)
        assert (first["level"], first["event"], first["client"], first["code"]) == ("warning", "refused", "127.0.0.1",
                                                                                    "unauthenticated")
        assert (second["token"], second["method"], second["path"]) == ("reader", "DELETE", S + "/buffers/x")
        assert second["route"] == "/v1/sessions/{session}/buffers/{buffer}" and second["code"] == "forbidden"
    else:
        assert (" warning refused: 401 after " in said[0] and " request_id=none-401 client=127.0.0.1 method=GET "
                in said[0])
        assert (" token=reader method=DELETE route=/v1/sessions/{session}/buffers/{buffer} " in said[1]
                and said[1].endswith(" code=forbidden"))


def test_refusals_that_repeat_are_counted(start, tmp_path):
    command(tmp_path / "s", "add", "reader", "--scope", "read")
    d = start(state=str(tmp_path / "s"))
    for _ in range(200):
        d.ask("GET", S + "/buffers/" + "x" * 100).expect(401)
    d.stop()
    lines = [x for x in d.last_log.splitlines() if " refused: " in x]
    own = [x for x in lines if " refused: 401 after " in x]
    counts = [int(re.search(r" refused: (\d+) more in ", x)[1]) for x in lines if x not in own]
    assert all(x.endswith(" client=127.0.0.1 code=unauthenticated") for x in lines if x not in own)
    assert len(own) + sum(counts) == 200 and len(counts) > 0 and len(own) <= 10 * (len(counts) + 1)


def test_levels_for_the_journal(start, tmp_path):
    """Lines begin with their priority if standard error is what JOURNAL_STREAM names."""
    command(tmp_path / "s", "add", "reader", "--scope", "read")
    d = start(program=launched(tmp_path, 'st = os.fstat(2)\nos.environ["JOURNAL_STREAM"] = f"{st.st_dev}:{st.st_ino}"'),
              state=str(tmp_path / "s"))
    d.ask("GET", "/v1").expect(401)
    until("the refusal is logged", lambda: " refused: " in d.log())
    for line in d.log().splitlines():
        assert line[:3] == {"info": "<6>", "warning": "<4>", "error": "<3>"}[line.split()[1]], line
