"""Loads at the edges: clients that break off, unknown ones, greedy ones, proxies, certificates of clients, tokens that
come and go. The rules of loads.py hold here, too."""
import contextlib
import random
import socket
import ssl

from bounding import SIGNATURE, proxy_1, proxy_2
from harness import until
from scene import GREEDY, LISTENERS_MAX, PROXY, SESSION, UNKNOWN, UPLOADS_MAX, command, expect
from sharing import Local

MEGABYTE = f"{SESSION}/buffers/{{}}/data?dtype=uint8&shape=1000000"


def rest(sock):
    """All bytes until the daemon ends the connection."""
    data = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while more := sock.recv(1 << 16):
            data += more
    return data


def status(data):
    """Of the last answer in the bytes; None: no such row."""
    lines = [line for line in data.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]
    return int(lines[-1].split()[1]) if lines else None


def end(rng, sock):
    if rng.random() < 0.5 and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


def vandals(work, how, number):
    """Clients that break off anywhere, and bytes that are no HTTP."""
    rng, target = random.Random(), MEGABYTE.format(f"v{number}")
    bare = "plain" if how == "tls" else how
    while True:
        kind = rng.randrange(8)
        if kind < 2:  # nothing of TLS is done
            sock = socket.create_connection(work.address(how)) if how != "unix" else work.open(how)
            sock.sendall(rng.randbytes(200) if kind else b"\x16\x03\x01\x02\x00\x01" if how == "tls" else b"GET / HT")
        else:
            sock = work.open(how)
        sent = {2: ("PUT", target, ("Content-Length: 1000000",), bytes(rng.randrange(999999))),
                3: ("PUT", target, ("Transfer-Encoding: chunked",), b"ffff\r\n" + bytes(100)),
                4: ("PUT", target, ("Content-Length: x",), b""),
                5: ("PUT", target, ("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n"),
                6: ("GET", f"{SESSION}/buffers/big/data", (), b""),
                7: ("GET", f"{SESSION}/buffers/big", ("If-None-Match: " + work.big_tag, "Prefer: wait=60"),
                    b"")}.get(kind)
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # the daemon may end it first
            if sent:
                sock.sendall(work.head(*sent[:2], *sent[2]) + sent[3])
            if kind in (4, 5):
                answer = status(rest(sock))
                # None: reset while bytes were under way. What is refused before a token is looked at counts for the
                # address.
                assert answer in (400, 429, None), answer
            elif kind == 6:
                assert status(sock.recv(10000)) == 200
        end(rng, sock)
        # What broke off has left nothing.
        if kind in (2, 3) and rng.random() < 0.1:
            expect(work.client(bare).ask("GET", f"{SESSION}/buffers/v{number}"), 404, code="buffer_not_found")
        yield


def unknown(work, how, number):
    """Tokens that are not known: refused, then slowed down. Certificates of another authority are refused in the
    handshake."""
    while True:
        for _ in range(12):
            c = work.client(how, "gpb_unknown", source=UNKNOWN)
            with contextlib.closing(c):
                reply = expect(c.ask("GET", f"{SESSION}/buffers"), 401, 429)
                assert reply.status == 401 or int(reply.headers["Retry-After"]) >= 1
        c = work.client(how, source=UNKNOWN)  # a valid token is answered all the same
        with contextlib.closing(c):
            expect(c.ask("GET", f"{SESSION}/buffers?limit=1"), 200)
        c = work.client("tls", who=work.others.path("other"))
        try:
            with contextlib.closing(c):
                c.ask("GET", "/v1")
            raise AssertionError("a certificate of another authority was taken")
        except (ssl.SSLError, ConnectionError):
            pass
        yield


def certified(work, how, number):
    """Clients whose certificate stands for a token."""
    while True:
        c = work.client("tls", who=work.clients.path("cam"))
        with contextlib.closing(c):
            path = f"{SESSION}/buffers/cam1-{number}/data"
            expect(c.ask("PUT", path, b"1" * 100000), 200, 201)
            assert expect(c.ask("GET", path), 200).body == b"1" * 100000
            expect(c.ask("PUT", f"{SESSION}/buffers/cam2-{number}/data", b"1"), 403, code="forbidden")
            c.token = work.token  # the bearer decides
            expect(c.ask("GET", "/v1/audit?limit=1"), 200)
        c = work.client("tls", who=work.clients.path("other"))
        with contextlib.closing(c):
            expect(c.ask("GET", path), 401, 429)  # it counts for the address
        yield


def tokens(work, how, number):
    """A token that is added, rotated and revoked, and what it holds: a listener, a waiting request, a mapping."""
    name, here = f"life{number}", f"127.0.1.{number}"  # another address than others: what fails here slows none of them
    boss = work.client(how)
    expect(boss.ask("PUT", f"{SESSION}/buffers/{name}/data?kind=pinned", b"abcd"), 200, 201)
    with contextlib.suppress(AssertionError):
        command(work.state, "revoke", name)  # what a turn that failed has left
    while True:
        secrets = [command(work.state, "add", name, "--scope", "write,map", "--session", "soak", "--expires", "1h")]
        c = work.client(how, secrets[0], source=here)
        until("the token is in force", lambda: c.ask("GET", f"{SESSION}/buffers").status == 200, every_s=0.2)
        secrets.append(command(work.state, "rotate", name, "--overlap", "60s"))
        new = work.client(how, secrets[1], source=here)
        until("the new secret is in force", lambda: new.ask("GET", f"{SESSION}/buffers").status == 200, every_s=0.2)
        expect(c.ask("GET", f"{SESSION}/buffers"), 200)  # for the overlap
        tag = expect(new.ask("GET", f"{SESSION}/buffers/{name}"), 200).headers["ETag"]
        with work.open(how) as ear, work.open(how) as waiting, Local(work.unix, secrets[1]) as peer:
            ear.sendall(work.head("GET", "/v1/feed?type=daemon.", token=secrets[1]))
            assert status(ear.recv(65536)) == 200
            waiting.sendall(work.head("GET", f"{SESSION}/buffers/{name}", f"If-None-Match: {tag}", "Prefer: wait=60",
                                      token=secrets[1]))
            mapped = expect(peer.map(name, "soak"), 200)
            for fd in mapped.fds:
                socket.close(fd)
            command(work.state, "revoke", name)
            until("it is refused", lambda: new.ask("GET", f"{SESSION}/buffers").status in (401, 429), every_s=0.5)
            rest(ear)  # its listener ends
            assert status(waiting.recv(65536)) == 401
            until("its mapping has ended", lambda: boss.ask("GET", f"/v1/leases/{mapped.json()['lease']}").status
                  == 404, every_s=0.2)
        expect(c.ask("GET", f"{SESSION}/buffers"), 401, 429)
        c.close()
        new.close()
        yield


def proxies(work, how, number):
    """Connections from a proxy with headers of the PROXY protocol, whole and broken, and headers from a client that is
    none."""
    rng = random.Random()
    while True:
        for kind in ("proxied", "proxied tls"):
            c = work.client(kind)
            with contextlib.closing(c):
                path = f"{SESSION}/buffers/proxied{number}/data"
                expect(c.ask("PUT", path, b"1" * 300000), 200, 201)
                assert expect(c.ask("GET", path), 200).body == b"1" * 300000
        wrong = [b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"PROXY TCP4 1.2.3 4 5 6\r\n",
                 SIGNATURE + b"\x31\x11\0\0", b"PROXY " + b"x" * 200, proxy_1("192.0.2.1")[:-2] + b"\n"]
        sock = work.open("plain", rng.choice(wrong), PROXY)
        assert status(rest(sock)) in (None, 400)
        sock.close()
        sock = work.open("plain", rng.choice([proxy_1("192.0.2.1"), proxy_2("192.0.2.1")]))  # this one may send none
        sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert status(rest(sock)) in (None, 400)
        sock.close()
        half = work.open("plain", proxy_2("192.0.2.1")[:rng.randrange(1, 28)], PROXY)
        end(rng, half)
        yield


def flood(work, how):
    """More requests than the bound permits at once: they are sent together, so that a slow machine's are too many,
    too."""
    with contextlib.closing(work.open(how, source=GREEDY)) as sock:
        sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 199 + b"GET /livez HTTP/1.1\r\nHost: "
                     b"localhost\r\nConnection: close\r\n\r\n")
        heads = rest(sock).split(b"HTTP/1.1 ")[1:]
    assert all(part[:3] == b"200" or part[:3] == b"429" and b"\r\nRetry-After: " in part for part in heads), heads


def greedy(work, how, number):
    """One client at its bounds: requests of an address without a token, open uploads and listeners of a token."""
    c, token = work.client(how, work.tokens["greedy"]), work.tokens["crowd"]
    while True:
        flood(work, how)
        paths = []
        for i in range(UPLOADS_MAX):
            reply = c.ask("POST", f"{SESSION}/uploads", {"buffer": f"g{number}-{i}", "bytes": 1000})
            paths.append(expect(reply, 201).headers["Location"])
        expect(c.ask("POST", f"{SESSION}/uploads", {"buffer": f"g{number}", "bytes": 1000}), 429,
               code="too_many_requests")
        for path in paths:
            expect(c.ask("DELETE", path), 204)
        with contextlib.ExitStack() as ears:
            answers = []
            while 429 not in answers:  # those of the turn before may not all be gone
                assert len(answers) <= LISTENERS_MAX, answers
                ear = work.open(how)
                ears.enter_context(contextlib.closing(ear))
                ear.sendall(work.head("GET", "/v1/feed?type=daemon.", token=token))
                answers.append(status(ear.recv(65536)))
                assert answers[-1] in (200, 429), answers
        yield
