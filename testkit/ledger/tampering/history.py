# SPDX-License-Identifier: Apache-2.0
"""
Classes of tampering with history: cut off, set back, or rewritten with chain, tiles and head, with the key and without.

Where everything is made again, entries and tree agree with each other: then no index can be named (`Fault.ROOT`,
`Fault.ANCHOR`), only the signed size at which they differ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from ledger.errors import Fault
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import leaf_hash
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import SequencedEntry
from ledger.format.tiles import TILE_WIDTH
from testkit.ledger.logs import head_of, sequenced
from testkit.ledger.tampering.columns import fault_of, place
from testkit.ledger.tampering.instances import LogState, Tampered, Tampering, World, faulty
from testkit.ledger.tampering.tables import hold, set_back
from testkit.ledger.tampering.tiles_and_parts import blind
from testkit.ledger.tampering.world import ANCHORED, random_groups

ONE: Final = "one"


def relinked(rows: Sequence[SequencedEntry], at: int, entry: bytes) -> list[SequencedEntry]:
    """Return the log with `entry` at `at`, and everything behind it chained to that."""
    kept = list(rows[:at])
    for row in rows[at:]:
        old = rows[row.index - 1].leaf if row.index else b""
        entry = entry if row.index == at else row.entry.replace(old.hex().encode(), kept[-1].leaf.hex().encode())
        kept.append(replace(row, entry=entry, leaf=leaf_hash(entry)))
    return kept


def retold(row: SequencedEntry, random: Random) -> bytes:
    """Return the entry with another number in its data: canonical, and in its place."""
    return re.sub(rb'"number":\d+', b'"number":%d' % random.getrandbits(49), row.entry)


async def truncated(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    size = random.randrange(state.signed)
    await hold(world, state, state.rows[:size], at=size)
    fault = Fault.INDEX if state.starts_group(size) else Fault.GROUP
    return faulty(fault, index=size, detail=f"cut off at {size}, head and tiles too")


async def restored_backup(world: World, random: Random) -> Tampered:
    state, size = world.logs[ONE], random.choice(_group_ends(world, below=ANCHORED))
    await set_back(world, state, size)
    return faulty(Fault.ANCHOR, index=size, detail=f"one log as it was at {size}, checkpoints too")


async def restored_backup_of_all(world: World, random: Random) -> Tampered:
    state, system = world.logs[ONE], world.logs["system"]
    size = random.choice(_group_ends(world, below=state.signed))
    await set_back(world, state, size)
    await set_back(world, system, min(system.notes))
    held = (state.notes[min(signed for signed in state.notes if signed > size)],)
    return faulty(Fault.INDEX, index=size, detail=f"all logs as they were at {size}", held=held)


async def restored_head(world: World, random: Random) -> Tampered:
    state, size = world.logs[ONE], random.choice(_group_ends(world, below=world.logs[ONE].size))
    head = head_of(state.rows[:size])
    await world.execute(
        "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, control_index = %s, recorded_at = %s "
        "WHERE log_id = %s",
        head.size, head.last, head.frontier.pack(), head.control_index, head.recorded_at, state.log_id,
    )  # fmt: skip
    return faulty(Fault.INDEX, index=size, detail=f"only the head as it was at {size}")


def _group_ends(world: World, *, below: int) -> list[int]:
    return [size for size in range(1, below) if world.logs[ONE].starts_group(size)]


async def respelled(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    index = place(random, state) % (state.size - 1)
    entry = state.rows[index].entry
    at = random.choice(
        [match.start() for match in re.finditer(rb'"(actor|data|key|parts|type|group|index|log)":', entry)]
    )
    rows = relinked(state.rows, index, entry[:at] + b" " + entry[at:])
    await hold(world, state, rows, at=index)
    return faulty(fault_of(rows[index].entry, state, index), index=index, detail=f"entry {index} spelled differently")


async def earlier_time(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    index = random.randrange(1, state.size)
    entry = re.sub(
        rb'"recorded_at":"20\d\d', b'"recorded_at":"19%02d' % random.randrange(70, 99), state.rows[index].entry
    )
    await hold(world, state, relinked(state.rows, index, entry), at=index)
    return faulty(Fault.TIME, index=index, detail=f"entry {index} recorded earlier, all behind it made again")


async def chain_cut(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    index = random.randrange(state.size - 1)
    row = replace(state.rows[index], entry=retold(state.rows[index], random))
    row.leaf = leaf_hash(row.entry)
    await hold(world, state, [*state.rows[:index], row, *state.rows[index + 1 :]], at=index)
    detail = f"entry {index} rewritten with leaf and tree, not the chain"
    if (index + 1) % TILE_WIDTH == 0 and index + 1 in state.notes:
        # A checkpoint at the end of a page is looked at before the next page, where the chain is broken.
        return faulty(Fault.ROOT, detail=detail)
    return faulty(Fault.CHAIN, index=index + 1, detail=detail)


async def group_torn(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    index = random.choice([row.index for row in state.rows[1:] if row.group_id is None])
    entry = re.sub(
        rb'"branch":"then","id":"........',
        b'"branch":"then","id":"%08x' % random.getrandbits(32),
        state.rows[index].entry,
    )
    await hold(world, state, relinked(state.rows, index, entry), at=index)
    return faulty(Fault.GROUP, index=index, detail=f"entry {index} in another group, all behind it made again")


async def group_repeated(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    ids = [row.group_id for row in state.rows if row.group_id is not None]
    (group, *_) = random_groups(random, 1)
    (row, *_), _ = sequenced([replace(group, id=random.choice(ids))], log=state.log.origin, head=head_of(state.rows))
    async with blind(world, "entries_group"):
        await hold(world, state, [*state.rows, row], at=state.size)
    return faulty(Fault.GROUP, index=state.size, detail="a group that was appended before", all_rows=True)


async def rewritten_without_key(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    index = random.randrange(state.signed)
    await hold(world, state, relinked(state.rows, index, retold(state.rows[index], random)), at=index)
    return faulty(Fault.ROOT, detail=f"entry {index} rewritten, all behind it made again; checkpoints left")


async def rewritten_without_checkpoints(world: World, random: Random) -> Tampered:
    state = world.logs[ONE]
    at = random.choice(_group_ends(world, below=ANCHORED))
    groups = random_groups(random, state.size - at)
    rows = [*state.rows[:at], *sequenced(groups, log=state.log.origin, head=head_of(state.rows[:at]))[0]]
    await _forget_parts(world, state, at)
    await hold(world, state, rows, at=at)
    await world.execute("DELETE FROM ledger.checkpoints WHERE log_id = %s AND size > %s", state.log_id, at)
    return faulty(Fault.ANCHOR, detail=f"all from {at} on other entries; checkpoints behind it removed")


async def rewritten_with_key(world: World, random: Random) -> Tampered:
    at = random.choice(_group_ends(world, below=ANCHORED))
    await rewrite_with_key(world, random, at)
    return faulty(Fault.ANCHOR, detail=f"all from {at} on other entries, signed again with the log's key")


async def rewritten_with_key_and_system(world: World, random: Random) -> Tampered:
    state, at = world.logs[ONE], random.choice(_group_ends(world, below=world.logs[ONE].signed))
    await rewrite_with_key(world, random, at)
    await set_back(world, world.logs["system"], min(world.logs["system"].notes))
    held = (random.choice([note for size, note in state.notes.items() if size > at]),)
    return faulty(Fault.ROOT, detail=f"all from {at} on signed again, anchors removed; a checkpoint is held", held=held)


async def rewrite_with_key(world: World, random: Random, at: int) -> None:
    """Give the log other entries from `at` on, to the same size, and sign them at the same sizes with its own key."""
    state = world.logs[ONE]
    groups = random_groups(random, state.size - at)
    rows = [*state.rows[:at], *sequenced(groups, log=state.log.origin, head=head_of(state.rows[:at]))[0]]
    await _forget_parts(world, state, at)
    await hold(world, state, rows, at=at)
    for size in state.notes:
        checkpoint = Checkpoint(origin=state.log.origin, size=size, root=head_of(rows[:size]).frontier.root())
        note = sign_note(format_checkpoint(checkpoint), [world.keys.signer(state.log.origin)])
        await _replace_note(world, size, note)


async def signed_by_another_key(world: World, random: Random) -> Tampered:
    state, size = world.logs[ONE], random.choice(sorted(world.logs[ONE].notes))
    other = Ed25519Signer.from_seed(name=state.log.origin, seed=random.randbytes(32))
    checkpoint = Checkpoint(origin=state.log.origin, size=size, root=head_of(state.rows[:size]).frontier.root())
    await _replace_note(world, size, sign_note(format_checkpoint(checkpoint), [other]))
    return faulty(Fault.SIGNATURE, detail=f"checkpoint {size} signed by another key of the same name")


async def signed_root_changed(world: World, random: Random) -> Tampered:
    state, size = world.logs[ONE], random.choice(sorted(world.logs[ONE].notes))
    checkpoint = Checkpoint(origin=state.log.origin, size=size, root=random.randbytes(32))
    await _replace_note(world, size, sign_note(format_checkpoint(checkpoint), [world.keys.signer(state.log.origin)]))
    return faulty(Fault.ROOT, detail=f"checkpoint {size} with another root, signed by the key")


async def checkpoint_of_other_size(world: World, random: Random) -> Tampered:
    notes = world.logs[ONE].notes
    size, other = random.sample(sorted(notes), 2)
    await _replace_note(world, size, notes[other])
    return faulty(Fault.CHECKPOINT, detail=f"checkpoint {other} in the place of {size}")


async def checkpoint_of_other_log(world: World, random: Random) -> Tampered:
    size = random.choice(sorted(world.logs[ONE].notes))
    await _replace_note(world, size, random.choice(list(world.logs["other"].notes.values())))
    return faulty(Fault.SIGNATURE, Fault.CHECKPOINT, detail=f"another log's checkpoint in the place of {size}")


async def _replace_note(world: World, size: int, note: bytes) -> None:
    statement = "UPDATE ledger.checkpoints SET note = %s WHERE log_id = %s AND size = %s"
    await world.execute(statement, note, world.logs[ONE].log_id, size)


async def _forget_parts(world: World, state: LogState, at: int) -> None:
    await world.execute("DELETE FROM ledger.parts WHERE log_id = %s AND index >= %s", state.log_id, at)


HISTORY: Final[tuple[Tampering, ...]] = (
    truncated,
    restored_backup,
    restored_backup_of_all,
    restored_head,
    respelled,
    earlier_time,
    chain_cut,
    group_torn,
    group_repeated,
    rewritten_without_key,
    rewritten_without_checkpoints,
    rewritten_with_key,
    rewritten_with_key_and_system,
    signed_by_another_key,
    signed_root_changed,
    checkpoint_of_other_size,
    checkpoint_of_other_log,
)
