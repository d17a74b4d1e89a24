"""No number changes on its way into a buffer: lists, masks, missing values, columns, tables and arrays in any layout,
and what is refused."""
import collections
import datetime
import decimal
import fractions

import numpy as np
import pytest
from pyclient import gpubuf

from harness import library

ml_dtypes = library("ml_dtypes")

BIG = 2**53 + 1  # the first integer that float64 rounds
NAN, INF = float("nan"), float("inf")
masked = np.ma.masked_array


def same(a, b):
    """Equal as numbers of Python's are, which round nothing, and NaN is NaN."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def kept(c, source, numbers, dtype=None, **more):
    c.put("t", source, **more)
    got = c.get("t")
    assert same(got.tolist(), numbers), got
    assert dtype is None or got.dtype == dtype


def refused(c, source, error, said, **more):
    with pytest.raises(error, match=said):
        c.put("t", source, **more)
    assert "t" not in c, "nothing is made"


# --- lists ------------------------------------------------------------------------------------------------------------


KEPT = [
    ([BIG, 2**63 - 1, -2**63], {}, "int64"), ([2**64 - 1, 0], {}, "uint64"), ([1, 2.5], {}, "float64"),
    ([BIG - 1, 0.5], {}, "float64"), ([True, 2], {}, "int64"), ([True, False], {}, "bool"),
    ([True, 2.5], {}, "float64"), ([], {}, None), ([[], []], {}, None), ([[1, 2], [3, 4.5]], {}, "float64"),
    ([1, 2j], {}, "complex128"), ([NAN, INF, -INF, -0.0], {}, "float64"), (5, {}, "int64"), (BIG, {}, "int64"),
    ([2**63, 1], {}, "uint64"), ([[2**64 - 1], [0]], {}, "uint64"), ([np.uint64(2**63), 7], {}, "uint64"),
    ([2**63, -1], {}, "float64"), ([BIG, 1.0], {"dtype": "i8"}, "int64"), ([BIG, 1.0], {"dtype": "uint64"}, "uint64"),
    ([2**64 - 1, 0.0], {"dtype": "u8"}, "uint64"), ([2**64], {"dtype": "f8"}, "float64"),
    ([BIG - 1], {"dtype": "float64"}, "float64"), ([2**24, -1], {"dtype": "f4"}, "float32"),
    ([2**53 + 2, 1j], {"dtype": "complex128"}, "complex128"), ([True, 2.0], {"dtype": "uint8"}, "uint8"),
    ([1.0, 0], {"dtype": "?"}, "bool"), ([INF, NAN, 1], {"dtype": "float16"}, "float16"),
    ([256, -0.5], {"dtype": "bfloat16"}, None), ([NAN], {"dtype": "float8_e4m3fn"}, None),
    ([np.int64(BIG), np.int8(1)], {}, "int64"), ([np.float32(0.1), 0.5], {}, "float64"),
    ([np.uint64(5), np.int64(-1)], {}, "float64"), ([np.array([BIG, 1]), [2, 3]], {}, "int64"),
    ([np.array([1, 2], ">i4"), np.array([3, 4], "<i4")], {}, "int32"),
    ([masked([1, 2]), masked([3, 4], mask=False)], {}, None), (range(3), {}, "int64"),
    (collections.deque([1, 2.5]), {}, "float64"), ((1, 2), {"dtype": "int8"}, "int8"),
    ([[True], [0]], {"dtype": "float16"}, "float16"), ([ml_dtypes.bfloat16(1.5), ml_dtypes.bfloat16(2)], {}, None),
    ([0.1, 16777217.0, 1e30], {"dtype": "f4"}, "float32"),
]


@pytest.mark.parametrize("source, more, dtype", KEPT, ids=lambda x: str(x)[:60])
def test_a_list_keeps_its_numbers(c, source, more, dtype):
    numbers = (np.array(source, dtype).tolist() if more.get("dtype") == "f4"
               else [x.tolist() if isinstance(x, (np.ndarray, np.generic)) else
                     float(x) if isinstance(x, ml_dtypes.bfloat16) else x
                     for x in source] if hasattr(source, "__iter__") else source)
    c.put("t", source, **more)
    got = c.get("t")
    assert dtype is None or got.dtype == dtype
    assert same(got.astype(np.float64).tolist() if got.dtype.name not in gpubuf._dtypes.NUMPY else got.tolist(),
                numbers), got


REFUSED = [
    # integers beside floats, and beyond 64 bits
    ([BIG, 1.0], {}, "give dtype"), ([1.0, [BIG]][1:] + [1.0], {}, None), ([[BIG], [1.0]], {}, "give dtype"),
    ([BIG, 1j], {}, "give dtype"), ([np.uint64(2**63 + 1), np.int64(-1)], {}, "give dtype"),
    ([2**63 + 1, -1], {}, "give dtype"), ([np.int64(BIG), np.float64(1)], {}, "give dtype"),
    ([np.array([BIG]), np.array([1.0])], {}, "give dtype"), (collections.deque([BIG, 1.0]), {}, "give dtype"),
    ([2**64], {}, "give dtype"), ([2**64, 2.0**70], {}, "give dtype"), ([10**400], {}, "give dtype"),
    (-(2**63) - 1, {}, "give dtype"), ([-BIG, NAN], {}, "give dtype"), ([BIG, True, 0.5], {}, "give dtype"),
    # numbers that a type lacks
    ([BIG], {"dtype": "f8"}, f"fit float64, which has no {BIG}"), ([1.0, BIG], {"dtype": "float64"}, f"no {BIG}"),
    ([2**24 + 1], {"dtype": "f4"}, "fit float32"), ([2049, 0.5], {"dtype": "f2"}, "no 2049"),
    ([257], {"dtype": "bfloat16"}, "no 257"), ([17], {"dtype": "float8_e4m3fn"}, "no 17"),
    ([BIG], {"dtype": "complex128"}, "fit complex128"), ([2**24 + 1, 1j], {"dtype": "complex64"}, "fit complex64"),
    ([BIG, 1.5], {"dtype": "i8"}, "no 1.5"), ([2**64], {"dtype": "u8"}, "fit uint64"),
    ([2.0**64], {"dtype": "u8"}, "fit uint64"), ([2.0**63], {"dtype": "i8"}, "fit int64"),
    ([-INF], {"dtype": "i8"}, "fit int64"), ([np.float16(INF)], {"dtype": "i4"}, "fit int32"),
    ([-1, 2**63], {"dtype": "u8"}, "fit uint64"), ([10**400], {"dtype": "f8"}, "fit float64"),
    ([2**64, 1j], {"dtype": "f8"}, "complex numbers"), ([INF], {"dtype": "float8_e4m3fn"}, "fit float8"),
    ([0.0], {"dtype": "float8_e8m0fnu"}, "fit float8"), ([1e-300], {"dtype": "f4"}, "fit float32"),
    ([True, 2], {"dtype": "bool"}, "no 2"), ([-1.0], {"dtype": "float8_e8m0fnu"}, "fit float8"),
    # masks
    ([1.0, np.ma.masked], {}, "masked"), ([masked([1, 2], [0, 1])], {}, "1 of 2 elements are masked"),
    ([[masked([1], [1])]], {"dtype": "i8"}, "masked"),
]


@pytest.mark.parametrize("source, more, said", REFUSED, ids=lambda x: str(x)[:60])
def test_a_list_that_would_change(c, source, more, said):
    refused(c, source, (gpubuf.BadArgument, gpubuf.BadType), said, **more)


NO_NUMBERS = [[1, None], [1.5, None], None, [decimal.Decimal("1.1")], fractions.Fraction(1, 3),
              [datetime.date(2020, 1, 1)], datetime.datetime(2020, 1, 1), [datetime.timedelta(1)],
              [np.datetime64(1, "s")], [np.timedelta64(1, "s"), 1], ["1"], [1, "a"], "1", [b"1"], [{}], {1, 2},
              (i for i in "1"), [np.array([(1, 2)], "i4,i4")], [[1], [1, 2]]]


@pytest.mark.parametrize("dtype", [None, "float64", "int8"])
@pytest.mark.parametrize("source", NO_NUMBERS, ids=lambda x: str(x).partition(" at 0x")[0][:40])
def test_what_is_no_number(c, source, dtype):
    refused(c, source, gpubuf.BadType, "cannot be stored|makes no array", dtype=dtype)


def test_parts_and_fills_of_lists(c):
    c.put("f", np.zeros(3, np.float32))
    c.put("i", np.zeros(3, np.int64))
    for name, value in (("f", [2**24 + 1]), ("f", [1e-300]), ("i", [0.5]), ("i", [2.0**63]), ("f", [np.ma.masked])):
        with pytest.raises(gpubuf.BadArgument, match="fit|masked"):
            c.put(name, value, slice=np.s_[:1])
        with pytest.raises(gpubuf.BadArgument, match="fit|masked"):
            c.put(name, value, offset=0, dtype=c.info(name)["dtype"])
    with pytest.raises(gpubuf.BadArgument, match="masked"):
        c.put("i", masked([1, 2], [0, 1]), slice=np.s_[:2])
    with pytest.raises(gpubuf.BadArgument, match="masked"):
        c.tensors_put({"a": np.zeros(1), "b": masked([1], [1])})
    with pytest.raises(gpubuf.BadArgument, match="fit float32"):
        c.fill("f", np.int64(2**24 + 1))
    assert sorted(c) == ["f", "i"] and not c.get("f").any() and not c.get("i").any()
    c.put("i", [BIG, 1.0], slice=np.s_[1:])
    assert c.get("i").tolist() == [0, BIG, 1]


# --- arrays of numpy's ------------------------------------------------------------------------------------------------


def layouts():
    a = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    yield from (("Fortran", np.asfortranarray(a)), ("transposed", a.T), ("backwards", a[::-1, :, ::-1]),
                ("every other", a[:, ::2]), ("broadcast", np.broadcast_to(a[0], (5, 3, 4))),
                ("one number", np.broadcast_to(np.int16(7), (2, 2))), ("empty", a[:, :0]), ("0-d", np.array(7)),
                ("scalar", np.float32(1.5)), ("big-endian", a.astype(">i4")), ("big-endian 0-d", np.array(1.5, ">f8")),
                ("big-endian field", np.array([(1, 2.5), (3, 4.5)], [("a", ">i4"), ("b", ">f8")])["b"]),
                ("packed field", np.array([(1, 2), (3, 4)], [("a", "i1"), ("b", "<i8")])["b"]),
                ("big-endian complex", np.array([1 + 2j], ">c16")),
                ("matrix", np.array([[1, 2], [3, 4]]).view(np.matrix)), ("no mask", masked([1, 2], mask=False)),
                ("empty mask", masked([1, 2])), ("readonly", np.frombuffer(b"abcd", np.uint8)),
                ("bfloat16", a.astype(ml_dtypes.bfloat16).T))


@pytest.mark.parametrize("array", [pytest.param(array, id=name) for name, array in layouts()])
def test_any_layout_of_an_array(c, array):
    for put in (lambda: c.put("t", array), lambda: c.tensors_put({"t": array})):
        if array.dtype.name == "complex128" and c.list():
            continue  # safetensors has none
        put()
        got = c.get("t")
        assert (got.shape == array.shape and got.dtype == array.dtype.newbyteorder("=")
                and (got == np.asarray(array)).all())


@pytest.mark.parametrize("array", [masked([1.0, 99, 3], mask=[0, 1, 0]), masked([[1, 2]], [[1, 1]], np.uint8),
                                   np.ma.masked, masked(5, True), masked([1, 2], [0, 1], ">i4"),
                                   masked(np.ones(3, ml_dtypes.bfloat16), [1, 0, 0])], ids=lambda a: str(a.dtype))
def test_a_masked_array(c, array):
    for dtype in (None, array.dtype.name):
        refused(c, array, gpubuf.BadArgument, r"masked.*array\.filled", dtype=dtype)


def test_what_makes_a_masked_array(c):
    """Of dask and netCDF4, for example: numpy would take the data alone."""
    class Lazy:
        def __array__(self, dtype=None, copy=None):
            return masked([1, 2], [0, 1])

    class Interface:
        def __init__(self, **more):
            self.data = np.arange(2)
            self.__array_interface__ = {**self.data.__array_interface__, **more}

    refused(c, Lazy(), gpubuf.BadArgument, "masked")
    refused(c, Interface(mask=np.array([True, False])), gpubuf.BadArgument, "mask")
    kept(c, Interface(mask=None), [0, 1], "int64")


@pytest.mark.parametrize("array", [np.zeros(2, [("a", ">i4"), ("b", "<f4")]), np.rec.array([(1, 2)], "i4,i4"),
                                   np.array([1, None]), np.array([1, 2], object), np.zeros(2, "M8[s]"),
                                   np.zeros(2, "m8[s]"), np.array(["a"]), np.array([b"a"]), np.zeros(2, np.longdouble),
                                   np.zeros(2, "V3"), np.zeros(2, np.clongdouble), masked([(1, 2)], [(0, 1)], "i4,i4")],
                         ids=lambda a: str(a.dtype))
def test_an_array_of_something_else(c, array):
    refused(c, array, gpubuf.BadType, "cannot be stored; these can: bool, uint8")


# --- columns and tables: the protocols, with libraries of our own -----------------------------------------------------


class Type:
    """A type of another library's."""


class Column:
    """As of pandas: numpy is given NaN for what is missing."""

    dtype = Type()

    def __init__(self, *values):
        self.values = values

    def isna(self):
        return np.array([value is None for value in self.values])

    def __array__(self, dtype=None, copy=None):
        return np.array([NAN if value is None else value for value in self.values])


class Arrow:
    """As of pyarrow."""

    def __init__(self, *values, **parts):
        self.values_of, self.null_count = values, values.count(None)
        vars(self).update(parts)

    null_count = 0

    def __array__(self, dtype=None, copy=None):
        return np.array([NAN if value is None else value for value in self.values_of])


class Polars(Arrow):
    def __init__(self, *values, inner=None):
        super().__init__(*values)
        self.count, self.null_count, self.inner = values.count(None), lambda: self.count, inner
        if inner is not None:
            self.dtype = Type()
            self.dtype.inner = Type()

    def explode(self):
        return self.inner


class Table:
    """As of pyarrow."""

    def __init__(self, *columns):
        self.columns = columns

    num_columns = property(lambda self: len(self.columns))

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.asarray(column) for column in self.columns], axis=1)


@pytest.mark.parametrize("make", [Column, Arrow, Polars])
def test_a_column(c, make):
    kept(c, make(BIG, 2), [BIG, 2], "int64")
    kept(c, make(1.5, NAN), [1.5, NAN], "float64")
    c.delete("t")
    for source in (make(BIG, None), make(1.5, None), [make(1, None)], [[1, 2], make(1, None)]):
        refused(c, source, gpubuf.BadArgument, r"missing.*give source\.fill")
    refused(c, make(1, None), gpubuf.BadArgument, "missing", dtype="int64")


def test_what_is_missing_further_down(c):
    """In a dictionary, a run, an extension's storage, a chunk, or the lists of a column, whose own count is 0."""
    for source in (Arrow(1, dictionary=Arrow(1, None)), Arrow(1, values=Arrow(None)),
                   Arrow(1, storage=Arrow(1, values=Arrow(None))),
                   Arrow(1, chunks=[Arrow(1), Arrow(1, dictionary=Arrow(None))]), Polars(1, inner=Polars(1, None))):
        refused(c, source, gpubuf.BadArgument, "missing")
    kept(c, Arrow(1, chunks=[Arrow(1, dictionary=Arrow(1))]), [1])
    kept(c, Polars(1, inner=Polars(1)), [1])


def test_a_table(c):
    kept(c, Table(Arrow(BIG, 2), Arrow(3, 4)), [[BIG, 3], [2, 4]], "int64")
    kept(c, Table(np.array([1], np.int32), Arrow(1.5)), [[1, 1.5]], "float64")
    kept(c, Table(np.array([2**24 + 1], np.int32), np.array([0.5], np.float32)), [[2**24 + 1, 0.5]], "float64")
    c.delete("t")
    for source, said in ((Table(Arrow(BIG), Arrow(1.5)), f"column 0 is of int64 and has {BIG}.*float64"),
                         (Table(Arrow(1.5), Arrow(BIG)), "column 1"), (Table(Arrow(BIG), Arrow(1j)), "column 0"),
                         (Table(np.array([2**63 + 1], np.uint64), Arrow(-1)), "column 0"),
                         (Table(Arrow(1), Arrow(None)), "missing"), (Table(masked([1], [1])), "masked")):
        refused(c, source, gpubuf.BadArgument, said)


# --- columns and tables: the libraries --------------------------------------------------------------------------------


INTEGERS = [sign + "Int" + str(bits) for sign in ("", "U") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", [*INTEGERS, "Float32", "Float64", "boolean", "category"])
def test_types_of_pandas_with_missing_values(c, dtype):
    pandas = library("pandas")
    values = [True, False] if dtype == "boolean" else [1, 100]
    for make in (pandas.Series, pandas.Index, pandas.array):
        whole, less = make(values, dtype=dtype), make([values[0], None], dtype=dtype)
        kept(c, whole, values)
        c.delete("t")
        refused(c, less, gpubuf.BadArgument, r"missing.*fillna")
    kept(c, pandas.DataFrame({"a": whole, "b": whole}), [[value, value] for value in values])
    c.delete("t")
    refused(c, pandas.DataFrame({"a": whole, "b": less}), gpubuf.BadArgument, "missing")


def test_other_types_of_pandas(c):
    pandas = library("pandas")
    kept(c, pandas.Series([BIG, 2], index=["columns", "null_count"]), [BIG, 2], "int64")
    kept(c, pandas.Series([BIG, 2], dtype="Int64"), [BIG, 2], "int64")
    kept(c, pandas.Series([1.5, None]), [1.5, NAN], "float64")
    kept(c, pandas.Series([BIG, 2], dtype="category"), [BIG, 2], "int64")
    kept(c, pandas.arrays.SparseArray([0, BIG]), [0, BIG], "int64")
    kept(c, pandas.DataFrame({"a": [1, 2], "b": [1.5, 2]}), [[1, 1.5], [2, 2]], "float64")
    kept(c, pandas.DataFrame({"a": pandas.array([BIG]), "b": [2]}), [[BIG, 2]], "int64")
    kept(c, pandas.DataFrame({"a": pandas.array([1]), "b": [0.5]}), [[1, 0.5]], "float64")
    c.delete("t")
    for source in (pandas.DataFrame({"a": [BIG], "b": [1.5]}), pandas.DataFrame({"a": pandas.array([BIG]), "b": [0.5]}),
                   [pandas.Series([BIG]), [0.5]], pandas.DataFrame({"a": np.array([2**63 + 1], np.uint64), "b": [-1]})):
        refused(c, source, gpubuf.BadArgument, "column 0|give dtype")
    for source in ([1, pandas.NA], pandas.Series([1, None], dtype=object),
                   pandas.Series(pandas.to_datetime(["2020-01-01"])), pandas.Series(["a"]),
                   pandas.Series(pandas.to_datetime(["2020-01-01"]).tz_localize("UTC")),
                   pandas.Series(pandas.period_range("2020", periods=2)), pandas.Series([pandas.Timedelta(1)]),
                   pandas.interval_range(0, 2), pandas.MultiIndex.from_tuples([(1, 2)])):
        refused(c, source, gpubuf.BadType, "cannot be stored")


def test_pandas_over_pyarrow(c):
    pandas, pyarrow = library("pandas"), library("pyarrow")
    for dtype, values in (("int64", [BIG, 2]), ("uint8", [1, 2]), ("double", [1.5, 2]), ("bool", [True, False])):
        kept(c, pandas.Series(values, dtype=f"{dtype}[pyarrow]"), values)
        c.delete("t")
        refused(c, pandas.Series([values[0], None], dtype=f"{dtype}[pyarrow]"), gpubuf.BadArgument,
                r"values of the Series are missing.*fillna")
    hidden = pyarrow.chunked_array([pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1]),
                                                                        pyarrow.array([BIG, None]))])
    refused(c, pandas.Series(pandas.arrays.ArrowExtensionArray(hidden)), gpubuf.BadArgument, "missing")


def test_pyarrow(c):
    pa = library("pyarrow")
    dictionary, runs = pa.DictionaryArray.from_arrays, pa.RunEndEncodedArray.from_arrays
    opaque = [pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int64(), (1,)),
                                             pa.array([[1], None], pa.list_(pa.int64(), 1)))]
    for source, numbers, dtype in (
            (pa.array([BIG, 2]), [BIG, 2], "int64"), (pa.array([True, False]), [True, False], "bool"),
            (pa.array([1.5, NAN]), [1.5, NAN], "float64"), (pa.array(np.array([1.5], np.float16)), [1.5], "float16"),
            (pa.array([BIG, BIG]).dictionary_encode(), [BIG, BIG], "int64"),
            (runs(pa.array([1, 3], pa.int32()), pa.array([BIG, 2])), [BIG, 2, 2], "int64"),
            (pa.chunked_array([[BIG], [2]]), [BIG, 2], "int64"), (pa.chunked_array([[True], []]), [True], "bool"),
            (pa.array([], pa.int8()), [], "int8"), (pa.array([1, BIG])[1:], [BIG], "int64"),
            (pa.array([None, BIG])[1:], [BIG], "int64"), (pa.table({"a": [BIG], "b": [2]}), [[BIG, 2]], "int64"),
            (pa.record_batch({"a": [1], "b": [0.5]}), [[1, 0.5]], "float64"),
            (pa.py_buffer(b"\xff\1"), [255, 1], "uint8"), (pa.Tensor.from_numpy(np.array([[1, 2], [3, 4]]).T),
                                                           [[1, 3], [2, 4]], "int64")):
        kept(c, source, numbers, dtype)
        c.delete("t")
    for source in (pa.array([BIG, None]), pa.array([True, None]), pa.nulls(2), pa.array([1.5, None]),
                   pa.array([BIG, None]).dictionary_encode(), dictionary(pa.array([0, 1]), pa.array([BIG, None])),
                   runs(pa.array([1, 2], pa.int32()), pa.array([BIG, None])), *opaque, pa.chunked_array([[1], [None]]),
                   pa.table({"a": [1, None]}), pa.record_batch({"a": [1, None]})):
        refused(c, source, gpubuf.BadArgument, r"missing.*fill_null")
    for source in (pa.table({"a": [BIG], "b": [0.5]}), pa.record_batch({"a": [0.5], "b": [BIG]})):
        refused(c, source, gpubuf.BadArgument, f"has {BIG}")
    for source in (pa.array([1], pa.decimal128(5, 2)), pa.array([1], pa.date32()), pa.array([1], pa.timestamp("s")),
                   pa.array([1], pa.duration("s")), pa.array(["a"]), pa.array([[1]]), pa.array([{"a": 1}]),
                   pa.scalar(5), pa.nulls(0)):
        refused(c, source, gpubuf.BadType, "cannot be stored")
    c.put("t", pa.py_buffer(np.arange(3, dtype=np.float32).tobytes()), dtype="float32")
    assert c.get("t").tolist() == [0, 1, 2]
