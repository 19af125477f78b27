# SPDX-License-Identifier: Apache-2.0
"""
Verdicts of programs on inputs that they have judged before: kept, so that they are not evaluated again.

Guarantee: a kept verdict is the one that the engine would give. A program has neither clock nor randomness, and it sees
nothing but the variables, and the fields of them, that its text names (`words.reads`). A verdict is kept by exactly
these: by tenant, kind and text of the program, and the SHA-256 of the bytes that the engine would be sent of each.
Errors are never kept, and no program is without a verdict.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from gateway.policy.engine import ACCESS_RULE, CEDAR_KINDS, Outcome, PolicyEngine, PolicyEngineError, Program, Verdict
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import reads

if TYPE_CHECKING:
    from ledger.format.canonical import Json

VERDICTS_MAX: Final = 50_000
"""Of all tenants; about 12 MB. Beyond it, the tenant with the most loses those that it used least recently."""
DROPPED_AT_ONCE: Final = 100
PROGRAMS_MAX: Final = 4_096
"""Programs whose texts are not scanned again."""

_ABSENT: Final = b"\x00" * 32
"""In place of the digest of a variable or field that is not among the inputs."""


class KnownVerdicts:
    """Asks an engine for what is not known yet, and keeps what it says. Event loop only."""

    def __init__(self, *, verdicts_max: int = VERDICTS_MAX) -> None:
        self._verdicts_max = verdicts_max
        self._count = 0
        self._kept: dict[int, OrderedDict[bytes, Outcome]] = {}
        """By log, least recently used first."""

    def __len__(self) -> int:
        return self._count

    async def judge(
        self,
        engine: PolicyEngine,
        programs: Sequence[Program],
        activation: Mapping[str, Json],
        *,
        log_id: int,
        timeout_s: float,
    ) -> tuple[Verdict, ...]:
        """
        Return a verdict for each of `programs`, like `PolicyEngine.judge`; the engine judges what is not known.

        Raises as `PolicyEngine.judge`; `PolicyEngineError.verdicts` has the known ones, too.
        """
        keys = _keys(programs, activation)
        known = self._look_up(log_id, keys)
        missing = [program for program, outcome in zip(programs, known, strict=True) if outcome is None]
        if not missing:
            return _merged(programs, known, ())
        try:
            verdicts = await engine.judge(missing, activation, log_id=log_id, timeout_s=timeout_s)
        except PolicyEngineError as error:
            if len(error.verdicts) == len(missing):
                error.verdicts = _merged(programs, known, error.verdicts)
            raise
        verdicts = _merged(programs, known, verdicts)
        self._keep(log_id, keys, verdicts)
        return verdicts

    def _look_up(self, log_id: int, keys: Sequence[bytes | None]) -> list[Outcome | None]:
        kept = self._kept.get(log_id)
        if kept is None:
            return [None] * len(keys)
        found: list[Outcome | None] = []
        for key in keys:
            outcome = None if key is None else kept.get(key)
            if outcome is not None and key is not None:
                kept.move_to_end(key)
            found.append(outcome)
        return found

    def _keep(self, log_id: int, keys: Sequence[bytes | None], verdicts: Sequence[Verdict]) -> None:
        kept = self._kept.setdefault(log_id, OrderedDict())
        before = len(kept)
        for key, verdict in zip(keys, verdicts, strict=True):
            if key is not None and verdict.outcome is not Outcome.ERROR:
                kept[key] = verdict.outcome
        self._count += len(kept) - before
        while self._count > self._verdicts_max:
            self._make_room()

    def _make_room(self) -> None:
        most = max(self._kept, key=lambda log_id: len(self._kept[log_id]))
        kept = self._kept[most]
        for _ in range(min(DROPPED_AT_ONCE, len(kept), self._count)):
            kept.popitem(last=False)
            self._count -= 1
        if not kept:
            del self._kept[most]


def _merged(
    programs: Sequence[Program], known: Sequence[Outcome | None], judged: Sequence[Verdict]
) -> tuple[Verdict, ...]:
    """Return the verdicts in the order of `programs`: those that are `known`, and for the others those `judged` now."""
    rest = iter(judged)
    return tuple(
        next(rest)
        if outcome is None
        else Verdict(kind=program.kind, id=program.id, version=program.version, outcome=outcome)
        for program, outcome in zip(programs, known, strict=True)
    )


def _keys(programs: Sequence[Program], activation: Mapping[str, Json]) -> list[bytes | None]:
    """Return the key of each program's verdict; None for one whose inputs have no bytes: the engine says so."""
    digests: dict[tuple[str, str | None], bytes | None] = {}
    keys: list[bytes | None] = []
    for program in programs:
        prefix, inputs = _inputs(program.judged_as, program.expression)
        pieces: list[bytes] = [prefix]
        for one in inputs:
            if one not in digests:
                digests[one] = _digest(activation, *one)
            if (digest := digests[one]) is None:
                break
            pieces.append(digest)
        else:
            keys.append(sha256(b"".join(pieces)).digest())
            continue
        keys.append(None)
    return keys


@lru_cache(maxsize=PROGRAMS_MAX)
def _inputs(kind: str, expression: str) -> tuple[bytes, tuple[tuple[str, str | None], ...]]:
    """Return the digest of a program, and what it reads, in a fixed order: variables with a field, or None for all."""
    digest = sha256(orjson.dumps([kind, expression])).digest()
    # What a policy in Cedar reads is known to those who judge it: to us it is all that there is.
    found = dict.fromkeys(variables_of(ACCESS_RULE)) if kind in CEDAR_KINDS else reads(expression, variables_of(kind))
    return digest, tuple(
        (variable, field)
        for variable, fields in sorted(found.items())
        for field in ([None] if fields is None else sorted(fields))
    )


def _digest(activation: Mapping[str, Json], variable: str, field: str | None) -> bytes | None:
    """Return the SHA-256 of a variable or field as it would be sent, in the order of its members."""
    if variable not in activation:
        return _ABSENT
    value = activation[variable]
    if field is not None and isinstance(value, Mapping):
        if field not in value:
            return _ABSENT
        value = value[field]
    try:
        return sha256(orjson.dumps(value)).digest()
    except orjson.JSONEncodeError:
        return None
