"""What torch needs beyond DLPack. torch is never imported here: a process that gives tensors has it."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _dlpack
from ._regions import DeviceRegion, Region
from .errors import BadArgument, BadType, OutOfMemory, Unsupported
from .types import Loaded

if TYPE_CHECKING:
    from .mapping import Mapping
    from .tables import Tensors

SHOWN = 5  # names in an error


def module() -> Optional[Any]:
    """torch, if this process has imported it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "Tensor") else None


def is_tensor(source: Any) -> bool:
    torch = module()
    return torch is not None and isinstance(source, torch.Tensor)


def plain(source: Any) -> Tuple[Any, Optional[str]]:
    """A tensor that DLPack takes, and the name of its type if DLPack cannot say it: torch exports no float8, so its
    bytes go."""
    if not is_tensor(source):
        return source, None
    tensor, name = source.detach(), str(source.dtype).partition(".")[2]
    if tensor.is_conj() or tensor.is_neg():
        raise BadType("the tensor is a lazy conjugate or negative: give tensor.resolve_conj().resolve_neg()")
    if not name.startswith("float8"):
        return tensor, None
    if not tensor.is_contiguous():
        raise BadType("the elements of the tensor do not lie in C order: give tensor.contiguous()")
    return tensor.view(sys.modules["torch"].uint8), name


def current_device() -> Optional[int]:
    """torch's current device; None if this process does not use torch on a GPU."""
    torch = module()
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else None


def memory(nbytes: int, ordinal: int) -> Optional[Any]:
    """Memory of torch's allocator, as bytes; None if this process does not use torch on a GPU."""
    torch = module()
    if torch is None or not torch.cuda.is_initialized() or nbytes == 0:
        return None
    return torch.empty(nbytes, dtype=torch.uint8, device=f"cuda:{ordinal}")


def needed(instead: str) -> None:
    """Raises Unsupported without torch. instead: what gives arrays of numpy."""
    if module() is None:
        raise Unsupported("get_state_dict gives tensors of torch: import torch first, or take arrays of numpy with "
                          f"{instead}")


def dtype_of(name: str) -> Any:
    """torch's type of that name."""
    torch = module()
    if torch is None:
        raise Unsupported("a tensor needs torch: import torch first")
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise BadType(f"this torch ({torch.__version__}) has no {name}: take the bytes with raw=True")
    return found


def empty(dtype: str, shape: Tuple[int, ...], device: Any) -> Any:
    """A tensor that is yet to be filled."""
    kind, torch = dtype_of(dtype), sys.modules["torch"]
    try:
        return torch.empty(shape, dtype=kind, device=device)
    except (RuntimeError, AssertionError) as e:  # AssertionError: a torch without CUDA
        said = f"torch makes no tensor of {dtype} {list(shape)} on {device}: {e}"
        if isinstance(e, getattr(torch, "OutOfMemoryError", ())):
            raise OutOfMemory(said) from e
        raise BadArgument(said) from e


# --- mapped memory ----------------------------------------------------------------------------------------------------


def over(mapped: "Mapping", region: Region) -> Any:
    """The bytes of a mapping as one tensor, which keeps them mapped."""
    kind = dtype_of("uint8")
    torch = sys.modules["torch"]
    if mapped.nbytes == 0:
        where = f"cuda:{region.device[1]}" if isinstance(region, DeviceRegion) else "cpu"
        return torch.empty(0, dtype=kind, device=where)
    if isinstance(region, DeviceRegion):
        pointer, owner = region.pointer()
        return torch.utils.dlpack.from_dlpack(_dlpack.give(owner, pointer, region.device, "uint8", (mapped.nbytes,),
                                                           False, None))
    if region.pages is None or not region.harmless:
        return torch.from_dlpack(mapped)  # which says why not
    return torch.from_numpy(np.frombuffer(region.pages, np.uint8))


def part(whole: Any, at: int, nbytes: int, dtype: str, shape: Tuple[int, ...]) -> Any:
    """A tensor of these bytes, with a storage of its own: what is saved or copied of it is not the whole."""
    tensor = whole.new_empty(0, dtype=dtype_of(dtype))
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    if nbytes == 0:
        return tensor.reshape(shape)
    return tensor.set_(whole.untyped_storage()[at : at + nbytes], 0, shape, strides[::-1])


# --- modules ----------------------------------------------------------------------------------------------------------


class _Slot(NamedTuple):
    """A parameter or a buffer of a module, which has it in one of its own dicts."""

    name: str
    held: Dict[str, Any]
    key: str
    tensor: Any
    stored: bool  # it belongs to the state dict


def _slots(module: Any) -> List[_Slot]:
    found = []
    for path, part_of in module.named_modules(remove_duplicate=False):
        before = f"{path}." if path else ""
        apart = part_of._non_persistent_buffers_set
        for held in (part_of._parameters, part_of._buffers):
            found += [_Slot(before + key, held, key, tensor, held is part_of._parameters or key not in apart)
                      for key, tensor in held.items() if tensor is not None]
    return found


class _Fit:
    """What of a module is where in the tables."""

    def __init__(self, module: Any, tables: "Sequence[Tensors]") -> None:
        self.slots = _slots(module)
        self.tied: Dict[int, List[_Slot]] = {}  # the slots that share a tensor
        for slot in self.slots:
            if slot.stored:
                self.tied.setdefault(id(slot.tensor), []).append(slot)
        there: Dict[str, "Tensors"] = {}
        for table in tables:
            for name in table:
                if there.setdefault(name, table) is not table:
                    raise BadArgument(f"\"{there[name].buffer}\" and \"{table.buffer}\" both have a tensor {name!r}")
        self.missing: List[str] = []
        self.wrong: List[str] = []
        self.found: List[Tuple[List[_Slot], "Tensors", str]] = []
        for group in self.tied.values():
            first = next((slot.name for slot in group if slot.name in there), None)
            if first is None:
                self.missing += [slot.name for slot in group]
            else:
                self._compare(group, there[first], first)
        names = {slot.name for slot in self.slots if slot.stored}
        used = {_own(table, name) for _, table, name in self.found}
        self.unexpected = [name for name, table in there.items() if name not in names and _own(table, name) not in used]

    def _compare(self, group: List[_Slot], table: "Tensors", name: str) -> None:
        theirs, info = group[0].tensor, table.info(name)
        kind, shape = str(theirs.dtype).partition(".")[2], _shape_of(theirs)
        if (kind, shape) == (info["dtype"], info["shape"]):
            self.found.append((group, table, name))
        else:
            self.wrong.append(f"{name} is {info['dtype']} {info['shape']} in \"{table.buffer}\" and {kind} "
                              f"{'without a shape' if shape is None else shape} in the module")


def _own(table: "Tensors", name: str) -> Tuple[str, str]:
    """The tensor that has the name, which may be an alias."""
    return table.buffer, table.info(name).get("alias_of", name)


def _shape_of(tensor: Any) -> Optional[List[int]]:
    """None of a parameter that a lazy module has yet to make."""
    lazy = getattr(sys.modules["torch"].nn.parameter, "is_lazy", None)
    return None if lazy is not None and lazy(tensor) else list(tensor.shape)


def _shown(word: str, names: List[str]) -> List[str]:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{word}: {', '.join(names[:SHOWN])}{more}"] if names else []


def load_into(module: Any, tables: "Sequence[Tensors]", strict: bool) -> Loaded:
    """Makes the tensors of the tables those of a module. It is changed only if all fit."""
    torch = _with_modules(module)
    fit = _Fit(module, tables)
    if fit.missing and callable(getattr(module, "tie_weights", None)):
        # A file has one of several names of a weight. transformers' modules may have lost the tie on the device meta.
        module.tie_weights()
        fit = _Fit(module, tables)
    said = _shown("of another dtype or shape", fit.wrong)
    if strict:
        said = _shown("missing in the buffer", fit.missing) + _shown("not in the module", fit.unexpected) + said
    if said:
        raise BadArgument(f"{' and '.join(repr(t.buffer) for t in tables)} and the {type(module).__name__} do not fit, "
                          f"and nothing was changed; {'; '.join(said)}. strict=False passes over what one of them "
                          "lacks; module.to(dtype), also on the device meta, changes dtypes")
    made = [(group, table.torch(name), table.mode == "write") for group, table, name in fit.found]
    for group, tensor, writes in made:
        old = group[0].tensor
        if isinstance(old, torch.nn.Parameter):
            tensor = torch.nn.Parameter(tensor, requires_grad=writes and old.requires_grad)
            tensor.__dict__.update(old.__dict__)
        for slot in group:
            slot.held[slot.key] = tensor
    left = [slot.name for slot in _slots(module) if slot.tensor.is_meta]
    return Loaded(fit.missing, fit.unexpected, left)


def _with_modules(module: Any) -> Any:
    """torch, of which the module is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise BadType(f"tensors are loaded into a torch.nn.Module, not into a {type(module).__name__}")
    return torch
