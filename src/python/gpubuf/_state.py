"""State dicts of torch: as buffers, one for each tensor, several at a time, or as one buffer of all.

The names of the former are those that an upload of a safetensors file gives: a buffer has its tensor's name, with _ for
characters that a name may not have. Where the names differ, the tensor's own is the label safetensors.name.
"""
from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping as MappingType
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, TypeVar, cast

import numpy as np

from . import _gpu, _models, _safetensors, _torch
from .errors import BadArgument, BadType, BufferNotFound
from .types import ListedBuffer, ListedTensor, Put

if TYPE_CHECKING:
    from .client import Client

LABEL = "safetensors.name"
THREADS_MAX = 64
T = TypeVar("T")


def buffer_name(name: str, prefix: str) -> str:
    """The buffer's name of a tensor."""
    full = re.sub(r"[^A-Za-z0-9._-]", "_", prefix + name)
    return full if full[:1].isalnum() else "x" + full


def own_name(buffer: ListedBuffer) -> str:
    """The tensor's name of a buffer."""
    return buffer["labels"].get(LABEL) or buffer["name"]


def each(work: Callable[..., T], jobs: Iterable[Tuple[Any, ...]], threads: int) -> List[T]:
    """work(*job) of each job, in order, by several threads. After an error the jobs that have not begun are left out,
    and it is raised."""
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= THREADS_MAX:
        raise BadArgument(f"threads is a whole number from 1 to {THREADS_MAX}, not {threads!r}")
    failed: List[BaseException] = []

    def one(job: Tuple[Any, ...]) -> Optional[T]:
        try:
            return work(*job) if not failed else None
        except BaseException as e:
            failed.append(e)
            return None

    with ThreadPoolExecutor(threads, "gpubuf-state") as pool:
        done = list(pool.map(one, jobs))
    if failed:
        raise failed[0]
    return cast(List[T], done)


def _check(tensors: Mapping[str, Any], prefix: str) -> None:
    if not isinstance(tensors, MappingType):
        also = f": give {type(tensors).__name__}.state_dict()" if callable(getattr(tensors, "state_dict", None)) else ""
        raise BadType(f"a state dict has names and tensors, and this is a {type(tensors).__name__}{also}")
    if not all(isinstance(name, str) for name in (prefix, *tensors)):
        raise BadType("the prefix and the names of a state dict are text")
    for name, tensor in tensors.items():
        if not hasattr(tensor, "__dlpack__") and not hasattr(tensor, "__array__"):
            raise BadType(f"{name!r} is a {type(tensor).__name__} and no tensor: put what is no tensor apart, as of "
                          "get_extra_state")


def put(client: "Client", tensors: Mapping[str, Any], prefix: str, threads: int, more: Dict[str, Any]) -> List[Put]:
    _check(tensors, prefix)
    names = {name: buffer_name(name, prefix) for name in tensors}
    twice = ([name for name, used in names.items() if list(names.values()).count(used) > 1] if len(set(names.values()))
             < len(names) else [])
    if twice:
        raise BadArgument(f"{' and '.join(map(repr, twice[:2]))} would be one buffer, \"{names[twice[0]]}\": rename "
                          "one of them")

    def one(name: str, tensor: Any) -> Put:
        made = client.put(names[name], tensor.contiguous() if _torch.is_tensor(tensor) else tensor, **more)
        label = name if name != names[name] else None
        if made["labels"].get(LABEL) != label:
            made = cast(Put, {**client.update(names[name], labels={LABEL: label}), "road": made["road"]})
        return made

    return each(one, tensors.items(), threads)


def _memory(tensor: Any) -> Any:
    """Tells tensors that are one: where the elements lie, and how. None for one without bytes."""
    if _torch.is_tensor(tensor):
        return (str(tensor.device), tensor.data_ptr(), str(tensor.dtype), tuple(tensor.shape),
                tensor.stride()) if tensor.numel() else None
    about = getattr(tensor, "__array_interface__", None)
    if not about or not tensor.size:
        return None
    return about["data"][0], about["typestr"], about["shape"], about["strides"]


def _permuted(array: Any, axes: Tuple[int, ...]) -> Any:
    return array.permute(axes) if _torch.is_tensor(array) else array.transpose(axes)


def _plain(array: Any) -> bool:
    return bool(array.is_contiguous() if _torch.is_tensor(array) else array.flags["C_CONTIGUOUS"])


def _in_memory(tensor: Any) -> Tuple[Any, Tuple[int, ...]]:
    """The elements in C order, as they lie in memory, and the order of the axes there. A tensor whose elements do not
    lie side by side is copied, and has no order."""
    own = _torch.is_tensor(tensor)
    strides = tensor.stride() if own else tensor.strides
    order = tuple(sorted(range(tensor.ndim), key=lambda axis: -strides[axis] if tensor.shape[axis] > 1 else -math.inf))
    lies = _permuted(tensor, order)
    if _plain(lies) and not _plain(tensor):
        return lies, order
    return tensor.contiguous() if own else tensor, ()


def pieces(tensors: Mapping[str, Any], metadata: Mapping[str, str], strides: bool) -> List[Any]:
    """A safetensors file of the state dict. Of tied tensors the first is stored, and the metadata has the others' names
    with its name, as safetensors' save_model writes them. strides: elements stay in the order that they have in
    memory."""
    _check(tensors, "")
    first: Dict[Any, str] = {}
    own: Dict[str, Any] = {}
    tied: Dict[str, str] = {}
    orders: Dict[str, Tuple[int, ...]] = {}
    for name, tensor in tensors.items():
        key = _memory(tensor)
        of = first.setdefault(key, name) if key is not None else name
        if of != name:
            tied[name] = of
        elif strides and (_torch.is_tensor(tensor) or isinstance(tensor, np.ndarray)):
            own[name], order = _in_memory(tensor)
            if order:
                orders[name] = order
        else:
            own[name] = tensor.contiguous() if _torch.is_tensor(tensor) else tensor
    if orders and _safetensors.ORDER in metadata:
        raise BadArgument(f"the metadata has the key {_safetensors.ORDER!r}, which strides=True writes: leave it out")
    if orders:
        metadata = {**metadata, _safetensors.ORDER: json.dumps(orders)}
    both = sorted({*tied, *own} & {*metadata})
    if both:
        raise BadArgument(f"the metadata has the key {both[0]!r}, which is the name of a tensor: rename it")
    return _safetensors.pieces_of({name: _gpu.payload_of(tensor) for name, tensor in own.items()},
                                  {**metadata, **tied})


def _put_below(buffer: ListedBuffer) -> str:
    """The prefix that a buffer was put below, as far as its label says."""
    label = buffer["labels"].get(LABEL)
    end = re.sub(r"[^A-Za-z0-9._-]", "_", label) if label else ""
    return buffer["name"][: -len(end)] if end and buffer["name"].endswith(end) else ""


def _found(client: "Client", prefix: str) -> Dict[str, ListedBuffer]:
    """The buffers by their tensors' names. Raises BadArgument if the prefix is of several state dicts, whose names
    would be mixed up."""
    if not isinstance(prefix, str):
        raise BadType(f"the prefix is text, not {prefix!r}")
    buffers = client.list(prefix=buffer_name("", prefix) if prefix else "")
    if prefix and not buffers:
        raise BufferNotFound(f"the session \"{client.session}\" has no buffer whose name begins with \"{prefix}\"")
    wanted, below = buffer_name("", prefix), {_put_below(buffer) for buffer in buffers} - {""}
    if wanted in below:
        buffers = [buffer for buffer in buffers if _put_below(buffer) in ("", wanted)]
    elif prefix and len(below) > 1:
        raise BadArgument(f"the prefix {prefix!r} is of several state dicts: give one of "
                          f"{', '.join(map(repr, sorted(below)))}")
    found: Dict[str, ListedBuffer] = {}
    for buffer in buffers:
        name = own_name(buffer)
        other = found.setdefault(name, buffer)
        if other is not buffer:
            raise BadArgument(f"the buffers \"{other['name']}\" and \"{buffer['name']}\" both have the tensor "
                              f"{name!r}: give the prefix of one of them "
                              f"(prefix={_put_below(other) or other['name']!r})")
    return found


def get_table(client: "Client", table: str, device: Any, out: Optional[Mapping[str, Any]],
              threads: int) -> Dict[str, Any]:
    """The tensors of a buffer or a model. A model that is replaced meanwhile is read again from its beginning."""
    for turn in range(_models.TIMES):
        listed = client.list_tensors(table)
        try:
            return _get_listed(client, table, listed, device, out, threads)
        except BufferNotFound:
            if turn + 1 == _models.TIMES or not any("buffer" in tensor for tensor in listed):
                raise
    raise AssertionError


def _get_permuted(client: "Client", buffer: str, name: str, out: Any, order: Tuple[int, ...]) -> None:
    """Fills an array with a tensor whose axes have that order in memory."""
    lies = _permuted(out, order)
    if _plain(lies):
        client.get(buffer, tensor=name, out=lies)
    elif _torch.is_tensor(out):
        lies.copy_(client.get(buffer, tensor=name, out=lies.new_empty(lies.shape)))
    else:
        lies[...] = client.get(buffer, tensor=name, out=np.empty(lies.shape, lies.dtype))


def _get_listed(client: "Client", table: str, listed: List[ListedTensor], device: Any,
                out: Optional[Mapping[str, Any]], threads: int) -> Dict[str, Any]:
    found = {tensor["name"]: tensor for tensor in listed}
    if out is None:
        _torch.needed(f"client.tensors({table!r})")
        wanted = [name for name, tensor in found.items() if "alias_of" not in tensor]
    else:
        missing = [name for name in out if name not in found]
        if missing:
            raise BadArgument(f"the buffer \"{table}\" has no tensor {missing[0]!r}, which out has, and "
                              f"{len(missing) - 1} more: put them, or leave them out")
        wanted = list(out)

    buffers = {tensor.get("buffer", table) for tensor in listed}
    orders = {buffer: _safetensors.orders_of(client._metadata_of(buffer)) for buffer in buffers}

    def one(name: str) -> Tuple[str, Any]:
        tensor = found[name]
        buffer = tensor.get("buffer", table)
        order = orders[buffer].get(tensor.get("alias_of", name), ())
        if len(order) != len(tensor["shape"]):
            order = ()
        if out is not None:
            if order:
                _get_permuted(client, buffer, name, out[name], order)
            else:
                client.get(buffer, tensor=name, out=out[name])
            return name, out[name]
        target = _torch.empty(tensor["dtype"], tuple(tensor["shape"]), device)
        client.get(buffer, tensor=name, out=target)
        return name, _permuted(target, _safetensors.inverse_of(order)) if order else target

    got = dict(each(one, [(name,) for name in wanted], threads))
    if out is None:
        got.update({name: got[tensor["alias_of"]] for name, tensor in found.items() if "alias_of" in tensor})
    return got


def get(client: "Client", prefix: str, device: Any, out: Optional[Mapping[str, Any]], threads: int) -> Dict[str, Any]:
    found = _found(client, prefix)
    if out is None:
        _torch.needed("client.tensors_get")  # also if there are no tensors
        wanted = found
    else:
        keys = {name: name if name in found else prefix + name for name in out}
        missing = [name for name, key in keys.items() if key not in found]
        if missing:
            raise BadArgument(f"the session \"{client.session}\" has no tensor {missing[0]!r} below {prefix!r}, which "
                              f"out has, and {len(missing) - 1} more: put them, or leave them out")
        wanted = {name: found[key] for name, key in keys.items()}

    def one(name: str, buffer: ListedBuffer) -> Tuple[str, Any]:
        target = _torch.empty(buffer["dtype"], tuple(buffer["shape"]), device) if out is None else out[name]
        client.get(buffer["name"], out=target)
        return name, target

    return dict(each(one, wanted.items(), threads))
