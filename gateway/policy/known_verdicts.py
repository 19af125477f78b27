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
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from gateway.policy.engine import Outcome, PolicyEngine, PolicyEngineError, Program, Verdict
from gateway.policy.inputs import Inputs, LastingValues, read_by

if TYPE_CHECKING:
    from ledger.format.canonical import Json

VERDICTS_MAX: Final = 50_000
"""Of all tenants; about 12 MB. Beyond it, the tenant with the most loses those that it used least recently."""
DROPPED_AT_ONCE: Final = 100

_ABSENT: Final = b"\x00" * 32
"""In place of the digest of a variable or field that is not among the inputs."""


class KnownVerdicts:
    """Asks an engine for what is not known yet, and keeps what it says. Event loop only."""

    def __init__(self, *, verdicts_max: int = VERDICTS_MAX) -> None:
        self._verdicts_max = verdicts_max
        self._lasting = LastingValues()
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
        inputs = Inputs(activation, self._lasting)
        keys = _keys(programs, inputs)
        known = self._look_up(log_id, keys)
        missing = [program for program, outcome in zip(programs, known, strict=True) if outcome is None]
        if not missing:
            return _merged(programs, known, ())
        try:
            verdicts = await engine.judge(missing, inputs, log_id=log_id, timeout_s=timeout_s)
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


def _keys(programs: Sequence[Program], inputs: Inputs) -> list[bytes | None]:
    """Return the key of each program's verdict; None for one whose inputs have no bytes: the engine says so."""
    of_fields: dict[tuple[tuple[str, str | None], ...], bytes | None] = {}  # many programs read the same
    keys: list[bytes | None] = []
    for program in programs:
        read = read_by(program.judged_as, program.expression)
        if read.fields not in of_fields:
            of_fields[read.fields] = _digests(read.fields, inputs)
        digests = of_fields[read.fields]
        keys.append(None if digests is None else sha256(read.digest + digests).digest())
    return keys


def _digests(fields: Sequence[tuple[str, str | None]], inputs: Inputs) -> bytes | None:
    """Return the digests of some inputs, in their order; None if one has no bytes."""
    try:
        values = [inputs.encoded(variable, field) for variable, field in fields]
    except orjson.JSONEncodeError:
        return None
    return b"".join([_ABSENT if value is None else value.digest for value in values])
