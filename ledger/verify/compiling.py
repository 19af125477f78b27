# SPDX-License-Identifier: Apache-2.0
"""
Compiles Python with numba: without the interpreter's lock, and without reference counts.

numba would count references atomically, for every array at every call between compiled functions: four times as slow.
So compiled code must not create arrays.

numba stores compiled code where `NUMBA_CACHE_DIR` says, else next to the function's file, else in the user's cache. It
compiles again only if the date or size of that one file has changed. So whatever compiled code calls must be in the
same file, and whatever differs between processes must be an argument.
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


def cached(function: _Function) -> _Function:
    """Compile at the first call, and store the result on disk if numba finds a folder for it."""
    try:
        return cast("_Function", _njit(nogil=True, _nrt=False, cache=True)(function))
    except RuntimeError:  # no folder that it may write to
        return compiled(function)
