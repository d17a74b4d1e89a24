"""Models in several files: the buffer NAME.index has a document that names the buffer of each file; doc/models.md
describes it. The buffers of another version have other names, which never come back: what an old document names is
there or is not found, and is never another version's. gpubuf put DIR NAME (src/cli/transfer/put_model.c) does what put
does here."""
from __future__ import annotations

import json
import mmap
import os
import re
import struct
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

from .errors import BadArgument, BrokenAnswer, BufferNotFound, Error, InvalidName, Unreachable, Unsupported
from .types import ModelPut, Put

if TYPE_CHECKING:
    from .client import Client

INDEX_FILE, ONE_FILE, ENDING = "model.safetensors.index.json", "model.safetensors", ".safetensors"
HEADER_BYTES = 100_000_000  # as the format says
LENGTH = struct.Struct("<Q")
UNTOUCHED = "nothing was uploaded"

MARK, FORM = "gpubuf_model", 1
DOCUMENT_BYTES = 64 << 20  # a buffer that is longer is no document
TIMES = 4  # that a model is read which is replaced meanwhile
T = TypeVar("T")


class File(NamedTuple):
    """A file of a model, and the buffer that has it."""

    buffer: str
    file: str


class Model(NamedTuple):
    """etag: of the document."""

    name: str
    etag: str
    files: List[File]


def _files(document: Any) -> List[File]:
    return [File(str(shard["buffer"]), str(shard["file"])) for shard in document["shards"]]


def find(client: "Client", name: str) -> Optional[Model]:
    """The model that is called so; None if there is none."""
    try:
        answer = client._ask("GET", client._below("buffers", name + ".index", "data") + "?format=raw", {})
    except (BufferNotFound, InvalidName):  # a name that is too long for an index is no model's
        return None
    if answer.length > DOCUMENT_BYTES:
        answer.close()
        return None
    text = answer.read()
    try:
        document = json.loads(text)
        form = document[MARK]
        files = _files(document) if form == FORM else []
    except (ValueError, LookupError, TypeError):
        return None
    if isinstance(form, int) and form > FORM:
        raise Unsupported(f"the model \"{name}\" was put by a newer gpubuf than this one")
    return Model(name, answer.header("ETag") or "", files) if files else None


def of_file(model: Model, file: File, work: Callable[[str], T]) -> T:
    """work(buffer). BufferNotFound says which file of the model is missing."""
    try:
        return work(file.buffer)
    except BufferNotFound as e:
        raise BufferNotFound(f"the model \"{model.name}\" is not whole: its file {file.file} is missing, for which "
                             f"there is no buffer \"{file.buffer}\"; gpubuf put makes it whole again") from e


def whole(client: "Client", name: str, missing: BufferNotFound, work: Callable[[Model], T]) -> T:
    """work(model), and again if one of its files was missing because another version had taken the model's place.
    missing: there is no buffer of that name; it is raised if there is no model either."""
    model = find(client, name)
    if model is None:
        raise missing
    for turn in range(TIMES):
        try:
            return work(model)
        except BufferNotFound:
            now = find(client, name)
            if now is None or now.etag == model.etag or turn + 1 == TIMES:
                raise
            model = now
    raise missing


# --- put: the folder --------------------------------------------------------------------------------------------------


class _Source:
    """A file of a model in a folder. Its bytes are mapped, not read."""

    def __init__(self, path: str, file: str, stack: ExitStack) -> None:
        self.file, self.path = file, path
        try:
            with open(path, "rb") as opened:
                whole = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as e:
            raise BadArgument(f"{path} cannot be read: {e}; {UNTOUCHED}") from e
        self.view = stack.enter_context(memoryview(stack.enter_context(whole)))
        self.tensors = self._header()

    def _header(self) -> List[str]:
        """The names of the tensors. BadArgument: it is none of the format's, or is not whole."""
        front, size = bytes(self.view[: LENGTH.size + 1]), len(self.view)
        n = LENGTH.unpack_from(front)[0] if len(front) > LENGTH.size else 0
        if n > HEADER_BYTES or front[LENGTH.size :] != b"{":
            raise BadArgument(f"{self.path} is no safetensors file; {UNTOUCHED}")
        try:
            parsed = json.loads(bytes(self.view[LENGTH.size : LENGTH.size + n]))
            parsed.pop("__metadata__", None)
            end = max((int(entry["data_offsets"][1]) for entry in parsed.values()), default=0)
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            raise BadArgument(f"the header of {self.path} is damaged: {e}; {UNTOUCHED}") from e
        if LENGTH.size + n + end != size:
            raise BadArgument(f"{self.path} has {size} bytes, and {LENGTH.size + n + end} by its header; {UNTOUCHED}")
        return list(parsed)


def _index(folder: str) -> Tuple[str, Dict[str, str]]:
    """The text of the folder's index, and the file of each tensor by it."""
    path = os.path.join(folder, INDEX_FILE)
    try:
        with open(path, encoding="utf-8") as opened:
            text = opened.read()
        where = json.loads(text)["weight_map"]
        files = {str(tensor): str(file) for tensor, file in where.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as e:
        raise BadArgument(f"{path} does not name the files of a model: {e!r}; {UNTOUCHED}") from e
    for file in files.values():
        if not file or os.path.isabs(file) or {"", ".", ".."} & set(file.split("/")):
            raise BadArgument(f"{path}: {file!r} is no file in this folder; {UNTOUCHED}")
    if not files:
        raise BadArgument(f"{path} names no file; {UNTOUCHED}")
    return text, files


def _files_of(folder: str) -> Tuple[Optional[str], Dict[str, str], List[str]]:
    """The index and what it says, and the files of the model in the order of their names."""
    if os.path.isfile(folder):
        return None, {}, [""]
    if os.path.exists(os.path.join(folder, INDEX_FILE)):
        text, files = _index(folder)
        return text, files, sorted(set(files.values()))
    try:
        found = sorted(file for file in os.listdir(folder) if file.endswith(ENDING) and not file.startswith("."))
    except OSError as e:
        raise BadArgument(f"{folder} cannot be read: {e}") from e
    chosen = [ONE_FILE] if ONE_FILE in found else found
    if len(chosen) != 1:
        raise BadArgument(f"{folder} has {len(found)} files that end in {ENDING}, and no {INDEX_FILE} that names those "
                          "of the model")
    return None, {}, chosen


def _compare(sources: List[_Source], files: Mapping[str, str]) -> None:
    places: Dict[str, str] = {}
    for source in sources:
        for tensor in source.tensors:
            if places.setdefault(tensor, source.file) != source.file:
                raise BadArgument(f"{tensor!r} is a tensor of {places[tensor]} and of {source.file}; {UNTOUCHED}")
    for tensor, file in files.items():
        if places.get(tensor) != file:
            raise BadArgument(f"{INDEX_FILE} says that {file} has the tensor {tensor!r}, which is "
                              f"{f'in {places[tensor]}' if tensor in places else 'in no file'}; {UNTOUCHED}")


# --- put: the daemon --------------------------------------------------------------------------------------------------


def _version(name: str, buffer: str) -> int:
    """The version of the model that a buffer belongs to by its name: 1 of "m.00001", 2 of "m.00001.v2"; 0: of none."""
    found = re.fullmatch(re.escape(name) + r"\.[0-9]{5}(?:\.v([1-9][0-9]*))?", buffer)
    return int(found[1] or 1) if found else 0


class _Putting:
    """The upload of a model in several files."""

    def __init__(self, client: "Client", name: str, query: Dict[str, Any], wait: Optional[float]) -> None:
        self._client, self._name, self._query, self._wait = client, name, query, wait
        self._made: List[str] = []
        self._former = find(client, name)
        items = client.list(prefix=name)
        if any(item["name"] == name for item in items):
            raise BadArgument(f"\"{name}\" is a buffer, and this model would be others beside it: delete it first; "
                              f"{UNTOUCHED}")
        self.version = 1 + max((_version(name, item["name"]) for item in items), default=0)

    def put(self, sources: List[_Source], index: str) -> List[Put]:
        names = [f"{self._name}.{i:05d}" + (f".v{self.version}" if self.version > 1 else "")
                 for i in range(1, len(sources) + 1)]
        try:
            done = [self._file(name, source) for name, source in zip(names, sources)]
            self._publish([{"buffer": name, "file": source.file, "bytes": len(source.view),
                            "tensors": len(source.tensors)} for name, source in zip(names, sources)], index)
        except BaseException:
            for name in self._made:
                self._drop(name)
            raise
        for file in self._former.files if self._former is not None else []:
            if _version(self._name, file.buffer):
                self._drop(file.buffer)  # who maps it keeps it
        return done

    def _file(self, name: str, source: _Source) -> Put:
        self._made.append(name)
        return self._client._put_table(name, [source.view], self._wait, self._query, "*")

    def _drop(self, name: str) -> None:
        try:
            self._client.delete(name, when="unmapped", missing_ok=True)
        except Error:
            pass  # the error of the upload is raised, or the new model is there

    def _publish(self, shards: List[Dict[str, Any]], text: str) -> None:
        """The one step before which readers have the old model, and behind which they have the new."""
        document = json.dumps({MARK: FORM, "version": self.version, "shards": shards,
                               "index": {"file": INDEX_FILE, "text": text}}).encode()
        former, more = self._former, {key: self._query[key] for key in ("durability", "spill") if key in self._query}
        try:
            if former is None:
                self._client.put(self._name + ".index", document, if_none_match="*", kind="pageable", **more)
            else:
                self._client.put(self._name + ".index", document, if_match=former.etag, **more)
        except (Unreachable, BrokenAnswer):
            # It may be there. If the daemon does not say, all stays as it is.
            self._made, made = [], self._made
            if self._text() != document:
                self._made = made
                raise

    def _text(self) -> Optional[bytes]:
        try:
            return bytes(self._client.get(self._name + ".index", raw=True))
        except BufferNotFound:
            return None


def put(client: "Client", folder: str, name: str, query: Dict[str, Any], wait: Optional[float]) -> ModelPut:
    with ExitStack() as stack:
        index, files, chosen = _files_of(folder)
        sources = [_Source(os.path.join(folder, file) if file else folder, file or os.path.basename(folder), stack)
                   for file in chosen]
        _compare(sources, files)
        version: Optional[int] = None
        if index is not None and len(sources) > 1:
            putting = _Putting(client, name, query, wait)
            made, version = putting.put(sources, index), putting.version
        elif find(client, name) is not None:
            raise BadArgument(f"\"{name}\" is a model of several files, and this one of a single file would be a "
                              f"buffer beside it: delete its index and its files first; {UNTOUCHED}")
        else:
            made = [client._put_table(name, [sources[0].view], wait, query)]
        return ModelPut(name=name, version=version, tensors=sum(len(source.tensors) for source in sources),
                        bytes=sum(len(source.view) for source in sources), shards=made)
