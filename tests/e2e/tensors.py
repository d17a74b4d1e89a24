"""Helpers of the tests of safetensors: files, written by hand, and requests for many tensors."""
import numpy as np

import values
from harness import library
from values import file_of, one  # noqa: F401 - for those that import this

ml_dtypes = library("ml_dtypes")
safetensors = library("safetensors")
library("safetensors.numpy")

TYPE = "application/x-safetensors"

# gpubufd's dtype, the format's dtype
TYPES = (("bool", "BOOL"), ("uint8", "U8"), ("uint16", "U16"), ("uint32", "U32"), ("uint64", "U64"), ("int8", "I8"),
         ("int16", "I16"), ("int32", "I32"), ("int64", "I64"), ("float16", "F16"), ("bfloat16", "BF16"),
         ("float32", "F32"), ("float64", "F64"), ("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2"),
         ("float8_e4m3fnuz", "F8_E4M3FNUZ"), ("float8_e5m2fnuz", "F8_E5M2FNUZ"), ("float8_e8m0fnu", "F8_E8M0"),
         ("complex64", "C64"))


def width(dtype):
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype).itemsize


# --- many tensors -----------------------------------------------------------------------------------------------------

TENSORS = "/v1/sessions/{}/tensors"


def put(daemon, session, body, query="", headers=None):
    return daemon.ask("PUT", TENSORS.format(session) + query, body, headers)


def names(daemon, session):
    return sorted(b["name"] for b in daemon.get(f"/v1/sessions/{session}/buffers?limit=1000")["items"])


def model(seed=0, count=6):
    shapes = ((16, 33), (), (0, 7), (5,), (1000, 130), (3, 2, 1))
    dtypes = ("float32", "int64", "float16", "uint8", "float32", "bool")
    return {f"layer.{i}.{dtypes[i % 6]}": values.array_of(dtypes[i % 6], shapes[i % 6], seed + i) for i in range(count)}


def same(daemon, session, arrays, prefix=""):
    for name, array in arrays.items():
        meta = daemon.meta(prefix + name, session)
        assert (meta["dtype"], meta["shape"], meta["bytes"]) == (str(array.dtype), list(array.shape), array.nbytes)
        assert daemon.data(prefix + name, session).body == array.tobytes(), name


def get(daemon, session, query="", headers=None, method="GET"):
    return daemon.ask(method, TENSORS.format(session) + query, None, headers)


def load(daemon, session, query=""):
    r = get(daemon, session, query).expect(200)
    assert r.headers["Content-Type"] == TYPE
    return safetensors.numpy.load(r.body)


def equal(got, wanted):
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape), name
        assert got[name].tobytes() == array.tobytes(), name
