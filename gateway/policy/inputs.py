# SPDX-License-Identifier: Apache-2.0
"""
The variables of one judgement as they are sent: each field that a program names is written as JSON once.

Guarantee: the digest of a value is the SHA-256 of exactly the bytes that the engine is sent for it, and what programs
may read (`words.reads`) is all sent. What none of them names is neither written nor sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from gateway.policy.engine import ACCESS_RULE, CEDAR_KINDS
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import reads

if TYPE_CHECKING:
    from ledger.format.canonical import Json

PROGRAMS_MAX: Final = 4_096
"""Programs whose texts are not scanned again."""
PLANS_MAX: Final = 256
"""Sets of programs that are judged together, and are not written again, unless they are longer than the next figure."""
PLAN_BYTES_MAX: Final = 65_536
LASTING_FIELDS: Final = {"table": frozenset({"columns", "fields"}), "result": frozenset({"columns", "fields"})}
"""Lists that a table keeps from commit to commit, as long as its schema is the same (`table.table_of`)."""
LASTING_MAX: Final = 512
LASTING_BYTES_MAX: Final = 4 * 2**20
"""Of what is remembered of such lists, as JSON."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as JSON, and the SHA-256 of that."""

    data: bytes
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What a program may read: variables with a field, or None for the whole, in a fixed order; and its own digest."""

    digest: bytes
    fields: tuple[tuple[str, str | None], ...]


@lru_cache(maxsize=PROGRAMS_MAX)
def read_by(kind: str, expression: str) -> Reads:
    """
    Return what a program may read.
    """
    digest = sha256(orjson.dumps([kind, expression])).digest()
    # What a policy in Cedar reads is known to those who judge it: to us it is all that there is.
    found = dict.fromkeys(variables_of(ACCESS_RULE)) if kind in CEDAR_KINDS else reads(expression, variables_of(kind))
    fields = tuple(
        (variable, field)
        for variable, fields in sorted(found.items())
        for field in ([None] if fields is None else sorted(fields))
    )
    return Reads(digest=digest, fields=fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Programs (kind and expression) that are judged together, as JSON, and what they may read, each field once."""

    programs: Encoded
    fields: tuple[tuple[str, str | None], ...]


class _Plans:
    """Plans that were made before, least recently used first; those of long texts are made again."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[tuple[str, str], ...], Plan] = OrderedDict()

    def of(self, pairs: tuple[tuple[str, str], ...]) -> Plan:
        plan = self._made.get(pairs)
        if plan is not None:
            self._made.move_to_end(pairs)
            return plan
        plan = _plan(pairs)
        if len(plan.programs.data) <= PLAN_BYTES_MAX:
            self._made[pairs] = plan
            if len(self._made) > PLANS_MAX:
                self._made.popitem(last=False)
        return plan


def _plan(pairs: tuple[tuple[str, str], ...]) -> Plan:
    named = dict.fromkeys(field for kind, expression in pairs for field in read_by(kind, expression).fields)
    whole = {variable for variable, field in named if field is None}
    fields = tuple((variable, field) for variable, field in named if field is None or variable not in whole)
    return Plan(programs=encoded(pairs), fields=fields)


_plans: Final = _Plans()


def plan_of(pairs: tuple[tuple[str, str], ...]) -> Plan:
    """
    Return the plan to judge programs; event loop only. Raises `orjson.JSONEncodeError` if one cannot be written.
    """
    return _plans.of(pairs)


def encoded(value: object) -> Encoded:
    """
    Return a value as JSON. Raises `orjson.JSONEncodeError` if it is none.
    """
    data = orjson.dumps(value)
    return Encoded(data, sha256(data).digest())


class LastingValues:
    """
    Remembers how lists were written that stay the same object, and are never changed; bounded. Event loop only.
    """

    def __init__(self, *, values_max: int = LASTING_MAX, bytes_max: int = LASTING_BYTES_MAX) -> None:
        self._values_max = values_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[int, tuple[object, Encoded]] = OrderedDict()
        """By the identity of a list, which nobody else has as long as it is here."""

    def encoded(self, value: object) -> Encoded:
        """Return a list as JSON. Raises as `encoded`."""
        known = self._known.get(id(value))
        if known is not None:
            self._known.move_to_end(id(value))
            return known[1]
        made = encoded(value)
        self._known[id(value)] = value, made
        self._bytes += len(made.data)
        while len(self._known) > self._values_max or self._bytes > self._bytes_max:
            _, (_, oldest) = self._known.popitem(last=False)
            self._bytes -= len(oldest.data)
        return made


class Inputs(Mapping[str, "Json"]):
    """The variables of one judgement, which do not change meanwhile, and those parts as JSON that were asked for."""

    def __init__(self, activation: Mapping[str, Json], lasting: LastingValues | None = None) -> None:
        self._activation = activation
        self._lasting = lasting
        self._encoded: dict[tuple[str, str | None], Encoded | None] = {}

    def __getitem__(self, name: str) -> Json:
        return self._activation[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._activation)

    def __len__(self) -> int:
        return len(self._activation)

    def encoded(self, variable: str, field: str | None) -> Encoded | None:
        """
        Return a variable as JSON, or of one that is a map a field; None if it is not among the inputs.

        Raises:
            orjson.JSONEncodeError: if it cannot be written.
        """
        key = variable, field
        if key in self._encoded:
            return self._encoded[key]
        found = self._encoded[key] = self._write(variable, field)
        return found

    def has_fields(self, variable: str) -> bool:
        """Return whether a variable is among the inputs, and a map."""
        return isinstance(self._activation.get(variable), Mapping)

    def _write(self, variable: str, field: str | None) -> Encoded | None:
        if variable not in self._activation:
            return None
        value = self._activation[variable]
        if field is None or not isinstance(value, Mapping):
            return encoded(value)
        if field not in value:
            return None
        part = value[field]
        if self._lasting is not None and type(part) is list and field in LASTING_FIELDS.get(variable, ()):
            return self._lasting.encoded(part)
        return encoded(part)


def inputs_of(activation: Mapping[str, Json]) -> Inputs:
    """
    Return variables as inputs, unless they are some already.
    """
    return activation if isinstance(activation, Inputs) else Inputs(activation)
