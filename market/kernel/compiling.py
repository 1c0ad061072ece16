"""How the kernel is compiled: by numba, without floats or checks of bounds, and kept on disk.

numba keeps compiled code in `__pycache__` beside the source, else in the user's cache folder;
NUMBA_CACHE_DIR names another. Where none can be written, every process compiles anew (seconds).
NUMBA_DISABLE_JIT=1 runs the same source as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, typeof, types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
Array = TypeVar("Array", bound=NDArray[Any])


def compiled(function: F) -> F:
    """For what Python calls: compiled at its first call, loaded from disk in later processes."""
    try:
        found: Any = njit(cache=True, error_model="numpy")(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        return cast(F, njit(error_model="numpy")(function))
    if isinstance(found, Dispatcher):  # else NUMBA_DISABLE_JIT
        _forget_outdated(found, function)
    return cast(F, found)


def _forget_outdated(found: Dispatcher, function: Callable[..., Any]) -> None:
    """numba compiles anew when a function's own file changed; here the others count, too."""
    folder = Path(str(found.stats.cache_path))
    newest = max(source.stat().st_mtime for source in Path(__file__).parent.glob("*.py"))
    module = function.__module__.rpartition(".")[2]
    for index in folder.glob(f"{module}.{function.__qualname__}-*.nbi"):
        if index.stat().st_mtime < newest:
            index.unlink(missing_ok=True)


def inlined(function: F) -> F:
    """For parts of compiled functions. Takes arrays `unowned`."""
    return cast(F, njit(forceinline=True, error_model="numpy")(function))


def entry_point(function: F, *example: object) -> F:
    """The machine code of a compiled function, for calls in a loop: no look-up by types.

    Calls it once with `example`. Later arguments must have the same types: of arrays only the
    size of an element is checked, and a float loses its fraction.
    """
    function(*example)
    if not isinstance(function, Dispatcher):
        return function
    found: Any = function.overloads[tuple(map(typeof, example))]
    return cast(F, found.entry_point)


def unowned(array: Array) -> Array:
    """An array's elements without its length and its count of references.

    numba counts references wherever a compiled function is given an array, which costs more than
    an order does. Nothing checks an index; the array must outlive its use.
    """
    return array


def signed(word: np.integer[Any]) -> int:
    """An array's element to count with: unsigned and signed together would make a float."""
    return int(word)


def lowest_bit(word: np.uint64) -> np.uint64:
    """Place of the lowest bit that is set; 0 has none and must not be asked."""
    value = int(word)
    return np.uint64((value & -value).bit_length() - 1)


def highest_bit(word: np.uint64) -> np.uint64:
    """Place of the highest bit that is set; 0 has none and must not be asked."""
    return np.uint64(int(word).bit_length() - 1)


# What numba compiles in place of the functions above.

_NEVER_ZERO = ir.Constant(ir.IntType(1), 1)


def _elements(_typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    pointer: Any = types.CPointer
    return pointer(array.dtype)(array), generate


def _trailing_zeros(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], _NEVER_ZERO)

    return types.uint64(types.uint64), generate


def _leading_zeros(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], _NEVER_ZERO)

    return types.uint64(types.uint64), generate


_pointer: Any = intrinsic(_elements)
_cttz: Any = intrinsic(_trailing_zeros)
_ctlz: Any = intrinsic(_leading_zeros)

overload(unowned)(lambda array: lambda array: _pointer(array))
overload(signed)(lambda word: lambda word: np.int64(word))
overload(lowest_bit)(lambda word: lambda word: _cttz(word))
overload(highest_bit)(lambda word: lambda word: np.uint64(63) - _ctlz(word))
