"""Models in several files: the buffer NAME.index has a document that names the buffer of each file; doc/models.md
describes it. The buffers of another version have other names, which never come back: what an old document names is
there or is not found, and is never another version's."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Optional, TypeVar

from .errors import BufferNotFound, InvalidName, Unsupported

if TYPE_CHECKING:
    from .client import Client

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
