"""
How Python that numba understands is compiled: without the interpreter's lock, and without reference counts.

Those numba would keep, atomically, for every array at every call between compiled functions: four times as slow. So
nothing that is compiled may make an array.

numba keeps what it has compiled where `NUMBA_CACHE_DIR` says, else beside the function's file, else in the user's
cache, and looks at nothing but the date and size of that one file. What compiled code calls must therefore stand in the
same file, and what may change without it must come as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_Function = TypeVar("_Function", bound=Callable[..., Any])

_njit: Any = numba.njit  # whose published types leave `_nrt` out


def compiled(function: _Function) -> _Function:
    """Compile at the first call."""
    return cast("_Function", _njit(nogil=True, _nrt=False)(function))


def kept(function: _Function) -> _Function:
    """Compile at the first call, and keep the result on disk where there is a place for it."""
    try:
        return cast("_Function", _njit(nogil=True, _nrt=False, cache=True)(function))
    except RuntimeError:  # numba found no directory that it may write to
        return compiled(function)
