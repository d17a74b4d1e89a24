"""What torch needs beyond DLPack. torch is never imported here: a process that gives tensors has it."""
from __future__ import annotations

import sys
from typing import Any, Optional, Tuple

from .errors import BadArgument, BadType, OutOfMemory, Unsupported


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
