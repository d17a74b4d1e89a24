"""Buffers as files of fsspec, for pandas and other libraries: ``gpubuf://session/name``.

``pandas.read_parquet("gpubuf://default/table", storage_options={"socket": "/run/gpubufd.sock"})``. The options are the arguments of
:class:`gpubuf.Client`, and without them its defaults hold. Needs fsspec (``pip install gpubuf[fsspec]``), which finds this module by the
package's entry point. A session is a folder; a buffer is a file of its bytes. Folders cannot be made in a session.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, cast

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-not-found,import-untyped,unused-ignore]

from .client import Client
from .errors import BadArgument, BufferNotFound, NotFound, SessionNotFound
from .types import Buffer

PROTOCOL = "gpubuf"


class FileSystem(AbstractFileSystem):  # type: ignore[misc,unused-ignore]
    """The sessions and buffers of one daemon. options: those of :class:`gpubuf.Client`; session is of the path."""

    protocol = PROTOCOL
    root_marker = ""

    def __init__(self, *args: Any, url: Optional[str] = None, socket: Optional[str] = None, token: Optional[str] = None, timeout: float = 120.0,
                 cacert: Optional[str] = None, cert: Optional[str] = None, key: Optional[str] = None, plain_token: bool = False, retries: int = 3,
                 **more: Any) -> None:
        super().__init__(*args, **more)
        self._client = Client(url, socket, token, timeout=timeout, cacert=cacert, cert=cert, key=key, plain_token=plain_token, retries=retries)

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

    def _rm(self, path: str) -> None:
        client, name = self._of(path)
        try:
            client.delete(name)
        except NotFound as e:
            raise FileNotFoundError(path) from e

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
        return cast(bytes, self._client.get(self._name, raw=True, offset=start, length=end - start, if_match=tag)) if end > start else b""

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
