# SPDX-License-Identifier: Apache-2.0
"""The tiles that several writers complete in turn are those of the whole log, whatever each of them has seen of it."""

from __future__ import annotations

from hashlib import sha256
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.pending_tiles import PendingTiles
from ledger.errors import BrokenError, Fault
from ledger.format.merkle import root_of
from ledger.format.tiles import TILE_WIDTH, Tile, complete_tiles

SIZE = 2 * TILE_WIDTH * TILE_WIDTH + 3_000
"""Past two tiles of level 1: the second is completed by writers that know all of the first."""


def leaf(index: int) -> bytes:
    return sha256(str(index).encode()).digest()


@pytest.fixture
async def log_id(database: str, installation: Provisioned) -> int:
    """A log of which only hashes are there: the tiles and the leaves that a writer may read."""
    made = create_tenant_log(database, installation, uuid4())
    async with await AsyncConnection.connect(database) as connection:
        await connection.execute(
            "INSERT INTO ledger.entries (log_id, index, entry, leaf, type, key, is_control) "
            "SELECT %s, i, '', sha256(i::text::bytea), 'a.b', 'k', false FROM generate_series(0, %s - 1) AS i",
            (made, SIZE),
        )
        async with connection.cursor().copy("COPY ledger.tiles (log_id, level, tile, hashes) FROM STDIN") as out:
            for tile in all_tiles():
                await out.write_row((made, tile.level, tile.index, tile.pack()))
    return made


def all_tiles() -> list[Tile]:
    return complete_tiles(size=0, pending=(), leaves=[leaf(index) for index in range(SIZE)])[0]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which writer
        st.sampled_from([1, 100, 255, 256, 257, 5_000, 20_000, 40_000]),  # how many leaves
        st.booleans(),  # whether its COMMIT went well
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, start=st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 131_000]))
async def test_writers_in_turn_complete_every_tile_once(
    database: str, log_id: int, steps: list[tuple[int, int, bool]], start: int
) -> None:
    expected = {(tile.level, tile.index): tile for tile in all_tiles()}
    connections = [await AsyncConnection.connect(database, autocommit=True) for _ in range(3)]
    writers = [PendingTiles(connection) for connection in connections]
    size, made = start, list[Tile]()
    for number, by, committed in [*steps, (0, SIZE, True)]:
        end = min(size + by, SIZE)
        leaves = [leaf(index) for index in range(size, end)]
        tiles, edge = await writers[number].complete(log_id, size=size, leaves=leaves)
        if committed:
            if edge is not None:
                writers[number].keep(log_id, edge)
            made += tiles
            size = end
    for connection in connections:
        await connection.close()
    assert len({(tile.level, tile.index) for tile in made}) == len(made)
    assert all(tile == expected[tile.level, tile.index] for tile in made)
    before = {(tile.level, tile.index) for tile in complete_tiles_of(start)}
    assert {(tile.level, tile.index) for tile in made} == expected.keys() - before
    assert all(made.index(tile) > made.index(below) for tile in made for below in below_in(tile, made))


def complete_tiles_of(size: int) -> list[Tile]:
    return complete_tiles(size=0, pending=(), leaves=[leaf(index) for index in range(size)])[0]


def below_in(tile: Tile, made: list[Tile]) -> list[Tile]:
    """Return the last tile that `tile` stands on, if it is among those made."""
    last = tile.index * TILE_WIDTH + TILE_WIDTH - 1
    return [one for one in made if tile.level == 1 and (one.level, one.index) == (0, last)]


async def test_a_tile_that_is_missing_below_is_corruption(database: str, log_id: int) -> None:
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("DELETE FROM ledger.tiles WHERE log_id = %s AND level = 0 AND tile = 7", (log_id,))
        writer = PendingTiles(connection)
        leaves = [leaf(index) for index in range(65_535, 65_536)]
        with pytest.raises(BrokenError) as caught:
            await writer.complete(log_id, size=65_535, leaves=leaves)
        assert caught.value.fault is Fault.TILE
        # Tiles of level 0 are completed without it.
        tiles, _ = await writer.complete(log_id, size=255, leaves=[leaf(255)])
        assert tiles[0].root() == root_of([leaf(index) for index in range(256)])


async def test_a_log_that_has_become_shorter_is_corruption(database: str, log_id: int) -> None:
    async with await AsyncConnection.connect(database, autocommit=True) as connection:
        await connection.execute("DELETE FROM ledger.entries WHERE log_id = %s AND index = 600", (log_id,))
        writer = PendingTiles(connection)
        with pytest.raises(BrokenError) as caught:
            await writer.complete(log_id, size=700, leaves=[leaf(index) for index in range(700, 900)])
        assert (caught.value.fault, caught.value.index) == (Fault.INDEX, 512)
