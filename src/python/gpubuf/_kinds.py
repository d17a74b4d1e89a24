"""Files that hold arrays in a form of their own: they are stored as the bytes that they are, and a warning says what to
convert them to."""
from __future__ import annotations

import io
import os
import warnings
import zipfile
from typing import Any, Optional

ZIP = b"PK\x03\x04"
NUMPY = "the file is an .npz archive: put its arrays with client.tensors_put(dict(numpy.load(path)))"
TORCH = "the file is torch.save's: put its tensors with client.put_state_dict(torch.load(path, weights_only=True))"
PLAIN_ZIP = "the file is a zip archive: unpack it, and put what is in it"
SAFETENSORS = ("the file is a safetensors: client.put_model(path, name) makes a table of it, and "
               "client.tensors_put(safetensors.numpy.load(data)) a buffer of each tensor")
PICKLE = "the file is a pickle: load it where you trust it, and put its arrays (put, tensors_put, put_state_dict)"


class StoredAsBytes(UserWarning):
    """A file was put that holds arrays, and the buffer has its bytes and not the arrays."""


def _of_zip(data: memoryview) -> str:
    try:
        names = zipfile.ZipFile(io.BufferedReader(_Reader(data))).namelist()
    except (zipfile.BadZipFile, ValueError, OSError):
        return PLAIN_ZIP
    if names and all(name.endswith(".npy") for name in names):
        return NUMPY
    return TORCH if any(name.endswith("data.pkl") for name in names) else PLAIN_ZIP


class _Reader(io.RawIOBase):
    """A file over a view, without a copy of all of it."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._data)}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


def _is_safetensors(data: memoryview) -> bool:
    """By the length that it begins with, and the first and last bytes of the header behind it."""
    n = int.from_bytes(data[:8], "little")
    return 2 <= n <= len(data) - 8 and data[8] == ord("{") and bytes(data[8 + n - 8 : 8 + n]).rstrip(b" ")[-1:] == b"}"


def what(data: memoryview) -> Optional[str]:
    """What such a file is, and what to do instead; None for other bytes. Nothing of it is run or unpacked."""
    if data[:4] == ZIP:
        return _of_zip(data)
    if len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5 and data[-1] == ord("."):
        return PICKLE
    return SAFETENSORS if _is_safetensors(data) else None


def warn(source: Any, dtype: Optional[str]) -> None:
    """Warns if the source is the bytes of such a file and the caller gave them no type."""
    if dtype is not None or not isinstance(source, (bytes, bytearray, memoryview)) and type(source).__name__ != "mmap":
        return
    view = memoryview(source)
    if view.format in ("B", "b", "c") and view.contiguous and view.nbytes:
        found = what(view.cast("B"))
        if found:
            warnings.warn(f"put stores the bytes as uint8, and not the arrays in them: {found}; dtype=\"uint8\" says "
                          "that bytes are meant",
                          StoredAsBytes, stacklevel=3)
