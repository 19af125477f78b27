# SPDX-License-Identifier: Apache-2.0
"""
Guards: conditions that are checked and made true in the same transaction that appends.

A guard is a name and its SQL. A group uses guards by name with parameters (`GuardCall`). A guard holds if each of its
statements affects exactly one row. The sequencer binds `log_id` itself, and every guarded key begins with it, so a
guard cannot change another tenant's rows. A guard that reads them comes after another one that takes a lock. A guard's
SQL uses no clock and no randomness, so its rows are a function of the log and can be replayed from it. A statement is a
SELECT, INSERT, UPDATE or DELETE, with or without WITH; groups with others are appended, but never in one round trip
(`append/must_hold.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ledger.errors import GuardError
from ledger.format.entry import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A named guard; each statement takes named parameters (`%(name)s`), `log_id` among them."""

    name: str
    statements: tuple[str, ...]

    def __post_init__(self) -> None:
        for statement in self.statements:
            if "%(log_id)s" not in statement:
                raise GuardError(f"guard {self.name}: expected every statement to be bound to %(log_id)s")


@dataclass(frozen=True, slots=True)
class GuardCall:
    """One use of a guard by a group; `parameters` must not name `log_id`."""

    guard: str
    parameters: Mapping[str, object]


class EntryWithParts(Protocol):
    """An entry of the log with its payload parts, from which the guards that its group ran are derived."""

    @property
    def entry(self) -> Entry:
        """The entry."""

    def part(self, name: str, /) -> bytes:
        """Return the payload part of that name, or raise."""


class GuardRegistry:
    """The guards that an Appender knows, by name. A group that names another guard is refused. Never changed."""

    def __init__(self, guards: Iterable[Guard]) -> None:
        self._guards: dict[str, Guard] = {}
        for guard in guards:
            if guard.name in self._guards:
                raise GuardError(f"guard {guard.name}: registered twice")
            self._guards[guard.name] = guard

    def statements(self, call: GuardCall, *, log_id: int) -> list[tuple[str, Mapping[str, object]]]:
        """
        Return the statements of `call` with their parameters, bound to `log_id`.

        Raises:
            GuardError: if there is no such guard, its parameters have no names, or the caller tries to bind `log_id`.
        """
        guard = self._guards.get(call.guard)
        if guard is None:
            raise GuardError(f"guard {call.guard}: expected one of {sorted(self._guards)}")
        given: object = call.parameters  # not checked before, and an error here must affect this group only
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise GuardError(f"guard {call.guard}: expected parameters by their names, found {type(given).__name__}")
        if "log_id" in call.parameters:
            raise GuardError(f"guard {call.guard}: log_id is bound by the sequencer, not by the caller")
        bound = {**call.parameters, "log_id": log_id}
        return [(statement, bound) for statement in guard.statements]
