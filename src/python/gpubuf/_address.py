"""The daemon's address: from the caller's arguments, the environment, or a daemon's default socket."""
from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
from typing import List, NamedTuple, Optional
from urllib.parse import unquote, urlsplit

from .errors import BadArgument

DEFAULT_PORT = 7070
DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
BARE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(:[0-9]+)?/?")


class Address(NamedTuple):
    """unix: the socket's path, or None if host and port apply. prefix comes before all request paths."""

    unix: Optional[str]
    host: str
    port: int
    tls: bool
    prefix: str

    def __str__(self) -> str:
        if self.unix is not None:
            return "unix://" + self.unix
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{name}:{self.port}{self.prefix}"


def of_socket(path: str) -> Address:
    """Accepts a path, or unix:///PATH."""
    text = os.fspath(path)
    return of_url(text) if text.startswith("unix:") else Address(text, "localhost", 0, False, "")


def of_url(url: str) -> Address:
    """Accepts http://HOST[:PORT][/PREFIX], https:// likewise, and unix:///PATH; HOST[:PORT] means
    http://HOST:7070."""
    if "@" in re.split("[/?#]", url.partition("://")[2] or url)[0]:  # what stands before it is not repeated
        raise BadArgument("the address has a user or a password before its \"@\"; a token goes into token= or "
                          "GPUBUF_TOKEN")
    bare = BARE.fullmatch(url)
    parts = urlsplit("http://" + url if bare else url)
    if parts.scheme == "unix":
        if parts.netloc or not parts.path.startswith("/"):
            raise BadArgument(f"{url!r} names no socket: write unix:///path/to/gpubufd.sock")
        return Address(unquote(parts.path), "localhost", 0, False, "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadArgument(f"{url!r} is no address of a daemon: write [http://]HOST:PORT, https://HOST:PORT or "
                          "unix:///path/to/gpubufd.sock")
    if parts.query or parts.fragment:
        raise BadArgument(f"{url!r} has more than scheme, host, port and path; a token goes into token= or "
                          "GPUBUF_TOKEN")
    tls = parts.scheme == "https"
    try:
        port = parts.port if parts.port is not None else DEFAULT_PORT if bare else 443 if tls else 80
    except ValueError as e:
        raise BadArgument(f"{url!r} has no port from 0 to 65535: {e}") from None
    return Address(None, parts.hostname, port, tls, parts.path.rstrip("/"))


def is_loopback(address: Address) -> bool:
    """True if no other machine is on the way: a loopback address, localhost, or a UNIX socket."""
    if address.unix is not None or address.host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False


def _candidates() -> List[str]:
    """The default sockets of daemons, in libgpubuf's order: this user's state directory, systemd's socket, the
    machine's daemon."""
    state = os.environ.get("XDG_STATE_HOME")
    home = os.environ.get("HOME")
    folders = [state] if state else []
    if home:
        folders.append(os.path.join(home, ".local", "state"))
    return [os.path.join(folder, "gpubufd", "gpubufd.sock") for folder in folders] + ["/run/gpubufd.sock",
                                                                                      "/var/lib/gpubufd/gpubufd.sock"]


def listens(path: str) -> bool:
    """True if the socket accepts connections; a daemon that was killed leaves one that does not."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            probe.connect(path)
        return True
    except (OSError, ValueError):
        return False


def why_not(path: str, error: OSError) -> str:
    """The reason why a connection to the socket failed; if permission is denied, with the socket's mode and group."""
    said = error.strerror or str(error)
    if not isinstance(error, PermissionError):
        return said
    try:
        seen = os.stat(path)
    except OSError:
        return f"{said}: user {os.geteuid()} may not search a folder on the way to it"
    return (f"{said}: it is of mode {stat.S_IMODE(seen.st_mode):04o}, user {seen.st_uid} and group {seen.st_gid}, and "
            f"user {os.geteuid()} needs the right to write: join the group, or start gpubufd with --socket-group and "
            "--socket-mode")


def find_socket() -> Optional[str]:
    """The first default socket that accepts a connection of this user."""
    return next((path for path in _candidates() if listens(path)), None)


def map_socket(path: Optional[str], chosen: Address) -> Optional[str]:
    """The socket for mappings: the given one, the one for requests, or GPUBUF_SOCKET. None: search the default
    sockets."""
    named = (path if path is not None else chosen.unix if chosen.unix is not None else os.environ.get("GPUBUF_SOCKET")
             or None)
    return of_socket(named).unix if named is not None else None


def choose(url: Optional[str], path: Optional[str]) -> Address:
    """The address for requests, from the first of: the url, the socket, GPUBUF_URL, GPUBUF_SOCKET, a default socket,
    DEFAULT_URL."""
    if url is not None:
        return of_url(url)
    if path is not None:
        return of_socket(path)
    if os.environ.get("GPUBUF_URL"):
        return of_url(os.environ["GPUBUF_URL"])
    if os.environ.get("GPUBUF_SOCKET"):
        return of_socket(os.environ["GPUBUF_SOCKET"])
    found = find_socket()
    return of_socket(found) if found is not None else of_url(DEFAULT_URL)
