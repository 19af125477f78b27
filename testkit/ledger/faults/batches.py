# SPDX-License-Identifier: Apache-2.0
"""
What is appended at a point of the fault table: drawn by a seed alone, so that any process can draw it again.

Sizes around the borders of tiles, several logs, groups of every kind: plain, with parts, large, guarded (held, not
held, failing), twins, others under the same id, stale ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from ledger.format.event import Event, Part, PreparedEvent, prepare, random_group_id
from ledger.format.guards import GuardCall
from ledger.format.sequence import Group

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
SIZES: Final = (0, 1, 2, 127, 250, 253, 254, 255, 256, 257, 260, 509, 511, 512)
"""Sizes of logs before the batch: around the borders of tiles, mostly."""
SUBJECTS: Final = tuple(f"{number:032x}" for number in (0xADA, 0xE0E, 0xB0B << 116))

_FILLING: Final = prepare(
    Event(type="commit.decided", version=1, key="table:t", actor="system", occurred_at=NOON, data={"filling": 1})
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What the logs hold before, and what is then appended at once: pairs of the number of a log and a group."""

    seed: int
    sizes: tuple[int, ...]
    before: tuple[tuple[int, Group], ...]
    groups: tuple[tuple[int, Group], ...]
    warming: tuple[Group, ...]
    """What the Appender appends to the first log on its connection before anything fails: perhaps nothing."""
    unsure: frozenset[UUID]
    """Ids that two groups of different content have: either may be in the log."""


def draw_batch(seed: int, *, sealed: bool) -> Batch:
    """Return the batch of that seed; `sealed` ones are about people, so that their parts are encrypted."""
    draw = _Draw(random.Random(f"{seed} {sealed}"), sealed)  # noqa: S311 - it is to be repeatable
    logs = draw.random.choice((1, 1, 1, 2, 3))
    sizes = tuple(draw.random.choice(SIZES) for _ in range(logs))
    # So often that every statement is prepared.
    warming = tuple(draw.group(1) for _ in range(6)) if draw.random.random() < 0.4 else ()
    before = [
        (log, Group(id=draw.id(), then=(_FILLING,) * min(250, size - at)))
        for log, size in enumerate((max(0, sizes[0] - len(warming)), *sizes[1:]))
        for at in range(0, size, 250)
    ]
    before += [(log, draw.aggregate("policy:taken", 1)) for log in range(logs)]
    groups: list[tuple[int, Group]] = []
    unsure: set[UUID] = set()
    for _ in range(draw.random.choice((1, 2, 3, 5, 8, 8, 13, 40))):
        log = draw.random.randrange(logs)
        of_kind = list(draw.some())
        if len({id(one) for one in of_kind}) > 1 and len({one.id for one in of_kind}) < len(of_kind):
            unsure.add(of_kind[0].id)
        groups += [(log, one) for one in of_kind]
    return Batch(
        seed=seed,
        sizes=sizes,
        before=tuple(before),
        groups=tuple(groups),
        warming=warming,
        unsure=frozenset(unsure),
    )


class _Draw:
    def __init__(self, random_: random.Random, sealed: bool) -> None:
        self.random = random_
        self._sealed = sealed
        self._version = 0
        self._has_large = False

    def id(self) -> UUID:
        return random_group_id(
            now_ms=1_700_000_000_000 + self.random.randrange(2**30), random=self.random.randbytes(10)
        )

    def some(self) -> Iterator[Group]:
        """Yield the groups of one kind."""
        match 3 if self._sealed else self.random.randrange(12):
            case 0 | 1 | 2:
                yield self.group(self.random.randrange(1, 4))
            case 3 | 4:
                yield Group(
                    id=self.id(), then=tuple(self.event(parts=True) for _ in range(self.random.randrange(1, 4)))
                )
            case 5 if not self._has_large:
                self._has_large = True
                yield self.group(self.random.choice((60, 254, 255, 256, 257, 300)))
            case 6:
                for version in range(self._version + 1, self._version + self.random.randrange(2, 5)):
                    yield self.aggregate("policy:new", version)
                    self._version = version
            case 7:
                yield self.aggregate("policy:taken", 1, otherwise=(self.event(),))
            case 8:
                yield self.aggregate("policy:taken", 1)
            case 9:
                bad, too_large = self.aggregate("policy:bad", 1), self.aggregate("policy:taken", 2**40)
                yield Group(id=self.id(), then=bad.then, guard=(*bad.guard, *too_large.guard))
            case 10:
                twin = self.group(1)
                yield twin
                yield twin
                if self.random.random() < 0.5:
                    yield Group(id=twin.id, then=(self.event(),))
            case _:
                then = self.group(1).then
                yield Group(id=self.id(), then=then, as_of=self.random.choice((-1, 0, 600)))

    def group(self, events: int) -> Group:
        return Group(id=self.id(), then=(self.event(),) * events)

    def event(self, *, parts: bool = False) -> PreparedEvent:
        subject = self.random.choice(SUBJECTS) if self._sealed else None
        named: tuple[Part, ...] = ()
        if parts:
            named = tuple(
                Part(name=name, payload=self.random.randbytes(size), salt=self.random.randbytes(32), subject=subject)
                for name, size in zip(
                    ("inputs", "principal"), self.random.choices((0, 1, 100, 9_000), k=2), strict=True
                )
            )
        return prepare(
            Event(
                type="commit.decided",
                version=1,
                key="table:lake/t",
                actor=subject or "system",
                occurred_at=NOON,
                data={"n": self.random.randrange(2**32)},
                parts=named,
            )
        )

    def aggregate(self, key: str, version: int, *, otherwise: tuple[PreparedEvent, ...] = ()) -> Group:
        call = (
            GuardCall("aggregate.create", {"key": key})
            if version == 1
            else GuardCall("aggregate.change", {"key": key, "version": version})
        )
        event = Event(
            type="policy.created" if version == 1 else "policy.changed",
            version=1,
            key=key,
            actor="system",
            occurred_at=NOON,
            data={"id": key.partition(":")[2], "version": version},
        )
        return Group(id=self.id(), then=(prepare(event),), otherwise=otherwise, guard=(call,))
