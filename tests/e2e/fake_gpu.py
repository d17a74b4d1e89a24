"""A GPU of host memory for the Python client: a driver whose device memory is shared host memory, and arrays on it."""
import ctypes
import functools

import numpy as np
from pyclient import gpubuf
from gpubuf import _cuda, _dlpack, _dtypes, _roads
from gpubuf.adoption import Offer, _memory_of, shared_array

UUID = bytes(range(16))


class FakeGpu:
    """The part of libcuda that transfers of arrays call. calls: their names. fails: the name of one that fails. lends:
    whether memory can be lent to the daemon; it is lent as a file, because a daemon without a GPU takes that."""

    def __init__(self, monkeypatch, daemon_device):
        self.calls, self.fails, self.lends, self.streams, self.lent = [], None, True, [], 0
        self.memory, self.numbers = {}, {}
        self._handles = iter(range(100, 1 << 30))
        self.driver = _cuda.Driver(self)
        monkeypatch.setattr(_cuda, "load", functools.cache(lambda: self.driver))
        monkeypatch.setattr(_cuda.Driver, "name_of", lambda *_: daemon_device)
        monkeypatch.setattr(_roads, "legacy_offer", self._offer)

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        class Function:
            def __call__(_, *arguments):
                return self._called(name, [getattr(a, "_obj", a) for a in arguments])

        return Function()

    def _called(self, name, arguments):
        plain = [getattr(a, "value", a) for a in arguments]
        self.calls.append((name, *plain))
        if name == self.fails:
            return 2
        if name == "cuGetErrorName":
            arguments[1].value = b"CUDA_ERROR_OUT_OF_MEMORY"
        elif name == "cuDeviceGetCount":
            arguments[0].value = 1
        elif name == "cuDeviceGet":
            arguments[0].value = plain[1]
        elif name == "cuDeviceGetUuid_v2":
            ctypes.memmove(ctypes.addressof(arguments[0]), UUID, 16)
        elif name in ("cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuEventCreate"):
            arguments[0].value = next(self._handles)
        elif name == "cuMemAlloc_v2":
            arguments[0].value = self.allocate((plain[1],), "uint8").ctypes.data
        elif name == "cuMemFree_v2":
            del self.memory[plain[0]]
        elif name == "cuMemHostAlloc":
            arguments[0].value = self.allocate((plain[1],), "uint8").ctypes.data
        elif name == "cuPointerGetAttribute":
            arguments[0].value = 0 if plain[1] == 9 else self.numbers[self._base(plain[2])]
        elif name.startswith("cuMemcpy"):
            ctypes.memmove(plain[0], plain[1], plain[2])
        elif name == "cuStreamSynchronize":
            self.streams.append(plain[0])
        return 0

    def allocate(self, shape, dtype):
        array = shared_array(shape, dtype)
        self.memory[array.ctypes.data], self.numbers[array.ctypes.data] = array, next(self._handles)
        return array

    def _base(self, pointer):
        return next(at for at, array in self.memory.items() if at <= pointer < at + max(array.nbytes, 1))

    def _offer(self, pointer, nbytes, owner, **layout):
        if not self.lends:
            raise gpubuf.CannotAdopt("it has no handle")
        base = self._base(pointer)
        self.lent += 1
        return Offer({"way": "memfd", "offset": pointer - base, **layout}, _memory_of(self.memory[base]).fd, owner)

    def array(self, values, protocol="dlpack", **more):
        """The values on the GPU."""
        known = values.dtype.name in _dtypes.NUMPY
        mine = self.allocate(values.shape, values.dtype.name) if known else self.allocate((values.nbytes,), "uint8")
        mine.reshape(-1).view(np.uint8)[:] = np.frombuffer(values.tobytes(), np.uint8)
        return (OnGpu if protocol == "dlpack" else Interface)(mine, values.dtype.name, values.shape, **more)


class OnGpu:
    """An array of another library that speaks DLPack. streams: those that it had to make wait."""

    def __init__(self, memory, dtype, shape):
        self.memory, self.dtype, self.shape, self.streams, self.refuses = memory, dtype, shape, [], None

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        if self.refuses:
            raise self.refuses
        self.streams.append(stream)
        return _dlpack.give(self.memory, self.memory.ctypes.data, (2, 0), self.dtype, self.shape, False, None)


class Interface:
    """An array of another library that speaks __cuda_array_interface__ alone."""

    def __init__(self, memory, dtype, shape, **more):
        self.memory = memory
        self.__cuda_array_interface__ = {"shape": shape, "typestr": np.dtype(dtype).str,
                                         "data": (memory.ctypes.data, False), "version": 3, "strides": None,
                                         "stream": None, **more}


class Consumer:
    """A library that takes a DLPack capsule: the elements as numpy sees them."""

    def __init__(self, source):
        taken = _dlpack.take(source, 1)
        self.shape, self.strides, self.dtype, self.device = taken.shape, taken.strides, taken.dtype, taken.device
        n = int(np.prod(taken.shape)) * _dtypes.width(taken.dtype)
        self.bytes = ctypes.string_at(taken.pointer, n)
        self.guard = taken.guard


__all__ = ["FakeGpu", "OnGpu", "Interface", "Consumer", "gpubuf"]
