"""Buffers as files of fsspec, for pandas and other libraries: ``gpubuf://session/name``.

``pandas.read_parquet("gpubuf://default/table", storage_options={"socket": "/run/gpubufd.sock"})``. The options are the arguments of
:class:`gpubuf.Client`, and without them its defaults hold. Needs fsspec (``pip install './src/python[fsspec]'``), which finds this module by the
package's entry point. A session is a folder, which ``mkdir`` makes; a buffer is a file of its bytes. There are no folders in a session.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, cast

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-not-found,import-untyped,unused-ignore]

from .client import Client
from .errors import BadArgument, BufferNotFound, NotFound, PreconditionFailed, RangeNotSatisfiable, SessionExists, SessionNotFound
from .types import Buffer

PROTOCOL = "gpubuf"
OPTIONS = ("url", "address", "socket", "token", "timeout", "cacert", "cert", "key", "plain_token", "retries")
OF_FSSPEC = {"asynchronous", "loop", "batch_size", "use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache"}


class FileSystem(AbstractFileSystem):  # type: ignore[misc,unused-ignore]
    """The sessions and buffers of one daemon. options: those of :class:`gpubuf.Client`, and those that fsspec takes for every file
    system; others raise BadArgument. session is of the path. ``address`` is ``url``, for functions such as pandas.read_parquet that have a
    parameter url themselves."""

    protocol = PROTOCOL
    root_marker = ""

    def __init__(self, *args: Any, url: Optional[str] = None, address: Optional[str] = None, socket: Optional[str] = None, token: Optional[str] = None, timeout: float = 120.0,
                 cacert: Optional[str] = None, cert: Optional[str] = None, key: Optional[str] = None, plain_token: bool = False, retries: int = 3,
                 **more: Any) -> None:
        wrong = sorted(more.keys() - OF_FSSPEC)
        if "session" in wrong:
            raise BadArgument(f"session is no option: it is of the path, {PROTOCOL}://SESSION/NAME")
        if wrong:
            raise BadArgument(f"there is no option {wrong[0]!r}; there are {', '.join(OPTIONS)}, and those of fsspec")
        if url is not None and address is not None:
            raise BadArgument("url and address are one option: give one of them")
        super().__init__(*args, **more)
        self._client = Client(url if url is not None else address, socket, token, timeout=timeout, cacert=cacert, cert=cert, key=key, plain_token=plain_token, retries=retries)

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
        session, name = self._split(path)
        if not session or not name or "/" in name:
            raise BadArgument(f"{path!r} names no buffer: write {PROTOCOL}://SESSION/NAME")
        return self._client.with_session(session), name

    @staticmethod
    def _entry(session: str, buffer: Buffer) -> Dict[str, Any]:
        return {"name": f"{session}/{buffer['name']}", "size": buffer["bytes"], "type": "file", "created": buffer["created_at"],
                "modified": buffer["updated_at"], "etag": buffer.get("etag"), "dtype": buffer["dtype"], "shape": buffer["shape"]}

    def info(self, path: str, **more: Any) -> Dict[str, Any]:
        """Size, type and layout of a buffer or a session. Raises FileNotFoundError."""
        session, name = self._split(path)
        try:
            if name:
                client, name = self._of(path)
                return self._entry(session, client.info(name))
            if session:
                self._client.sessions.get(session)
        except NotFound as e:
            raise FileNotFoundError(path) from e
        return {"name": session, "size": 0, "type": "directory"}

    def ls(self, path: str, detail: bool = True, **more: Any) -> List[Any]:
        """The sessions, or the buffers of a session."""
        session, name = self._split(path)
        if name:
            entries = [self.info(path)]
        elif session:
            try:
                entries = [self._entry(session, buffer) for buffer in self._client.with_session(session).list()]
            except SessionNotFound as e:
                raise FileNotFoundError(path) from e
        else:
            entries = [{"name": found["name"], "size": 0, "type": "directory"} for found in self._client.sessions.list()]
        return entries if detail else [entry["name"] for entry in entries]

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None, **more: Any) -> Any:
        if mode not in ("rb", "wb"):
            raise BadArgument(f"a buffer is opened with mode rb or wb, not {mode!r}: it is written whole")
        return _File(self, path, mode, "default" if block_size is None else block_size, autocommit, cache_options=cache_options, **more)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **more: Any) -> bytes:
        """The bytes of a buffer from start to end; negative numbers count from its end."""
        client, name = self._of(path)
        try:
            if start is None and end is None:
                return cast(bytes, client.get(name, raw=True))
            first, last, _ = slice(start, end).indices(self.info(path)["size"])
            return cast(bytes, client.get(name, raw=True, offset=first, length=last - first)) if last > first else b""
        except BufferNotFound as e:
            raise FileNotFoundError(path) from e

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        """Puts the bytes; with mode="create" only if there is no such buffer."""
        client, name = self._of(path)
        client.put(name, value, dtype="uint8", if_none_match="*" if mode == "create" else None)

    def cp_file(self, path1: str, path2: str, **more: Any) -> None:
        """Copies a buffer on the device."""
        session, name = self._split(path1)
        client, target = self._of(path2)
        try:
            source = self._client.with_session(session).info(name)
            if (session, name) == (client.session, target):
                return
            there = client.info(target) if target in client else None
            if there is not None and there["bytes"] != source["bytes"]:
                client.delete(target)  # a copy keeps the size of what is there
            made = client.copy(f"{session}/{name}", target)
            if (made["dtype"], made["shape"]) != (source["dtype"], source["shape"]):
                client.update(target, dtype=source["dtype"], shape=source["shape"])
        except NotFound as e:
            raise FileNotFoundError(path1) from e

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Deletes buffers. With recursive=True a session loses all of them, and stays."""
        for one in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
            if not recursive or self._split(one)[1]:
                self._rm(one)

    def _rm(self, path: str) -> None:
        client, name = self._of(path)
        try:
            client.delete(name)
        except NotFound as e:
            raise FileNotFoundError(path) from e

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
        raise BadArgument(f"{path!r} is not removed as a folder: client.sessions.delete removes a session with all its buffers")

    def _folder(self, path: str) -> str:
        session, name = self._split(path)
        if not session or name:
            raise BadArgument(f"{path!r} names no session: write {PROTOCOL}://SESSION; a session has no folders")
        return session

    def created(self, path: str) -> Any:
        """When the buffer was made."""
        return _moment(self.info(path)["created"])

    def modified(self, path: str) -> Any:
        """When the buffer was last changed."""
        return _moment(self.info(path)["modified"])


def _moment(text: str) -> Any:
    from datetime import datetime, timezone

    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)


class _File(AbstractBufferedFile):  # type: ignore[misc,unused-ignore]
    """A buffer that is read by ranges of one content, or written whole when it is closed."""

    closed: bool

    def __init__(self, fs: FileSystem, path: str, *args: Any, **more: Any) -> None:
        self._pieces: List[bytes] = []
        self._client, self._name = fs._of(path)  # before the file can be closed, which needs them
        super().__init__(fs, path, *args, **more)
        if self.mode == "rb":
            head = self._client._ask("HEAD", self._client._below("buffers", self._name, "data") + "?format=raw", {})
            head.finish()
            self._tag = head.header("ETag") or ""

    def _fetch_range(self, start: int, end: int) -> bytes:
        tag = self._tag if self._tag and not self._tag.startswith("W/") else None
        if end <= start:
            return b""
        try:
            return cast(bytes, self._client.get(self._name, raw=True, offset=start, length=end - start, if_match=tag))
        except RangeNotSatisfiable as e:  # the range lay within the file that was opened
            raise PreconditionFailed(f"the buffer \"{self._name}\" was replaced by a shorter one while the file was read: open it again") from e

    def __exit__(self, kind: Any, *more: Any) -> None:
        if kind is not None and self.mode == "wb" and not self.closed:
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
        self._client.put(self._name, b"".join(self._pieces), dtype="uint8")
        self._pieces = []

    def discard(self) -> None:
        """Drops what was written; the buffer is as it was."""
        self._pieces = []
