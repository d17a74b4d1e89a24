"""Ports of the loopback interface for servers that take theirs as an option."""
import contextlib
import random
import socket

# Outside of what the kernel gives to connections and to listeners that name none: nothing takes such a port while its
# server restarts.
FIRST, LAST = 12000, 32000


def _held(port):
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def free_ports(count):
    """Different ports on which nothing listens."""
    found = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = random.SystemRandom().randrange(FIRST, LAST)
            if held := _held(port):
                stack.enter_context(held)
                found.append(port)
    return found


def free_port():
    return free_ports(1)[0]


def free_url(scheme="http"):
    return f"{scheme}://127.0.0.1:{free_port()}"
