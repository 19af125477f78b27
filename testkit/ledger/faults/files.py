# SPDX-License-Identifier: Apache-2.0
"""
Faults at every step that a piece of work does on files: an error of the disk, or a crash before or after the step.

The functions of `os` and `fcntl` that our code writes files with are replaced once for the process; which step fails is
kept in a context variable, so that several pieces of work may run at the same time, in threads, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial, wraps
from typing import Any, Self


class Crash(BaseException):
    """The process is gone: nothing catches this."""


class FileFault(StrEnum):
    """How a step goes wrong."""

    ERROR = "the disk has an error"
    FULL = "the disk is full"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    NOT = "nothing: steps are only counted"


@dataclass
class FilePlan:
    """Fail at step number `step` of those that come; `seen` are the names of those that came."""

    step: int
    fault: FileFault
    seen: list[str] = field(default_factory=list)
    hit: bool = False


_plan: ContextVar[FilePlan | None] = ContextVar("file plan", default=None)

STEPS = ((os, "open"), (os, "fsync"), (os, "replace"), (os, "pwrite"), (os, "link"), (os, "unlink"), (fcntl, "flock"))


@contextmanager
def file_faults() -> Iterator[None]:
    """Let plans be followed while this is open; those who have none notice nothing."""
    kept = [(module, name, getattr(module, name)) for module, name in (*STEPS, (os, "fdopen"))]
    for module, name, real in kept[:-1]:
        setattr(module, name, _failing(name, real))
    setattr(os, "fdopen", _opening(os.fdopen))  # noqa: B010  (no type describes it)
    try:
        yield
    finally:
        for module, name, real in kept:
            setattr(module, name, real)


@contextmanager
def planned(plan: FilePlan | None) -> Iterator[None]:
    """Let what is done here, and in tasks and threads that are started here, follow `plan`."""
    token = _plan.set(plan)
    try:
        yield
    finally:
        _plan.reset(token)


def _failing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def step(*arguments: Any, **options: Any) -> Any:
        return _step(name, partial(real, *arguments, **options), lambda: None)

    return step


def _step(name: str, real: Callable[[], Any], half: Callable[[], object]) -> Any:
    """Do one step, or fail at it; `half` is what an error leaves of it."""
    plan = _plan.get()
    if plan is None:
        return real()
    plan.seen.append(name)
    if len(plan.seen) != plan.step + 1:
        return real()
    plan.hit = plan.fault is not FileFault.NOT
    match plan.fault:
        case FileFault.ERROR:
            half()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        case FileFault.FULL:
            half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case FileFault.CRASH_BEFORE:
            raise Crash
        case FileFault.CRASH_AFTER:
            real()
            raise Crash
    return real()


def _opening(fdopen: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fdopen` for files whose writing is a step that may be done by half."""

    @wraps(fdopen)
    def opened(*arguments: Any, **options: Any) -> Any:
        file = fdopen(*arguments, **options)
        if _plan.get() is None or not file.writable():
            return file
        return _HalfWritten(file)

    return opened


class _HalfWritten:
    """A file that is being written."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: bytes) -> None:
        """Write all of it, or fail."""
        _step("write", partial(self._file.write, data), partial(self._file.write, data[: len(data) // 2]))
