"""Many connections to a listener for TLS that do not get through their handshake, or do not take their answers."""
import contextlib
import os
import resource
import socket
import ssl
import time

import pytest

import secure
from connected import PATIENCE_S
from harness import DATA, metric, until
from records import Secured
from test_tls import starts  # noqa: F401
from values import payload

pytestmark = pytest.mark.skipif(secure.EVERYWHERE, reason="these choose for themselves what goes over TLS")



def hello(d):
    """The first message of a client."""
    with socket.create_connection(d.tls) as s:
        client = Secured(s, secure.authority().context(), shake=False)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        return client.out.read()


def half_open(d, stack, text):
    s = stack.enter_context(socket.create_connection(d.tls, PATIENCE_S))
    s.sendall(text)
    return s


def descriptors(d):
    return len(os.listdir(f"/proc/{d.process.pid}/fd"))


def memory(d):
    with open(f"/proc/{d.process.pid}/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


def test_handshakes_that_stay_half_done(starts):
    """2,000 at a time, four times: others are served beside them, the daemon ends them, and keeps nothing of them."""
    d = starts("--header-timeout", "10", "--max-connections", "4096")
    text = hello(d)
    before, highest = descriptors(d), []
    for _ in range(4):
        with contextlib.ExitStack() as stack:
            # On a busy machine the daemon ends the first ones before it has accepted the last.
            accepted = metric(d, "gpubufd_http_accepted_total")
            held = [half_open(d, stack, text[:n % 3 * len(text) // 2]) for n in range(2000)]
            until("all are accepted", lambda: metric(d, "gpubufd_http_accepted_total") >= accepted + 2000, every_s=0.2)
            highest.append(memory(d))
            with d.wire() as r:
                target = DATA.format("default", "beside")
                assert r.put(target, 300000).send(payload(300000)).reply().status in (200, 201)
                assert r.ask("GET", target).expect(200).body == payload(300000)
            until("the daemon has ended them", lambda: descriptors(d) < before + 20)
            for s in held[::100]:
                with contextlib.suppress(ConnectionResetError):
                    while s.recv(4096):
                        pass
    assert highest[3] < 2.2 * highest[0], highest  # what is kept would add up to more
    d.stop()


@pytest.mark.parametrize("threads", [1, 4])
def test_half_done_handshakes_give_way(starts, threads):
    """All places are taken by handshakes that do not continue, on whichever loop: newcomers are served."""
    d = starts("--header-timeout", "3600", "--idle-timeout", "3600", "--max-connections", "40", "--http-threads",
               str(threads))
    with contextlib.ExitStack() as stack:
        held = [half_open(d, stack, b"") for _ in range(40)]
        until("all places are taken", lambda: descriptors(d) >= 40)
        time.sleep(0.2)  # they are no longer young
        served = []
        for i in range(20):
            address = d.tcp if i % 4 == 3 else None
            if address:
                assert d.ask("GET", "/readyz").status == 200
            else:
                served.append(stack.enter_context(d.wire()))
                assert served[-1].ask("GET", "/readyz").status == 200
        assert all(r.ask("GET", "/readyz").status == 200 for r in served)  # none of those that got through
        gone = 0
        for s in held:
            s.setblocking(False)
            try:
                gone += s.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionResetError:
                gone += 1
        assert 8 <= gone <= 30, gone
    d.stop()


def test_quiet_connections_give_way(starts):
    """A connection over TLS that asks for nothing leaves its place at once, not when its client has closed, too."""
    d = starts("--header-timeout", "3600", "--idle-timeout", "3600", "--max-connections", "40")
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(d.wire()) for _ in range(32)]  # 8 places are kept for UNIX sockets
        assert held[0].ask("GET", "/readyz").status == 200
        time.sleep(1.1)  # they are quiet
        before = descriptors(d)
        for _ in range(60):
            with d.wire() as r:
                assert r.ask("GET", "/readyz").status == 200
        assert descriptors(d) <= before + 10
    d.stop()


def cpu_s(d):
    with open(f"/proc/{d.process.pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(d, seconds=1):
    """Of a processor that the daemon uses; all of it if a thread spins."""
    before = cpu_s(d)
    time.sleep(seconds)
    return (cpu_s(d) - before) / seconds


def test_answers_that_nobody_takes(starts):
    """The answers fill the socket, and libmicrohttpd ends its side after the idle timeout: the daemon waits for the
    client."""
    d = starts("--stall-timeout", "3600", "--idle-timeout", "1", "--http-threads", "1")
    with contextlib.ExitStack() as stack:
        for count in (20, 50, 100, 200, 400, 800):
            # no connection asks for the same again, which would leave libmicrohttpd
            asks = ("/v1/stats", "/v1/devices")
            r = stack.enter_context(d.wire(receive_bytes=2048))
            r.send("".join(f"GET {asks[i % 2]} HTTP/1.1\r\nHost: localhost\r\n\r\n" for i in range(count)).encode())
        time.sleep(2.5)
        assert share(d) < 0.4
        for _ in range(count // 20):  # the last one had all that it asked for on the way
            assert r.reply().status == 200
    d.stop()


def test_a_record_that_is_cut(starts):
    """Its rest never comes: the end of the socket is seen once, and ends the connection."""
    d = starts("--idle-timeout", "3600", "--header-timeout", "3600", "--http-threads", "1")
    for text in (b"", b"GET /readyz", b"PUT /v1/sessions/default/buffers/c/data HTTP/1.1\r\nHost: "
                 b"localhost\r\nContent-Length: 9000\r\n\r\n"):
        r = d.wire()
        r.sock.plain.sendall(r.sock.encrypted(text + b"x")[:-1])
        r.sock.plain.shutdown(socket.SHUT_WR)
        r.closes()
        r.close()
    assert share(d) < 0.4
    d.stop()
