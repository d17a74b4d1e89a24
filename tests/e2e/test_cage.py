"""The daemon works on in its cage, all threads are in it, and each option takes its part off. tests/unit/daemon/cage
tries to leave it."""
import os
import re
import resource
import shutil
import signal
import socket
import ssl

import pytest
import secure
from connected import PATIENCE_S
from harness import COLLECTING, SMALL_SLOTS, Daemon, binary, starting, until

ROOT = os.geteuid() == 0
HELD = 0xffff
DATA = bytes(range(256)) * 4096


def threads(d):
    """{thread: {field: value}} of /proc."""
    folder = f"/proc/{d.process.pid}/task"
    return {t: dict(re.findall(r"^(\w+):\s+(.*)$", open(f"{folder}/{t}/status", encoding="ascii").read(), re.M))
            for t in os.listdir(folder)}


def core_limit(d):
    return resource.prlimit(d.process.pid, resource.RLIMIT_CORE)


def unasked(d):
    """seccomp's answer if no option asks for one. With CUDA, and where the calls of tests are collected, it is log by
    design."""
    about = d.get("/v1")
    answer = about["cage"]["seccomp"]
    assert answer == "log" if about["backend"]["name"] == "cuda" else answer in ("errno", *COLLECTING.values())
    assert f"; seccomp: {answer};" in d.log()
    return answer


def work(d, name):
    """Uploads, downloads, a pool, numbers and the log: on loops, lanes and the writer."""
    for size in (100, len(DATA)):
        d.put(f"{name}{size}", DATA[:size]).expect(201)
        assert d.data(f"{name}{size}").body == DATA[:size]
    d.ask("POST", "/v1/sessions/default/pools", {"name": f"{name}pool", "device": 0}).expect(201)
    d.put(f"{name}pooled", DATA, query=f"?pool={name}pool").expect(201)
    assert d.data(f"{name}pooled").body == DATA
    assert d.get("/v1/stats")["process"]["open_fds"] > 0
    page = {"Accept": "application/json"}
    until("the log has an event", lambda: d.ask("GET", "/v1/feed?limit=1", headers=page).expect(200).json()["items"])


@pytest.fixture
def caged():
    """Daemons on the host backend: what CUDA's driver needs is another list, which only warns."""
    yield from starting(lambda *options, **more: Daemon("host", *SMALL_SLOTS, *options, **more))


def test_all_is_in_force(caged):
    d = caged()
    about = d.get("/v1")["cage"]
    answer = unasked(d)
    assert about["privileges"] == "none" and about["core_dumps"] is False
    work(d, "a")
    for status in threads(d).values():
        assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1", status
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapInh"], 16) == 0, status
        assert int(status["CapBnd"], 16) == 0 or not ROOT, status
    assert core_limit(d) == (0, 0)
    log = d.stop()
    assert (f"cage: Landlock: {'version ' + str(about['landlock']) if about['landlock'] else 'none'}; seccomp: {answer}"
            in log)


def test_restart_in_the_cage(caged, tmp_path):
    first = caged(state=str(tmp_path / "state"))
    work(first, "a")
    first.kill()
    second = caged(state=str(tmp_path / "state"))
    assert second.meta("a100")["state"] == "lost"
    work(second, "b")
    assert second.stop().count("is on no list") == 0


@pytest.mark.parametrize("options, shown, check", [
    (("--landlock", "off"), {"landlock": 0}, None),
    (("--seccomp", "off"), {"seccomp": "off"}, lambda s: s["Seccomp"] == "0"),
    (("--seccomp", "kill"), {"seccomp": "kill"}, lambda s: s["Seccomp"] == "2"),
    (("--seccomp", "log"), {"seccomp": "log"}, lambda s: s["Seccomp"] == "2"),
    (("--privileges", "keep"), {"privileges": "kept"}, lambda s: int(s["CapEff"], 16) != 0 or not ROOT),
])
def test_each_part_can_be_taken_off(caged, options, shown, check):
    d = caged(*options)
    about = d.get("/v1")["cage"]
    assert {k: about[k] for k in shown} == shown
    whole = {"privileges": "none", "core_dumps": False}
    assert "seccomp" in shown or unasked(d)
    assert all(about[k] == v for k, v in whole.items() if k not in shown)
    work(d, "a")
    assert all(check is None or check(status) for status in threads(d).values())
    assert "is on no list" not in d.stop()


def test_core_dumps(caged):
    d = caged("--core-dumps", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (HELD, HELD)))
    assert core_limit(d) == (HELD, HELD) and d.get("/v1")["cage"]["core_dumps"] is True


def test_all_off_by_the_file(caged, tmp_path):
    config = tmp_path / "gpubufd.conf"
    config.write_text("landlock = off\nseccomp = off\nprivileges = keep\ncore-dumps = true\n")
    d = caged("--config", str(config))
    assert d.get("/v1")["cage"] == {"landlock": 0, "seccomp": "off", "privileges": "kept", "core_dumps": True}
    assert {s["NoNewPrivs"] for s in threads(d).values()} == {"0"}


@pytest.mark.skipif(not ROOT, reason="only root may listen there, and give up that it may")
def test_ports_and_groups_of_root_come_first(caged, tmp_path):
    """What takes capabilities is done before they are given up; the socket, in another folder, is still removed at the
    end."""
    folder = tmp_path / "run"
    folder.mkdir()
    d = caged("--socket", str(folder / "sock"), "--socket-group", "65534", listen=("--listen", "127.0.0.9:99"))
    assert d.addresses[0] == "127.0.0.9:99" and os.stat(folder / "sock").st_gid == 65534
    d.client(unix=True).ask("GET", "/v1").expect(200)
    d.stop()
    assert not os.listdir(folder)


@pytest.mark.skipif(not ROOT, reason="only root could use another one's folder")
def test_state_directory_of_another_user(caged, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    d = caged(state=str(state), wait=False)
    d.process.wait(PATIENCE_S)
    assert "belongs to another user" in d.finished(70)
    shutil.rmtree(state)
    state.mkdir(mode=0o700)
    os.chown(state, 65534, 65534)
    work(caged("--privileges", "keep", state=str(state)), "a")


def test_tokens_beside_a_caged_daemon(caged, tmp_path):
    state = str(tmp_path / "state")
    d = caged(state=state)
    assert d.ask("GET", "/v1").status == 200
    assert os.system(f"{binary()} token add one --state-dir {state} >/dev/null 2>&1") == 0
    until("the daemon knows the token", lambda: d.ask("GET", "/v1").status == 401)


def serial(d):
    """Of the certificate that the daemon shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", int(d.addresses[0].rsplit(":", 1)[1])), PATIENCE_S) as plain, \
            context.wrap_socket(plain) as s:
        return hash(s.getpeercert(binary_form=True))


def test_certificates_are_read_again_in_the_cage(caged, tmp_path):
    """As certbot leaves them: links in one folder, which are turned to new files of another one."""
    live, archive = tmp_path / "live", tmp_path / "archive"
    live.mkdir()
    archive.mkdir()
    issuer = secure.Authority(archive)

    def renew(version):
        for made, name in zip(issuer.server(f"server{version}"), ("cert.pem", "key.pem")):
            os.symlink(made, live / "next")
            os.rename(live / "next", live / name)

    renew(1)
    d = caged("--tls-cert", str(live / "cert.pem"), "--tls-key", str(live / "key.pem"),
              listen=("--listen", "none", "--tls-listen", "127.0.0.1:0"))
    first = serial(d)
    renew(2)
    d.process.send_signal(signal.SIGHUP)
    until("the new certificate is shown", lambda: serial(d) != first)
    assert "in force stay" not in d.stop()
