# SPDX-License-Identifier: Apache-2.0
"""
Values that a worker keeps, so that they are not sent, read and checked for every commit: the columns of a table, the
programs of a tenant. Both sides of it: `KnownValues` is the parent's, `KeptValues` the worker's.

The parent decides what is kept. It names a value by the SHA-256 of its JSON, sends it with the word to keep it when it
meets it for the second time, and by its digest alone from then on. Where room is needed, what it has not sent for
longest is forgotten.

Guarantee: a digest names one value, so a worker never judges on another one. Where it does not keep a digest, nothing
is judged: the parent is told, and sends everything. A worker keeps at most `BYTES_MAX` of JSON, of `VALUES_MAX` values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.policy.frames import FrameError
from gateway.policy.inputs import Encoded

VALUES_MAX: Final = 256
BYTES_MAX: Final = 2**20
"""Read, they are some ten times as large: a small part of the memory of a worker."""
VALUE_BYTES_MIN: Final = 128
"""A smaller one is about as long as its name, and read as fast."""
VALUE_BYTES_MAX: Final = 2**17
SEEN_MAX: Final = 1_024
"""Digests of values that were sent once."""
ALL: Final = "all"
"""In place of the digests of what is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """
    How values are sent: those that are `named` by their digests, among them those `keep` that the worker keeps from now
    on, and what it is to `forget` before (digests, or `ALL`).
    """

    named: AbstractSet[bytes] = frozenset()
    keep: Mapping[bytes, Encoded] = field(default_factory=dict)
    forget: str | Sequence[str] = ()


IN_FULL: Final = Sending()
"""Nothing is named."""


class KnownValues:
    """What a worker keeps, as its parent knows it. Event loop only."""

    def __init__(self, *, values_max: int = VALUES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._values_max = values_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[bytes, int] = OrderedDict()
        """The lengths of values, by digest; the one that was not sent for longest is first."""
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._is_unknown = False

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """How much JSON is kept."""
        return self._bytes

    def sending(self, values: Sequence[Encoded]) -> Sending:
        """Return how the values of a request are sent, and note that they are."""
        named: set[bytes] = set()
        size, rest = 0, list[Encoded]()
        for value in values:
            if value.digest not in self._kept:
                rest.append(value)
            elif value.digest not in named:
                named.add(value.digest)
                self._kept.move_to_end(value.digest)
                size += len(value.data)
        keep: dict[bytes, Encoded] = {}
        for value in rest:
            if value.digest in keep or not self._is_worth_keeping(value):
                continue
            if size + len(value.data) <= self._bytes_max and len(named) < self._values_max:
                keep[value.digest] = value
                named.add(value.digest)
                size += len(value.data)
                self._kept[value.digest] = len(value.data)
                self._bytes += len(value.data)
        forget = self._make_room()
        if self._is_unknown:
            self._is_unknown = False
            return Sending(named=named, keep=keep, forget=ALL)
        return Sending(named=named, keep=keep, forget=forget)

    def clear(self) -> None:
        """Take nothing for known any more; the worker is told to forget all with the next request."""
        self._kept.clear()
        self._bytes = 0
        self._is_unknown = True

    def _is_worth_keeping(self, value: Encoded) -> bool:
        """Return whether a value, which is sent now, was sent before, and is neither too small nor too large."""
        if not VALUE_BYTES_MIN <= len(value.data) <= VALUE_BYTES_MAX:
            return False
        if value.digest in self._seen:
            return True
        self._seen[value.digest] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return False

    def _make_room(self) -> list[str]:
        """Forget what was not sent for longest: never what is sent now, which fits."""
        forgotten = []
        while len(self._kept) > self._values_max or self._bytes > self._bytes_max:
            oldest, size = self._kept.popitem(last=False)
            self._bytes -= size
            forgotten.append(oldest.hex())
        return forgotten


class UnknownValueError(Exception):
    """A value was named by a digest that is not kept."""


class KeptValues:
    """
    What a worker keeps. `check` raises ValueError for a value that CEL has none for. For one thread only.

    `sound` has the identities of the values that were checked: they need not be checked again.
    """

    def __init__(self, check: Callable[[Any], None], *, values_max: int = VALUES_MAX) -> None:
        self._check = check
        self._values_max = values_max
        self._values: dict[str, Any] = {}
        self.sound: set[int] = set()

    def change(self, forget: str | Sequence[str], keep: Mapping[str, Any]) -> None:
        """
        Forget and keep what the parent says.

        Raises:
            FrameError: if that is more than is kept.
        """
        for digest in (*(tuple(self._values) if forget == ALL else forget), *keep):
            self.sound.discard(id(self._values.pop(digest, None)))
        self._values.update(keep)
        if len(self._values) > self._values_max:
            raise FrameError(f"expected at most {self._values_max} values to keep, found {len(self._values)}")

    def value(self, digest: str) -> Any:
        """
        Return the value that a digest names; it is checked once.

        Raises:
            UnknownValueError: if it is not kept.
        """
        if digest not in self._values:
            raise UnknownValueError(digest)
        value = self._values[digest]
        if id(value) not in self.sound:
            try:
                self._check(value)
            except (ValueError, RuntimeError, MemoryError):
                return value  # each program that reads it fails with that
            self.sound.add(id(value))
        return value
