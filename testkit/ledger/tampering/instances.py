# SPDX-License-Identifier: Apache-2.0
"""
What tampering is made of: a world of logs, one change to it, what must be said then, and how everything is put back.

An instance of tampering is one random change, made as the owner of the database could make it: constraints are
dropped, triggers do not run. Then the log is verified by what `lakeproof ledger verify --log` calls, what it says is
compared with what it must say, and the rows that were touched are put back from a copy. `world.py` writes the
logs, `columns.py`, `tables.py` and `files.py` are the classes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import EllipsisType
from typing import Any, Final, TypeAlias

from psycopg.sql import SQL, Composed, Identifier

from lakeproof.commands.verify_database import verify_log
from lakeproof.commands.verify_options import VerifyOptions
from lakeproof.installation import Installation
from ledger.anchoring.archive import ArchivedNotes
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.format.sequence import SequencedEntry
from ledger.format.verification import VerificationReport
from ledger.signing.key_directory import KeyDirectory
from ledger.store.read import Log
from ledger.store.session import Connection
from ledger.verify.workers import Effort
from testkit.ledger.tampering.kernel import counted_pages

EXACT, FAST = Effort(kernel_entries_min=2**62), Effort(kernel_entries_min=0)
EFFORTS: Final[Mapping[str, Effort]] = {"exact": EXACT, "fast": FAST}
"""Every entry looked at by itself; and what the compiled kernel accepts, accepted a page at a time."""

KEYS: Final[Mapping[str, Sequence[str]]] = {
    "logs": ("log_id",),
    "heads": ("log_id",),
    "entries": ("log_id", "index"),
    "parts": ("log_id", "index", "name"),
    "tiles": ("log_id", "level", "tile"),
    "checkpoints": ("log_id", "size"),
    "cosignatures": ("log_id", "size", "name", "key_id"),
    "stamps": ("log_id", "size"),
}
"""The tables that are tampered with, and how a row of each is distinguished from the others."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification says: a fault and the first bad index, where one can be named. No fault: the log verifies."""

    fault: Fault | None
    index: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tampered:
    """
    What was done, which log is verified then, and what must be said of it: one of `faults`, at `index`.

    An index of `...` is whichever: that of an entry that was not moved, in a file whose every byte is bound.
    """

    faults: frozenset[Fault]
    index: int | EllipsisType | None
    detail: str
    log: str = "one"
    held: tuple[bytes, ...] = ()
    all_rows: bool = False
    """Whether every row is to be put back, because an index cannot be relied on to find those that were touched."""


def faulty(*faults: Fault, index: int | EllipsisType | None = None, detail: str = "", **more: Any) -> Tampered:
    """Return what must be said after a change: one of `faults`."""
    return Tampered(faults=frozenset(faults), index=index, detail=detail, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A log as it was before anything was done to it."""

    log: Log
    rows: Sequence[SequencedEntry]
    notes: Mapping[int, bytes]

    @property
    def log_id(self) -> int:
        return self.log.log_id

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def signed(self) -> int:
        return max(self.notes)

    def starts_group(self, index: int) -> bool:
        return index == self.size or self.rows[index].group_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """
    An installation. `owner` may do anything; `logs` are "one", "other" and "system", as they were written.
    """

    owner: Connection
    installation: Installation
    auditor: Connection
    """One for all verifications, since connecting takes longer than verifying."""
    keys: KeyDirectory
    logs: Mapping[str, LogState]

    async def verify(self, log: str, *, held: tuple[bytes, ...] = (), effort: Effort = EXACT) -> VerificationReport:
        """Verify a log as `lakeproof ledger verify --log` does."""
        options = VerifyOptions(kept=[ArchivedNotes(where="a file", notes=held)] if held else (), effort=effort)
        name = self.logs[log].log.origin
        return await verify_log(self.installation, self.auditor, name, options, progress=lambda _done, _of: None)

    async def verdict(self, tampered: Tampered, *, effort: Effort = EXACT) -> Verdict:
        """Return what verification says now; an error that names no fault is none."""
        try:
            await self.verify(tampered.log, held=tampered.held, effort=effort)
        except BrokenError as error:
            return Verdict(error.fault, error.index, str(error))
        except LedgerError as error:
            return Verdict(None, None, f"{type(error).__name__}: {error}")
        return Verdict(None)

    async def execute(self, statement: str, *parameters: object) -> int:
        """Do what only the owner can, and return how many rows it has touched."""
        return (await self.owner.execute(statement.encode(), parameters)).rowcount

    async def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return await (await self.owner.execute(statement.encode(), parameters, binary=True)).fetchall()

    async def restore(self, tampered: Tampered) -> None:
        """Put every row back that is not as it was."""
        await self.owner.execute("SELECT saved.put_back(%s)", (tampered.all_rows,))


async def save(owner: Connection) -> None:
    """Copy every table as it is now, and make the function that puts every row back that is not as it is here."""
    steps: list[Composed] = []
    for table, keys in KEYS.items():
        names = {"t": Identifier(table), "keys": SQL(", ").join(map(Identifier, keys))}
        await owner.execute(SQL("CREATE TABLE saved.{t} AS TABLE ledger.{t}").format(**names))
        await owner.execute(SQL("ANALYZE ledger.{t}, saved.{t}").format(**names))
        steps.append(_PUT_BACK.format(**names))
    await owner.execute(_FUNCTION.format(SQL("").join(steps)))


_FUNCTION: Final = SQL(
    "CREATE FUNCTION saved.put_back(all_rows boolean) RETURNS void LANGUAGE plpgsql AS $$ BEGIN {} END $$"
)
_PUT_BACK: Final = SQL("""
    IF all_rows THEN
        TRUNCATE ledger.{t} CASCADE;
    ELSE
        DELETE FROM ledger.{t} WHERE ctid = ANY (ARRAY(
            SELECT x.ctid FROM ledger.{t} AS x LEFT JOIN saved.{t} AS s USING ({keys}) WHERE s.* IS DISTINCT FROM x.*
        ));
    END IF;
    INSERT INTO ledger.{t} OVERRIDING SYSTEM VALUE
    SELECT s.* FROM saved.{t} AS s LEFT JOIN ledger.{t} AS x USING ({keys}) WHERE x.ctid IS NULL;
""")


Tampering: TypeAlias = Callable[[World, Random], Awaitable[Tampered]]
"""A class of tampering: makes one random change, and says what must be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One change, what must be said of it, and what was: by which effort, which accepted so many pages before."""

    name: str
    number: int
    tampered: Tampered
    verdict: Verdict
    effort: str = "exact"
    pages_accepted: int = 0

    @property
    def found(self) -> bool:
        """Whether anything was said against the log."""
        return self.verdict.fault is not None

    @property
    def ok(self) -> bool:
        """Whether the right thing was said: the class, and the index."""
        expected = self.tampered.index
        return self.verdict.fault in self.tampered.faults and (expected is ... or self.verdict.index == expected)

    def __str__(self) -> str:
        expected = f"{'/'.join(sorted(self.tampered.faults))} at {self.tampered.index}"
        verdict = f"{self.effort} told {self.verdict}"
        return f"{self.name} {self.number}: {self.tampered.detail}: expected {expected}, {verdict}"


def seeded(name: str) -> Random:
    """Return the random generator of one instance: the same in every run."""
    return Random(name)  # noqa: S311  (nothing is kept secret with it)


def effort_of(number: int) -> str:
    """Return how the `number`-th instance of a class is verified: one after another each way, whoever does how many."""
    return ("exact", "fast", "fast", "exact")[number % 4]


async def run_instance(world: World, name: str, tampering: Tampering, number: int) -> Instance:
    """Do the `number`-th tampering of a class, the same in every run, verify, and undo it."""
    effort = effort_of(number)
    tampered = await tampering(world, seeded(f"{name} {number}"))
    with counted_pages() as accepted:
        verdict = await world.verdict(tampered, effort=EFFORTS[effort])
    await world.restore(tampered)
    return Instance(
        name=name, number=number, tampered=tampered, verdict=verdict, effort=effort, pages_accepted=accepted.pages
    )
