# SPDX-License-Identifier: Apache-2.0
"""The tiles that several writers complete in turn are those of the whole log, whatever each of them has seen of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.append.pending_tiles import PendingTiles
from ledger.errors import BrokenError, Fault
from ledger.format.merkle import root_of
from ledger.format.tiles import TILE_WIDTH, Tile, complete_tiles
from ledger.store.session import Connection
from testkit.ledger.appending import new_log

SIZE = 2 * TILE_WIDTH * TILE_WIDTH + 3_000
"""Past two tiles of level 1: the second is completed by writers that know all of the first."""


@pytest.fixture(scope="module")
def leaves() -> list[bytes]:
    return [sha256(str(index).encode()).digest() for index in range(SIZE)]


@pytest.fixture(scope="module")
def tiles(leaves: list[bytes]) -> list[Tile]:
    return complete_tiles(size=0, pending=(), leaves=leaves)[0]


@pytest.fixture(scope="module")
def log_id(module_database: str, module_installation: Provisioned, tiles: list[Tile]) -> int:
    """A log of which only hashes are there: the tiles and the leaves that a writer may read. No test changes it."""
    made = new_log(module_database, module_installation)
    with psycopg.connect(module_database) as connection:
        connection.execute(
            "INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control) "
            "SELECT %s, i, '', sha256(i::text::bytea), 'a.b', 'k', false FROM generate_series(0, %s - 1) AS i",
            (made, SIZE),
        )
        with connection.cursor().copy("COPY ledger.tiles (log_id, level, tile, hashes) FROM STDIN") as out:
            for tile in tiles:
                out.write_row((made, tile.level, tile.index, tile.pack()))
    return made


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which writer
        st.sampled_from([1, 100, 255, 256, 257, 5_000, 20_000, 40_000]),  # how many leaves
        st.booleans(),  # whether its COMMIT went well
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=8, deadline=None)
@given(steps=STEPS, start=st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 131_000]))
async def test_writers_in_turn_complete_every_tile_once(
    module_database: str,
    log_id: int,
    leaves: list[bytes],
    tiles: list[Tile],
    steps: list[tuple[int, int, bool]],
    start: int,
) -> None:
    expected = {(tile.level, tile.index): tile for tile in tiles}
    size, made = start, list[Tile]()
    # Each writer remembers by itself; that they read on one connection, one after the other, tells them nothing.
    async with await AsyncConnection.connect(module_database, autocommit=True) as connection:
        writers = [PendingTiles(lambda: connection) for _ in range(3)]
        for number, by, committed in [*steps, (0, SIZE, True)]:
            end = min(size + by, SIZE)
            more, edge = await writers[number].complete(log_id, size=size, leaves=leaves[size:end])
            if committed:
                if edge is not None:
                    writers[number].keep(log_id, edge)
                made += more
                size = end
    places = {(tile.level, tile.index): place for place, tile in enumerate(made)}
    assert len(places) == len(made)
    assert all(tile == expected[tile.level, tile.index] for tile in made)
    before = {(level, index) for level, index in expected if (index + 1) * TILE_WIDTH ** (level + 1) <= start}
    assert places.keys() == expected.keys() - before
    for (level, index), place in places.items():
        below = (level - 1, index * TILE_WIDTH + TILE_WIDTH - 1)
        assert places.get(below, -1) < place


async def test_a_tile_that_is_missing_below_is_corruption(
    module_database: str, log_id: int, leaves: list[bytes]
) -> None:
    async with undone(module_database) as connection:
        await connection.execute("DELETE FROM ledger.tiles WHERE log_id = %s AND level = 0 AND tile = 7", (log_id,))
        writer = PendingTiles(lambda: connection)
        with pytest.raises(BrokenError) as caught:
            await writer.complete(log_id, size=65_535, leaves=leaves[65_535:65_536])
        assert caught.value.fault is Fault.TILE
        # Tiles of level 0 are completed without it.
        made, _ = await writer.complete(log_id, size=255, leaves=leaves[255:256])
        assert made[0].root() == root_of(leaves[:256])


async def test_a_log_that_has_become_shorter_is_corruption(
    module_database: str, log_id: int, leaves: list[bytes]
) -> None:
    async with undone(module_database) as connection:
        await connection.execute("DELETE FROM ledger.entries WHERE log_id = %s AND index = 600", (log_id,))
        writer = PendingTiles(lambda: connection)
        with pytest.raises(BrokenError) as caught:
            await writer.complete(log_id, size=700, leaves=leaves[700:900])
        assert (caught.value.fault, caught.value.index) == (Fault.INDEX, 512)


@asynccontextmanager
async def undone(database: str) -> AsyncIterator[Connection]:
    """Yield a connection whose changes nobody else sees, and which are undone."""
    async with (
        await AsyncConnection.connect(database, autocommit=True) as connection,
        connection.transaction(force_rollback=True),
    ):
        yield connection
