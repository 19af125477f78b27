# SPDX-License-Identifier: Apache-2.0
"""
The operations of the fault table that work with keys besides the log: a round of the signer, and erasing.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from ledger.erasing.erase import Eraser, Erasure, ErasureRequest
from ledger.erasing.rerun import rerun_erasures
from ledger.erasing.sealer import Sealer
from ledger.errors import LedgerError, OutcomeUnknownError
from ledger.format.entry import parse_entry
from ledger.format.event import Event, Part, PreparedEvent, prepare, random_group_id
from ledger.format.events import ErasureReason
from ledger.format.sealing import KeyOpener, SubjectKeysError
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing.key_directory import create_key_directory, open_key_directory
from ledger.signing.signer import CheckpointSigner, IssuedCheckpoint, SignerState
from ledger.store.log_store import Appends
from ledger.store.read import Log, read_entries, read_head, read_parts
from testkit.ledger.faults.batches import NOON, SUBJECTS, draw_batch
from testkit.ledger.faults.site import Reach, Site
from testkit.ledger.faults.trials import Arm, folder

REQUEST = ErasureRequest(reason=ErasureReason.REQUEST, at=NOON)


class SignTrial:
    """One round of a signer that has just started, over logs that were signed before or not, confirmed or not."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.batch = draw_batch(seed, sealed=False)
        self.logs: list[Log] = []
        self.signed: list[IssuedCheckpoint] | None = None
        self._directory = directory / "keys"
        draw = random.Random(seed)  # noqa: S311 - it is to be repeatable
        self._signed_before, self._unconfirmed, self._lost = (draw.random() < chance for chance in (0.6, 0.5, 0.3))
        self._seen: dict[tuple[int, int], bytes] = {}

    async def prepare(self, site: Site) -> None:
        """Let logs grow that were perhaps signed in between; the newest checkpoint was perhaps lost on its way."""
        await asyncio.to_thread(create_key_directory, self._directory)
        self.logs = await site.new_logs(len(self.batch.sizes))
        half = len(self.batch.before) // 2
        for at, groups in enumerate((self.batch.before[:half], self.batch.before[half:])):
            await asyncio.gather(*(site.filler.append(self.logs[log].log_id, group) for log, group in groups))
            if at == 0 and self._signed_before:
                await self._signer(site.reach(direct=True)).sign_once()
                await site.settle()
        if self._lost:
            await site.owner.execute("DELETE FROM ledger.checkpoints")
        if self._unconfirmed:
            await site.owner.execute("UPDATE ledger.confirmations SET server_started_at = '-infinity'")
        await self._look(site)

    async def run(self, reach: Reach, arm: Arm, *, timeout_s: float) -> None:
        """Do one round."""
        signer = self._signer(reach)
        arm()
        self.signed = None
        try:
            async with asyncio.timeout(10 * timeout_s):
                signed = await signer.sign_once()
        except psycopg.Error:
            return  # an error other than an outage: it would end the signer's process
        self.signed = signed if signer.state is SignerState.SIGNING else None

    async def check(self, site: Site) -> None:
        """Check that published checkpoints stay, are of the tree, and were stored next to the key before."""
        left = await self._look(site)
        for one in self.signed or ():
            assert left[one.log_id, one.checkpoint.size] == one.note, "a checkpoint was said to have left and has not"
        kept = open_key_directory(self._directory).read_notes()
        for log in self.logs:
            newest = max((size for log_id, size in left if log_id == log.log_id), default=0)
            size = kept[log.origin].checkpoint.size if log.origin in kept else 0
            assert size >= newest, f"a note of {newest} has left, and {size} is kept"
        keys = open_key_directory(self._directory)
        await site.check_invariants(self.logs, {log.origin: keys.verifier_key(log.origin) for log in self.logs}, None)

    def refused(self) -> list[int]:
        """Return nothing: there is but one thing to do."""
        return []

    async def repeat(self, site: Site) -> None:
        """Let a signer that has just started do a round: everything is signed and confirmed then."""
        signer = self._signer(site.reach(direct=True))
        self.signed = await signer.sign_once()
        await site.settle()
        assert signer.state is SignerState.SIGNING, "the signer stands by, and nobody else signs"
        assert not signer.refused, f"refused {signer.refused}"
        query = "SELECT FROM ledger.confirmed_logs"
        assert (await site.owner.execute(query)).rowcount == len(self.logs)

    async def result(self, site: Site, *, in_order: bool) -> object:
        """Return of which size the newest checkpoint of each log is, and the log: the same whatever came before."""
        del in_order
        left = await self._look(site)
        newest = [max((size for log_id, size in left if log_id == log.log_id), default=0) for log in self.logs]
        sizes = [(await read_head(site.owner, log.log_id)).size for log in self.logs]
        assert newest == sizes, f"signed {newest} of {sizes}"
        return newest

    async def _look(self, site: Site) -> dict[tuple[int, int], bytes]:
        """Return what has left, by log and size: never anything else than before."""
        cursor = await site.owner.execute("SELECT log_id, size, note FROM ledger.checkpoints")
        left = {(log_id, size): bytes(note) for log_id, size, note in await cursor.fetchall()}
        for place, note in self._seen.items():
            assert left.get(place) == note, f"another note has left for {place}"
        self._seen = left
        return left

    def _signer(self, reach: Reach) -> CheckpointSigner:
        return CheckpointSigner(reach.dsn_of("signer"), open_key_directory(self._directory))


class Hurried:
    """An Appender for those who do not wait long (implements `Appends`)."""

    def __init__(self, appender: Appends, timeout_s: float) -> None:
        self._appender, self._timeout_s = appender, timeout_s

    async def append(self, log_id: int, group: Group, *, timeout_s: float = 0) -> Appended | Stale:
        """Append `group`, with our deadline."""
        del timeout_s
        return await self._appender.append(log_id, group, timeout_s=self._timeout_s)


class EraseTrial:
    """Erases a person, one part, or the parts of an age."""

    def __init__(self, seed: int, directory: Path) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - it is to be repeatable
        self.logs: list[Log] = []
        self.answer: Erasure | Exception | None = None
        self._seed = seed
        self._directory = directory
        self._what = ("subject", "subject", "part", "before")[seed % 4]
        self._size = self._draw.choice((0, 1, 253, 255, 256))
        self._first = 0
        self._all = self._left = frozenset[tuple[int, str]]()

    async def prepare(self, site: Site) -> None:
        """Tell of two people, among much else."""
        (log,) = self.logs = await site.new_logs(1)
        for number, subject in enumerate(SUBJECTS):
            await site.owner.execute(
                "INSERT INTO ledger.subjects VALUES (%s, %s, %s)", (log.log_id, subject, f"person {number}")
            )
        keys, owners = folder(self._directory), dict[tuple[int, str], str]()
        if self._size:
            then = (_about(None, self._draw),) * self._size
            await site.filler.append(log.log_id, Group(id=self._id(), then=then))
        async with site.reach(direct=True).appender() as appender:
            for subject in (*self._draw.choices(SUBJECTS[:2], k=3), SUBJECTS[0]):
                group = await Sealer(keys).seal(Group(id=self._id(), then=(_about(subject, self._draw),) * 2))
                outcome = await appender.append(log.log_id, group)
                assert isinstance(outcome, Appended)
                self._first = outcome.indices.start
                owners |= {(at, name): subject for at in outcome.indices for name in ("inputs", "principal")}
        self._all = frozenset(owners)
        erased = {
            "subject": {place for place, subject in owners.items() if subject == SUBJECTS[0]},
            "part": {(self._first, "inputs")},
            "before": {place for place in owners if place[0] < self._first},
        }
        self._left = self._all - erased[self._what]

    async def run(self, reach: Reach, arm: Arm, *, timeout_s: float) -> None:
        """Erase."""
        arm()
        try:
            self.answer = await self._erase(reach, timeout_s)
        except (LedgerError, psycopg.Error) as error:
            self.answer = error

    async def check(self, site: Site) -> None:
        """Check that nothing was erased without an entry, and that everything reported as erased is erased."""
        (log,) = self.logs
        reports = await site.check_invariants(self.logs, {}, folder(self._directory))
        size = (await read_head(site.owner, log.log_id)).size
        entries = await read_entries(site.owner, log.log_id, from_index=0, to_index=size)
        said = [entry.index for entry in map(parse_entry, entries) if entry.type == "payload.erased"]
        assert len(said) <= 1, f"erased twice, by entries {said}"
        there, shown = await self._parts(site), await self._shown(site)
        is_refused = isinstance(self.answer, LedgerError) and not isinstance(
            self.answer, OutcomeUnknownError | SubjectKeysError
        )
        if is_refused or not said:
            assert not said, f"answer {self.answer!r}, and entry {said} says that it was erased"
            assert there == shown == self._all, f"answer {self.answer!r}, and parts are gone"
            assert folder(self._directory).destroyed() == frozenset(), f"answer {self.answer!r}, and a key is gone"
        if said and self._what == "subject":
            assert shown <= self._left, "parts of somebody who was erased are shown"
        if isinstance(self.answer, Erasure):
            assert said == [self.answer.index], f"answer {self.answer}, found {said}"
            assert there == shown == self._left, "what was said to be erased is there, or more is gone"
            assert reports[0].sealed == 0, "parts do not open that nobody has erased"
            assert await site.count("erasures_done", log) == 1
            if self._what == "subject":
                assert folder(self._directory).destroyed() == {SUBJECTS[0]}
                assert await site.count("subjects", log, f"actor = '{SUBJECTS[0]}'") == 0

    def refused(self) -> list[int]:
        """Return nothing: there is but one thing to do."""
        return []

    async def repeat(self, site: Site) -> None:
        """Resume an erasure as a process does that has just started, then erase again."""
        reach = site.reach(direct=True)
        async with await AsyncConnection.connect(reach.dsn_of("eraser"), autocommit=True) as connection:
            done = await rerun_erasures(connection, folder(self._directory))
        assert done.unrecorded == ()
        self.answer = await self._erase(reach, 30)

    async def result(self, site: Site, *, in_order: bool) -> object:
        """Return how large the log is, and what is left."""
        del in_order
        return (await read_head(site.owner, self.logs[0].log_id)).size, await self._parts(site)

    async def _erase(self, reach: Reach, timeout_s: float) -> Erasure:
        (log,) = self.logs
        async with (
            await AsyncConnection.connect(
                reach.dsn_of("eraser"), autocommit=True, application_name="eraser of a point"
            ) as connection,
            reach.appender() as appender,
        ):
            hurried, keys = Hurried(appender, timeout_s), folder(self._directory)
            eraser = Eraser(connection, hurried, keys, new_group_id=self._id)
            match self._what:
                case "subject":
                    return await eraser.erase_subject(log, SUBJECTS[0], REQUEST)
                case "part":
                    return await eraser.erase_part(log, self._first, "inputs", REQUEST)
            return await eraser.erase_before(log, self._first, REQUEST, name=None, type=None)

    async def _parts(self, site: Site) -> frozenset[tuple[int, str]]:
        query = "SELECT index, name FROM ledger.parts WHERE log_id = %s"
        rows = await (await site.owner.execute(query, (self.logs[0].log_id,))).fetchall()
        return frozenset((index, name) for index, name in rows)

    async def _shown(self, site: Site) -> frozenset[tuple[int, str]]:
        """Return what readers with keys are shown."""
        opener = KeyOpener(folder(self._directory))
        parts = await read_parts(site.projector, self.logs[0].log_id, from_index=0, to_index=10**6, opener=opener)
        return frozenset((index, name) for index, named in parts.items() for name in named)

    def _id(self) -> UUID:
        return random_group_id(now_ms=1_700_000_000_000, random=self._draw.randbytes(10))


def _about(subject: str | None, draw: random.Random) -> PreparedEvent:
    names = () if subject is None else ("inputs", "principal")
    parts = tuple(Part(name=name, payload=b"words", salt=draw.randbytes(32), subject=subject) for name in names)
    actor = subject or "system"
    return prepare(
        Event(type="commit.decided", version=1, key="t", actor=actor, occurred_at=NOON, data={}, parts=parts)
    )
