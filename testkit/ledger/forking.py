# SPDX-License-Identifier: Apache-2.0
"""
Random forks of a log, and random honest continuations: what the signer must find, and what it must not.

A fork is below what was signed: entries behind the newest checkpoint bind nobody, so they are not what is tried here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from ledger.signing.key_directory import NOTES_FILE
from ledger.signing.signer import CheckpointSigner
from testkit.ledger.logs import rows_of
from testkit.ledger.signing_site import Site, forked

SIZE_MAX: Final = 900
STEP_MAX: Final = 280
"""Entries that a log grows by at a time: enough to complete a tile now and then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one trial was, and whether it came out as it must; `refusal` is the text of the signer's refusal, if any."""

    kind: str
    detail: str
    ok: bool
    refusal: str


class DatabasePair:
    """Two databases that were one, and one key directory: every trial begins with empty logs and no notes."""

    def __init__(self, one: Site, other: Site) -> None:
        self.one = one
        self.other = other
        self.rows = rows_of(SIZE_MAX, log=one.origin)

    async def clear(self) -> None:
        """Make both databases and the key directory what they were on the first day."""
        (self.one.keys.path / NOTES_FILE).unlink(missing_ok=True)
        for site in (self.one, self.other):
            await site.clear()

    async def signed_history(self, random: Random, *, steps_min: int = 1) -> tuple[CheckpointSigner, list[int]]:
        """Let the log of the first database grow and be signed a few times; return the signer and the sizes."""
        signer, sizes = self.one.signer(), [0]
        for _ in range(random.randint(steps_min, 3)):
            sizes.append(sizes[-1] + random.randint(1, STEP_MAX))
            await self.one.hold(self.rows[: sizes[-1]])
            (left,) = await self.one.sign(signer)
            assert left.checkpoint.size == sizes[-1]
        return signer, sizes[1:]


def seeded(name: str) -> Random:
    """Return the random generator of one trial: the same in every run."""
    return Random(name)  # noqa: S311  (nothing is kept secret with it)


async def execute(site: Site, statement: str, *parameters: object) -> None:
    """Do what only the database's owner can."""
    await site.owner.execute(statement.encode(), parameters)


async def restored_backup(pair: DatabasePair, random: Random) -> Trial:
    """A backup is restored, behind what was signed, and perhaps others append to it."""
    site = pair.one
    signer, sizes = await pair.signed_history(random)
    at = random.randrange(sizes[-1])
    more = random.choice((0, random.randint(1, STEP_MAX), sizes[-1] - at, sizes[-1] - at + random.randint(0, 50)))
    await execute(site, "DELETE FROM ledger.checkpoints WHERE size > %s", at)
    await site.hold(forked(pair.rows, at, more, origin=site.origin, salt=f"{random.random()}"))
    return await _found(site, "restored backup", f"signed {sizes}, set back to {at}, {more} appended", signer, random)


async def rewritten_suffix(pair: DatabasePair, random: Random) -> Trial:
    """Somebody who may change the database rewrites the log from some index on: entries, chain, tiles and head."""
    site = pair.one
    signer, sizes = await pair.signed_history(random)
    at = random.randrange(sizes[-1])
    size = sizes[-1] + random.choice((0, 0, random.randint(1, STEP_MAX)))
    await site.hold(forked(pair.rows, at, size - at, origin=site.origin, salt=f"{random.random()}"))
    forgotten_above = random.choice((0, at, SIZE_MAX))
    await execute(site, "DELETE FROM ledger.checkpoints WHERE size > %s", forgotten_above)
    detail = f"signed {sizes}, rewritten from {at} to {size}, checkpoints above {forgotten_above} forgotten"
    return await _found(site, "rewritten suffix", detail, signer, random)


async def two_heads(pair: DatabasePair, random: Random) -> Trial:
    """Two databases that were one both append, and one key signs for both: the first continues, the second is found."""
    one, other = (pair.one, pair.other) if random.random() < 0.5 else (pair.other, pair.one)
    together = random.randint(0, STEP_MAX)
    signers = {one.database: one.signer(), other.database: other.signer()}
    for site in (one, other):
        await site.hold(pair.rows[:together])
    if together and random.random() < 0.7:
        await one.sign(signers[one.database])
        await other.sign(signers[other.database])
    await one.hold(pair.rows[: together + random.randint(1, STEP_MAX)])
    assert await one.sign(signers[one.database])
    size = random.randint(1, STEP_MAX)
    await other.hold(forked(pair.rows, together, size, origin=other.origin, salt=f"{random.random()}"))
    detail = f"one until {together}, then one signed {max(one.left)}, the other grew to {together + size}"
    return await _found(other, "two heads", detail, signers[other.database], random)


async def honest(pair: DatabasePair, random: Random) -> Trial:
    """A log that only grows, despite restarts and lost checkpoints: the signer never refuses it."""
    site, signer, size, refused = pair.one, pair.one.signer(), 0, ""
    happened: list[str] = []
    for _ in range(random.randint(2, 4)):
        size = min(size + random.choice((0, 1, random.randint(1, STEP_MAX), 256 - size % 256)), SIZE_MAX)
        await site.hold(pair.rows[:size])
        event = random.choice(("none", "signer restarted", "server restarted", "checkpoint lost", "stood still"))
        if event == "signer restarted":
            signer = site.signer()
        elif event == "server restarted":
            await site.unconfirm()
        elif event == "checkpoint lost":
            await execute(site, "DELETE FROM ledger.checkpoints WHERE size = %s", max(site.left, default=0))
        elif event == "stood still":
            await site.sign(signer)
        await site.sign(signer)
        happened.append(f"{size} {event}")
        refused = refused or str(signer.refused.get(site.origin, ""))
        is_signed = max(site.left, default=0) == size == site.kept() and await site.confirmed()
        if refused or not is_signed:
            return Trial(kind="honest", detail=", ".join(happened), ok=False, refusal=refused)
    site.check_left(pair.rows)
    return Trial(kind="honest", detail=", ".join(happened), ok=True, refusal="")


FORKS: Final[Sequence[Callable[[DatabasePair, Random], Awaitable[Trial]]]] = (
    restored_backup,
    rewritten_suffix,
    two_heads,
)


async def _found(site: Site, kind: str, detail: str, signer: CheckpointSigner, random: Random) -> Trial:
    """Do the next round, with the signer or with one that has just started; return whether it found the fork."""
    signer = random.choice((signer, site.signer()))
    left = await site.sign(signer)
    refusal = signer.refused.get(site.origin)
    is_found = not left and refusal is not None and not await site.confirmed()
    return Trial(kind=kind, detail=detail, ok=is_found, refusal=str(refusal or ""))
