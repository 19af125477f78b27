# SPDX-License-Identifier: Apache-2.0
"""
Random events, of everything that the format allows: text of all planes, edge integers, times at which clocks change.

Drawing each value anew would take longer than all the rest, so values come from pools, drawn anew for each round.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final
from uuid import UUID

from ledger.format.canonical import DEPTH_MAX, INTEGER_MAX, Json
from ledger.format.event import (
    EVENT_SIZE_BYTES_MAX,
    GROUP_EVENTS_MAX,
    KEY_LENGTH_MAX,
    Event,
    Part,
    PreparedEvent,
    prepare,
)
from ledger.format.sequence import Group

TYPES: Final = (
    "commit.decided", "commit.settled", "commit.observed", "lineage.received", "scan.requested", "trigger.received",
    "policy.created", "policy.changed", "key.revoked", "catalog.created", "a.b", "long_family_name.long_event_name",
)  # fmt: skip
INTEGERS: Final = (0, 1, -1, 255, -256, 2**31, -(2**31), 2**53 - 2, INTEGER_MAX, -INTEGER_MAX)
PLANES: Final = (
    (0x00, 0x20), (0x20, 0x7F), (0x7F, 0xA0), (0xA0, 0x250), (0x2028, 0x202F), (0x4E00, 0x9FFF), (0xE000, 0xF8FF),
    (0xFDD0, 0xFDF0), (0xFFF0, 0x10000), (0x10000, 0x20000), (0x20000, 0x30000), (0x30000, 0xE0000), (0xE0000, 0xF0000),
    (0xF0000, 0x110000),
)  # fmt: skip
ZONES: Final = (
    "UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns",
    "Pacific/Apia", "Africa/Casablanca",
)  # fmt: skip
_INSTANTS: Final = tuple(
    datetime.fromisoformat(text).replace(tzinfo=UTC)
    for text in (
        "2025-03-09T07:00:00", "2025-03-30T01:00:00", "2025-04-05T15:00:00", "2025-10-04T15:30:00",
        "2025-10-26T01:00:00", "2025-11-02T06:00:00", "2024-02-29T00:00:00", "2028-02-29T23:59:59",
        "2023-12-31T23:59:59", "2024-01-01T00:00:00", "2016-12-31T23:59:59", "2038-01-19T03:14:07",
        "1999-12-31T23:59:59", "1970-01-01T00:00:00", "2100-02-28T23:59:59",
    )
)  # fmt: skip
EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
POOL: Final = 1_000


class EventPool:
    """Values to make events of, drawn from `random`; `dear` ones, large or deep, are used now and then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.texts = ["", *(self._text(random.choice((1, 3, 10, 40))) for _ in range(POOL))]
        self.names = ["", *(self._ascii(random.choice((1, 5, 12)), first=0x00, last=0x7F) for _ in range(POOL // 4))]
        self.keys = [self._ascii(random.choice((1, 20, 80)), first=0x21, last=0x7E) for _ in range(POOL // 2)]
        self.keys += [self._ascii(KEY_LENGTH_MAX, first=0x21, last=0x7E), "~", "%", '"', "\\"]
        self.times = [self.time() for _ in range(POOL)] + [EARLIEST, LATEST]
        self.actors = ["system", "0" * 32, "f" * 32, *(random.randbytes(16).hex() for _ in range(50))]
        self.values: list[Json] = [None, True, False, {}, [], *INTEGERS, *self.texts[:50]]
        self.values += [self._value(4) for _ in range(POOL)]
        self.dear: list[dict[str, Json]] = [
            {"deep": _nested(DEPTH_MAX - 3)},
            {"": "x" * (EVENT_SIZE_BYTES_MAX - KEY_LENGTH_MAX - 2_000)},
            {"x" * 20_000: 0, "wide": [0] * 10_000},
            {"escaped": '\x00\x1f"\\' * 2_000},
            {chr(code): code for code in range(128)},
        ]

    def groups(self, count: int) -> Iterator[Group]:
        """Yield groups of `count` events in all: of one to three mostly, and some as large as a group may be."""
        random = self._random
        while count:
            of = min(GROUP_EVENTS_MAX if random.random() < 0.0005 else random.randint(1, 3), count)
            count -= of
            then = tuple(self.event() for _ in range(of))
            yield Group(id=UUID(int=random.getrandbits(128)), then=then)

    def event(self) -> PreparedEvent:
        """Return an event; one in twenty has payload parts, one in two thousand is large or deep."""
        random, choice = self._random, self._random.choice
        drawn = random.random()
        data = (
            choice(self.dear)
            if drawn > 0.9995
            else {choice(self.names): choice(self.values) for _ in range(int(drawn * 5))}
        )
        return prepare(
            Event(
                type=choice(TYPES),
                version=choice((1, 2, INTEGER_MAX // 10)),
                key=choice(self.keys),
                actor=choice(self.actors),
                occurred_at=choice(self.times),
                data=data,
                parts=self._parts() if drawn < 0.05 else (),
            )
        )

    def time(self) -> datetime:
        """Return a time near a change of clocks, a leap day or the end of a year, often at the end of a second."""
        random = self._random
        near = random.choice(_INSTANTS) + timedelta(hours=random.randint(-13, 14), seconds=random.randint(-2, 2))
        return near.replace(microsecond=random.choice((0, 999_999, 1, random.randrange(10**6))))

    def _parts(self) -> tuple[Part, ...]:
        random = self._random
        names = random.sample(("a", "inputs", "principal", "z" * 63), random.randint(1, 3))
        sizes = (0, 1, 31, 500, 60_000 if random.random() < 0.01 else 7)
        return tuple(
            Part(name=name, payload=random.randbytes(random.choice(sizes)), salt=random.randbytes(32)) for name in names
        )

    def _value(self, depth: int) -> Json:
        random = self._random
        kind = random.randrange(6 if depth else 4)
        if kind == 0:
            return random.choice(INTEGERS)
        if kind == 1:
            return random.randint(-INTEGER_MAX, INTEGER_MAX)
        if kind < 4:
            return random.choice(self.texts)
        if kind == 4:
            return [self._value(depth - 1) for _ in range(random.randrange(4))]
        return {random.choice(self.names): self._value(depth - 1) for _ in range(random.randrange(4))}

    def _text(self, length: int) -> str:
        return "".join(chr(self._random.randrange(*self._random.choice(PLANES))) for _ in range(length))

    def _ascii(self, length: int, *, first: int, last: int) -> str:
        return "".join(chr(self._random.randint(first, last)) for _ in range(length))


def _nested(levels: int) -> Json:
    value: Json = {}
    for level in range(levels - 1):
        value = [value] if level % 2 else {"n": value}
    return value
