"""Buffers as files of fsspec, for pandas and other libraries: ``gpubuf://session/name``.

``pandas.read_parquet("gpubuf://default/table", storage_options={"socket": "/run/gpubufd.sock"})``. The options are the
arguments of :class:`gpubuf.Client`, and without them its defaults hold. Needs fsspec (``pip install
'./src/python[fsspec]'``), which finds this module by the package's entry point. A session is a folder, which ``mkdir``
makes; a buffer is a file of its bytes. There are no folders in a session.
"""
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Tuple, cast

from fsspec.spec import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AbstractBufferedFile, AbstractFileSystem)

from .client import Client
from .errors import (BadArgument, BufferNotFound, InvalidName, NotFound, PreconditionFailed, RangeNotSatisfiable,
                     SessionExists, SessionNotFound, UriTooLong)
from .types import ListedBuffer, ListedSession

PROTOCOL = "gpubuf"
OPTIONS = ("url", "address", "socket", "token", "timeout", "cacert", "cert", "key", "plain_token", "retries")
OF_FSSPEC = {"asynchronous", "loop", "batch_size", "use_listings_cache", "listings_expiry_time", "max_paths",
             "skip_instance_cache"}


class FileSystem(AbstractFileSystem):  # type: ignore[misc,unused-ignore]
    """The sessions and buffers of one daemon. options: those of :class:`gpubuf.Client`, and those that fsspec takes for
    every file system; others raise BadArgument. session is of the path. ``address`` is ``url``, for functions such as
    pandas.read_parquet that have a parameter url themselves."""

    protocol = PROTOCOL
    root_marker = ""

    def __init__(self, *args: Any, url: Optional[str] = None, address: Optional[str] = None,
                 socket: Optional[str] = None, token: Optional[str] = None, timeout: float = 120.0,
                 cacert: Optional[str] = None, cert: Optional[str] = None, key: Optional[str] = None,
                 plain_token: bool = False, retries: int = 3, **more: Any) -> None:
        wrong = sorted(more.keys() - OF_FSSPEC)
        if "session" in wrong:
            raise BadArgument(f"session is no option: it is of the path, {PROTOCOL}://SESSION/NAME")
        if wrong:
            raise BadArgument(f"there is no option {wrong[0]!r}; there are {', '.join(OPTIONS)}, and those of fsspec")
        if url is not None and address is not None:
            raise BadArgument("url and address are one option: give one of them")
        super().__init__(*args, **more)
        self._client = Client(url if url is not None else address, socket, token, timeout=timeout, cacert=cacert,
                              cert=cert, key=key, plain_token=plain_token, retries=retries)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        return (text[len(PROTOCOL) + 3 :] if text.startswith(PROTOCOL + "://") else text).strip("/")

    def _split(self, path: str) -> Tuple[str, str]:
        session, _, name = str(self._strip_protocol(path)).partition("/")
        return session, name

    def _of(self, path: str) -> Tuple[Client, str]:
        """The session and the name of a buffer that is to be written."""
        session, name = self._split(path)
        if not _can_be(session) or not _can_be(name):
            raise BadArgument(f"{path!r} names no buffer: write {PROTOCOL}://SESSION/NAME")
        return self._client.with_session(session), name

    def _found(self, path: str) -> Tuple[Client, str]:
        """The session and the name of a buffer that is there, if the daemon has it."""
        session, name = self._split(path)
        if session and not name and self.isdir(path):
            raise IsADirectoryError(path)
        if not _can_be(session) or not _can_be(name):
            raise FileNotFoundError(path)
        return self._client.with_session(session), name

    @staticmethod
    def _entry(session: str, buffer: ListedBuffer) -> Dict[str, Any]:
        return {"name": f"{session}/{buffer['name']}", "size": buffer["bytes"], "type": "file",
                "created": buffer["created_at"], "modified": buffer["updated_at"], "etag": buffer.get("etag"),
                "dtype": buffer["dtype"], "shape": buffer["shape"]}

    @staticmethod
    def _folder_entry(session: ListedSession) -> Dict[str, Any]:
        return {"name": session["name"], "size": 0, "type": "directory", "created": session["created_at"],
                "modified": session["updated_at"]}

    def info(self, path: str, **more: Any) -> Dict[str, Any]:
        """Size, type and layout of a buffer or a session. Raises FileNotFoundError."""
        session, name = self._split(path)
        if name:
            client, name = self._found(path)
            with _there(path):
                return self._entry(session, client.info(name))
        if session:
            if not _can_be(session):
                raise FileNotFoundError(path)
            with _there(path):
                return self._folder_entry(self._client.sessions.get(session))
        return {"name": session, "size": 0, "type": "directory"}

    def ls(self, path: str, detail: bool = True, **more: Any) -> List[Any]:
        """The sessions, or the buffers of a session."""
        session, name = self._split(path)
        if name:
            entries = [self.info(path)]
        elif session:
            if not _can_be(session):
                raise FileNotFoundError(path)
            with _there(path):
                entries = [self._entry(session, buffer) for buffer in self._client.with_session(session).list()]
        else:
            entries = [self._folder_entry(found) for found in self._client.sessions.list()]
        return entries if detail else [entry["name"] for entry in entries]

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True,
              cache_options: Any = None, **more: Any) -> Any:
        if mode not in ("rb", "wb", "xb"):
            raise BadArgument(f"a buffer is opened with mode rb or wb, or xb for a new one, not {mode!r}: it is "
                              "written whole")
        return _File(self, path, mode, "default" if block_size is None else block_size, autocommit,
                     cache_options=cache_options, **more)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **more: Any) -> bytes:
        """The bytes of a buffer from start to end; negative numbers count from its end."""
        client, name = self._found(path)
        with _there(path):
            if start is None and end is None:
                return cast(bytes, client.get(name, raw=True))
            first, last, _ = slice(start, end).indices(self.info(path)["size"])
            return cast(bytes, client.get(name, raw=True, offset=first, length=last - first)) if last > first else b""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        """Puts the bytes; with mode="create" only if there is no such buffer (else FileExistsError)."""
        client, name = self._of(path)
        _put(path, client, name, value, mode == "create")

    def cp_file(self, path1: str, path2: str, **more: Any) -> None:
        """Copies a buffer on the device. Of a session, makes one of the other name if it is not there: copy with
        recursive=True copies its buffers."""
        session, name = self._split(path1)
        if not name:
            self.info(path1)
            return self.makedirs(path2, exist_ok=True)
        source_client, name = self._found(path1)
        client, target = self._of(path2)
        with _there(path1):
            source = source_client.info(name)
        if (session, name) == (client.session, target):
            return None
        try:
            there = client.info(target) if target in client else None
            if there is not None and there["bytes"] != source["bytes"]:
                client.delete(target)  # a copy keeps the size of what is there
            made = client.copy(f"{session}/{name}", target)
            if (made["dtype"], made["shape"]) != (source["dtype"], source["shape"]):
                client.update(target, dtype=source["dtype"], shape=source["shape"])
        except NotFound as e:
            raise FileNotFoundError(path2 if isinstance(e, SessionNotFound) else path1) from e
        return None

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Deletes buffers. With recursive=True a session loses all of them, and stays."""
        for one in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if not recursive or self._split(one)[1]:
                self._rm(one)

    def _rm(self, path: str) -> None:
        session, name = self._split(path)
        client, name = self._found(path) if name else self._of(path)
        with _there(path):
            client.delete(name)

    def mkdir(self, path: str, create_parents: bool = True, **more: Any) -> None:
        """Makes a session. Raises FileExistsError if it exists, and BadArgument for a folder in a session."""
        try:
            self._client.sessions.create(self._folder(path))
        except SessionExists as e:
            raise FileExistsError(path) from e

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a session; with exist_ok also if there is one."""
        session = self._folder(path)
        if not exist_ok:
            self.mkdir(path)
        elif not self.isdir(session):  # a token may be of that session alone
            self._client.sessions.create(session, exist_ok=True)

    def rmdir(self, path: str) -> None:
        """Raises BadArgument: a session goes with all that is in it, and that is Client.sessions.delete."""
        raise BadArgument(f"{path!r} is not removed as a folder: client.sessions.delete removes a session with all its "
                          "buffers")

    def _folder(self, path: str) -> str:
        session, name = self._split(path)
        if not session or name:
            raise BadArgument(f"{path!r} names no session: write {PROTOCOL}://SESSION; a session has no folders")
        return session

    def created(self, path: str) -> Any:
        """When the buffer or the session was made."""
        return _moment(self.info(path)["created"])

    def modified(self, path: str) -> Any:
        """When the buffer or the session was last changed."""
        return _moment(self.info(path)["modified"])


def _can_be(name: str) -> bool:
    """False of what cannot be a part of a path; the daemon says what else is no name."""
    return name not in ("", ".", "..") and "/" not in name


@contextmanager
def _there(path: str) -> Iterator[None]:
    """FileNotFoundError for what is not there, or cannot be because the daemon permits no such name."""
    try:
        yield
    except (NotFound, InvalidName, UriTooLong) as e:
        raise FileNotFoundError(path) from e


def _put(path: str, client: Client, name: str, data: Any, new: bool) -> None:
    try:
        client.put(name, data, dtype="uint8", if_none_match="*" if new else None)
    except SessionNotFound as e:
        raise FileNotFoundError(path) from e
    except PreconditionFailed as e:
        raise FileExistsError(path) from e


def _moment(text: str) -> Any:
    from datetime import datetime, timezone

    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)


class _File(AbstractBufferedFile):  # type: ignore[misc,unused-ignore]
    """A buffer that is read by ranges of one content, or written whole when it is closed."""

    closed: bool

    def __init__(self, fs: FileSystem, path: str, *args: Any, **more: Any) -> None:
        self._pieces: List[bytes] = []
        self._path, mode = path, args[0]
        # Before the file can be closed, which needs them.
        self._client, self._name = (fs._found if mode == "rb" else fs._of)(path)
        if mode != "rb":
            self._look(mode == "xb")
        super().__init__(fs, path, *args, **more)
        if self.mode == "rb":
            head = self._client._ask("HEAD", self._client._below("buffers", self._name, "data") + "?format=raw", {})
            head.finish()
            self._tag = head.header("ETag") or ""

    def _look(self, new: bool) -> None:
        """Says before anything is written that the session is missing, or that a buffer exists which is to be new; the
        put says it again if that changed meanwhile."""
        try:
            if not new:
                self._client.sessions.get()
                return
            self._client.info(self._name)
        except BufferNotFound:
            return
        except SessionNotFound as e:
            raise FileNotFoundError(self._path) from e
        raise FileExistsError(self._path)

    def _fetch_range(self, start: int, end: int) -> bytes:
        tag = self._tag if self._tag and not self._tag.startswith("W/") else None
        if end <= start:
            return b""
        try:
            return cast(bytes, self._client.get(self._name, raw=True, offset=start, length=end - start, if_match=tag))
        except RangeNotSatisfiable as e:  # the range lay within the file that was opened
            raise PreconditionFailed(f"the buffer \"{self._name}\" was replaced by a shorter one while the file was "
                                     "read: open it again") from e

    def __exit__(self, kind: Any, *more: Any) -> None:
        if kind is not None and self.mode != "rb" and not self.closed:
            self.discard()
            self.closed = True  # what was written before the exception is not whole, and is not put
        else:
            super().__exit__(kind, *more)

    def _initiate_upload(self) -> None:
        self._pieces = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self._pieces.append(self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Puts what was written."""
        _put(self._path, self._client, self._name, b"".join(self._pieces), self.mode == "xb")
        self._pieces = []

    def discard(self) -> None:
        """Drops what was written; the buffer is as it was."""
        self._pieces = []
