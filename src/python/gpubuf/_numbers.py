"""Arrays of what is no array of numpy's own: lists of numbers, and columns and tables of pandas, pyarrow and polars.

numpy makes an array of nearly anything. On the way it rounds an integer beside floats, drops a mask, and writes NaN for
a value that is missing. Here that is an error: an array has exactly the numbers of its source.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, List, Optional

import numpy as np
import numpy.typing as npt

from ._dtypes import NUMPY, OTHERS
from .errors import BadArgument, BadType

Array = npt.NDArray[Any]

NUMBERS = (int, float, complex, np.generic)  # bool is an int
EXACT = 2**53  # float64 has each integer up to this one


def array_of(source: Any) -> Array:
    """The array of anything but a list. An exception that a library's object raises is passed on."""
    if isinstance(source, np.ndarray):
        return _unmasked(source)
    columns = _columns(source)
    if columns:
        return _beside(source, columns)
    about = getattr(source, "__array_interface__", None)
    if isinstance(about, dict) and about.get("mask") is not None:
        raise BadArgument("the array has a mask, and a buffer has none: put the data and the mask apart")
    if hasattr(source, "__array__"):
        return _unmasked(np.asanyarray(_complete(source)))
    try:
        return np.asarray(source)
    except (TypeError, ValueError) as e:
        raise BadType(f"numpy makes no array of {type(source).__name__}: {e}") from e


def _unmasked(array: Array) -> Array:
    mask = getattr(array, "mask", None) if array.dtype.names is None else None  # of records it could be a field
    if mask is not None and np.any(mask):
        raise BadArgument(f"{np.count_nonzero(mask)} of {array.size} elements are masked, and a buffer has no mask: "
                          "give array.filled(value), or put array.data and the mask apart")
    return np.asarray(array)


# --- columns and tables -----------------------------------------------------------------------------------------------


def _columns(source: Any) -> Optional[List[Any]]:
    """The columns of a table; None of another object."""
    kind = type(source)  # a label of a Series could have the name of an attribute
    if hasattr(kind, "iloc") and source.ndim == 2:  # pandas
        return [source.iloc[:, i] for i in range(source.shape[1])]
    if hasattr(kind, "get_columns"):  # polars
        return list(source.get_columns())
    if hasattr(kind, "num_columns"):  # pyarrow
        return list(source.columns)
    return None


def _beside(source: Any, columns: List[Any]) -> Array:
    """The array of a table, in a type that has the numbers of all columns."""
    arrays = [array_of(column) for column in columns]
    kinds = {getattr(column, "dtype", None) for column in columns}
    if len(kinds) == 1 and isinstance(kinds.pop(), np.dtype):
        return np.asarray(source)  # pandas has it in one piece
    try:
        made: Array = np.stack(arrays, axis=1)
    except (TypeError, ValueError) as e:
        raise BadType(f"the columns make no array: {e}") from e
    for i, array in enumerate(arrays):
        if array.dtype != made.dtype and made.dtype.kind in "fc":
            same = kept(array, made[:, i])
            if not same.all():
                raise BadArgument(f"column {i} is of {array.dtype} and has {array[~same][0]}, which {made.dtype} "
                                  "rounds, the type of all columns together: put the columns apart, or convert the "
                                  "table first")
    return made


def _complete(source: Any) -> Any:
    """What numpy takes of a column of pandas, pyarrow or polars whose values are all there; another object as it is."""
    column, remedy, dtype = source, "fillna", getattr(source, "dtype", None)
    if hasattr(dtype, "pyarrow_dtype"):  # pandas over pyarrow
        column = getattr(source, "array", source).__arrow_array__()
        missing = _nulls(column)
    elif hasattr(type(source), "null_count"):
        missing, remedy = _nulls(source), "fill_null"
    else:  # NaN of a type of numpy's is a number like others
        missing = not isinstance(dtype, np.dtype) and hasattr(type(source), "isna") and bool(np.any(source.isna()))
    if missing:
        raise BadArgument(f"values of the {type(source).__name__} are missing, and a buffer has a number in each "
                          f"place: give source.{remedy}(value), or put the values and a mask of them apart")
    return column


def _nulls(source: Any) -> bool:
    """True if values of a column of pyarrow or polars are missing."""
    count = source.null_count
    if count() if callable(count) else count:
        return True
    dtype = getattr(source, "dtype", None)
    if hasattr(dtype, "inner"):  # lists of polars
        return _nulls(source.explode())
    if hasattr(dtype, "fields"):
        raise BadType("an array of structs cannot be stored: put its fields apart")
    # A null_count of pyarrow does not count the values that a dictionary, a run or a storage has.
    inner = [getattr(source, name) for name in ("dictionary", "values", "storage") if hasattr(source, name)]
    return any(_nulls(part) for part in (*inner, *getattr(source, "chunks", ())))


# --- lists ------------------------------------------------------------------------------------------------------------


def of_list(source: Any, exact: bool = False) -> Array:
    """The array of a number, or of a list of numbers, arrays and lists. It is of Python's own numbers (object) if no
    type has all of them, or if exact."""
    items = _inner(source)
    try:
        values = np.asarray(items)
        if not exact and (values.dtype.kind in "biu" or values.dtype.kind in "fc" and not _large(values)):
            return values
        numbers = np.asarray(items, object)
    except (TypeError, ValueError) as e:
        raise BadType(f"numpy makes no array of {type(source).__name__}: {e}") from e
    for item in numbers.flat:
        if not _is_number(item):
            place = f" in a {type(source).__name__}" if numbers.ndim else ""
            raise BadType(f"a {type(item).__name__}{place} cannot be stored; these can: {', '.join((*NUMPY, *OTHERS))}")
    if exact:
        return numbers
    plain = [_plain(number) for number in numbers.flat]
    if all(isinstance(number, int) and 0 <= number < 2**64 for number in plain):
        return np.array(plain, np.uint64).reshape(numbers.shape)
    return values if values.dtype != object and kept(numbers, values).all() else numbers


def typed(source: Any) -> Array:
    """As of_list, in a type that has the numbers."""
    values = of_list(source)
    if values.dtype == object:
        raise BadArgument(f"no type has all numbers of the {type(source).__name__}: there are integers of 64 bits, and "
                          "float64 rounds those beyond 2**53; give dtype, or put them apart")
    return values


def _inner(source: Any) -> Any:
    """The list with an array in the place of each object that is to be one."""
    if isinstance(source, Sequence) and not isinstance(source, (str, bytes, bytearray, memoryview)):
        if all(issubclass(kind, NUMBERS) for kind in set(map(type, source))):
            return source
        return [_inner(item) for item in source]
    return array_of(source) if hasattr(source, "__array__") and not isinstance(source, NUMBERS) else source


def _is_number(item: Any) -> bool:
    if isinstance(item, np.generic):
        return item.dtype.kind in "biufc" or item.dtype.name in OTHERS
    return isinstance(item, NUMBERS)


def _large(values: Array) -> bool:
    """True if the array may have rounded an integer. numpy makes smaller floats of a list only if these have its
    integers."""
    parts = (values.real, values.imag) if values.dtype.kind == "c" else (values,)
    return any(part.dtype.itemsize >= 8 and bool(np.any(np.abs(part) >= EXACT)) for part in parts)


# --- whether numbers changed ------------------------------------------------------------------------------------------


def kept(values: Array, made: Array) -> Array:
    """Which of the values the array that was made of them has. An integer must be the same. A float may be rounded to
    what another type of floats has, but not to zero or infinity."""
    made = _wide(made)
    if values.dtype == object:
        pairs = zip(values.ravel().tolist(), made.ravel().tolist())
        return np.array([_kept(_plain(value), _plain(now)) for value, now in pairs], bool).reshape(values.shape)
    values = _wide(values)
    if values.dtype.kind == "c" or made.dtype.kind == "c":
        both: Array = kept(values.real, made.real) & kept(values.imag, made.imag)
        return both
    with np.errstate(all="ignore"):
        if made.dtype.kind == "f" and values.dtype.kind == "f":
            same: Array = ((np.isnan(made) == np.isnan(values)) & (np.isinf(made) == np.isinf(values))
                           & ((made == 0) == (values == 0)))
        elif made.dtype.kind == "f":
            same = _equal(values, made)
        elif values.dtype.kind == "f":
            same = _equal(made, values)
        else:
            same = (made.astype(values.dtype) == values) & ((made < 0) == (values < 0))
    return same


def _wide(array: Array) -> Array:
    """The same numbers in a type that numpy computes with exactly."""
    if array.dtype.name in OTHERS or array.dtype.kind == "f" and array.dtype.itemsize < 8:
        return array.astype(np.float64)
    return array


def whole_rounded(values: Array, made: Array) -> bool:
    """True if a float that is a whole number changed; of a list it may have been an integer."""
    if values.dtype.kind not in "fc" or made.dtype.kind in "biu":
        return False
    changed = made.astype(values.dtype) != values
    return bool(np.any(changed & (np.trunc(values) == values) if values.dtype.kind == "f" else changed))


def _equal(integers: Array, floats: Array) -> Array:
    """Which are equal, without a rounding of the integers."""
    if integers.dtype.kind == "b":
        integers = integers.astype(np.uint8)
    about = np.iinfo(integers.dtype)
    inside = (floats >= float(about.min)) & (floats < float(about.max + 1))
    equal: Array = inside & (np.trunc(floats) == floats) & (floats.astype(integers.dtype) == integers)
    return equal


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


def _kept(value: Any, now: Any) -> bool:
    """As kept, of numbers of Python's."""
    if isinstance(value, complex) or isinstance(now, complex):
        a, b = complex(value) if isinstance(value, float) else value, complex(now) if isinstance(now, float) else now
        return _kept(a.real, b.real) and _kept(a.imag, b.imag)
    if isinstance(value, int) or isinstance(now, int):
        return bool(value == now)
    return bool(math.isnan(value) == math.isnan(now) and math.isinf(value) == math.isinf(now)
                and (value == 0) == (now == 0))
