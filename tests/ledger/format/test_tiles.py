# SPDX-License-Identifier: Apache-2.0
"""Tiles: paths and bundles in one spelling, complete tiles whatever the batches, and proofs read from tiles alone."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError, LedgerError, LimitExceededError
from ledger.format.merkle import (
    Frontier,
    check_consistency,
    check_inclusion,
    leaf_hash,
    prove_consistency,
    prove_inclusion,
    root_of,
)
from ledger.format.tiles import (
    ENTRY_SIZE_BYTES_MAX,
    INDEX_MAX,
    TILE_WIDTH,
    Pending,
    Tile,
    bundle_path,
    complete_tiles,
    format_bundle,
    parse_bundle,
    parse_bundle_path,
    parse_tile_path,
    pending_widths,
    tile_hash_reader,
    tile_path,
    tile_width,
)

SIZE = 70_000  # the example of tlog-tiles, "Partial Tiles": three levels, each of them partial at its right end
LEAVES = [leaf_hash(b"%d" % i) for i in range(SIZE)]
H = LEAVES[0]
INDEXES = st.integers(min_value=0, max_value=INDEX_MAX)
WIDTHS = st.integers(min_value=1, max_value=TILE_WIDTH)


class TileStore:
    """Tiles as a log stores them: the complete ones by place, and the pending ends from which partial ones are cut."""

    def __init__(self, leaves: list[bytes], *, batch_size: int = SIZE) -> None:
        self.size = 0
        self.pending: Pending = ()
        self.tiles: dict[tuple[int, int], Tile] = {}
        self.reads: list[tuple[int, int]] = []
        for start in range(0, len(leaves), batch_size):
            self.append(leaves[start : start + batch_size])

    def append(self, leaves: list[bytes]) -> None:
        complete, self.pending = complete_tiles(size=self.size, pending=self.pending, leaves=leaves)
        self.size += len(leaves)
        for tile in complete:
            assert (tile.level, tile.index) not in self.tiles
            self.tiles[tile.level, tile.index] = tile

    def __call__(self, level: int, index: int, width: int) -> Tile:
        self.reads.append((level, index))
        if (level, index) in self.tiles:
            return self.tiles[level, index]
        return Tile(level=level, index=index, hashes=self.pending[level][:width])


@pytest.fixture(scope="module")
def store() -> TileStore:
    return TileStore(LEAVES)


@pytest.mark.parametrize(
    ("level", "index", "width", "path"),
    [
        (0, 1_234_067, 256, "tile/0/x001/x234/067"),  # tlog-tiles, "Merkle Tree"
        (0, 0, 256, "tile/0/000"),
        (1, 0, 1, "tile/1/000.p/1"),
        (0, 1067, 5, "tile/0/x001/067.p/5"),
        (63, 999, 255, "tile/63/999.p/255"),
        (2, 1000, 256, "tile/2/x001/000"),
        (0, INDEX_MAX, 256, "tile/0/x009/x223/x372/x036/x854/x775/807"),
    ],
)
def test_paths_of_tiles_have_the_known_form(level: int, index: int, width: int, path: str) -> None:
    assert tile_path(level, index, width) == path
    assert parse_tile_path(path) == (level, index, width)
    bundle = path.replace(f"tile/{level}/", "tile/entries/")
    assert bundle_path(index, width) == bundle
    assert parse_bundle_path(bundle) == (index, width)


@settings(max_examples=40, deadline=None)
@given(st.integers(min_value=0, max_value=63), INDEXES, WIDTHS)
def test_a_path_is_read_as_it_was_written(level: int, index: int, width: int) -> None:
    assert parse_tile_path(tile_path(level, index, width)) == (level, index, width)
    assert parse_bundle_path(bundle_path(index, width)) == (index, width)


@pytest.mark.parametrize(
    "place",
    [
        "",
        "0",
        "00",
        "0000",
        "x000",
        "x000/000",
        "001/067",
        "x1/067",
        "x001/x067",
        "x001067",
        "001067",
        "x001/067/",
        "/000",
        "-01",
        "+01",
        "00a",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 3,
        "000.p",
        "000.p/",
        "000.p/0",
        "000.p/05",
        "000.p/256",
        "000.p/257",
        "000.p/-1",
        "000.p/5/",
        "000.p/5.p/5",
        "000p/5",
        "x009/x223/x372/x036/x854/x775/808",
        "x001/" * 2000 + "000",
        "9" * 5000,
        "000\n",
        "\ud800",
    ],
)
def test_another_spelling_of_a_place_is_a_format_error(place: str) -> None:
    with pytest.raises(FormatError):
        parse_tile_path(f"tile/0/{place}")
    with pytest.raises(FormatError):
        parse_bundle_path(f"tile/entries/{place}")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "000",
        "tile",
        "tile/0",
        "tile/00/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/x/000",
        "tile//000",
        "tile/" + "1" * 5000 + "/000",
        "/tile/0/000",
        "tiles/0/000",
        "Tile/0/000",
        "tile/entries/000",
    ],
)
def test_a_path_that_is_no_tile_is_a_format_error(path: str) -> None:
    with pytest.raises(FormatError):
        parse_tile_path(path)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=20), st.text("0123456789x/.p", max_size=20))
def test_arbitrary_text_is_a_path_or_a_format_error(text: str, place: str) -> None:
    for path in [text, place, f"tile/{place}", f"tile/0/{place}", f"tile/entries/{place}"]:
        with suppress(FormatError):
            assert tile_path(*parse_tile_path(path)) == path
        with suppress(FormatError):
            assert bundle_path(*parse_bundle_path(path)) == path


@pytest.mark.parametrize(
    ("level", "index", "width"), [(-1, 0, 1), (64, 0, 1), (0, -1, 1), (0, INDEX_MAX + 1, 1), (0, 0, 0), (0, 0, 257)]
)
def test_there_is_no_path_of_an_impossible_tile(level: int, index: int, width: int) -> None:
    with pytest.raises(FormatError):
        tile_path(level, index, width)


def test_a_tile_is_its_packed_hashes_and_its_place() -> None:
    tile = Tile(level=1, index=2, hashes=tuple(LEAVES[:3]))
    assert tile.pack() == b"".join(LEAVES[:3])
    assert Tile.parse(tile.pack(), level=1, index=2) == tile
    assert tile.root() == root_of(LEAVES[:3])


@pytest.mark.parametrize("data", [b"", b"x", H[:31], H + b"x", H * 257])
def test_a_tile_with_no_hash_a_cut_hash_or_too_many_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError, match="tile"):
        Tile.parse(data, level=0, index=0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_a_bundle_is_read_as_it_was_written(entries: list[bytes]) -> None:
    assert parse_bundle(format_bundle(entries)) == entries


def test_a_bundle_holds_lengths_of_two_bytes_before_entries() -> None:
    assert format_bundle([b"one", b"", b"two"]) == b"\x00\x03one\x00\x00\x00\x03two"
    longest = [b"x" * ENTRY_SIZE_BYTES_MAX] * 2
    assert parse_bundle(format_bundle(longest)) == longest
    assert len(parse_bundle(format_bundle([b""] * TILE_WIDTH))) == TILE_WIDTH


def test_an_entry_over_the_limit_of_a_bundle_is_refused() -> None:
    with pytest.raises(LimitExceededError, match="65536"):
        format_bundle([b"x" * (ENTRY_SIZE_BYTES_MAX + 1)])


@pytest.mark.parametrize("count", [0, TILE_WIDTH + 1])
def test_a_bundle_of_no_entry_or_too_many_is_a_format_error(count: int) -> None:
    with pytest.raises(FormatError):
        format_bundle([b""] * count)
    with pytest.raises(FormatError):
        parse_bundle(b"\x00\x00" * count)


def test_a_bundle_cut_anywhere_within_an_entry_is_a_format_error() -> None:
    data = format_bundle([b"one", b"", b"three"])
    borders = {0: None, 5: 1, 7: 2, 14: 3}
    for end in range(len(data)):
        if borders.get(end):
            assert len(parse_bundle(data[:end])) == borders[end]
        else:
            with pytest.raises(FormatError):
                parse_bundle(data[:end])


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60) | st.lists(st.sampled_from([b"\x00\x00", b"\x00\x01", b"x"]), max_size=300).map(b"".join))
def test_arbitrary_bytes_are_a_bundle_or_a_format_error(data: bytes) -> None:
    try:
        entries = parse_bundle(data)
    except FormatError:
        return
    assert format_bundle(entries) == data


def test_a_log_of_70000_entries_has_the_tiles_that_the_specification_counts(store: TileStore) -> None:
    assert sorted(store.tiles) == [*((0, i) for i in range(273)), (1, 0)]
    assert tuple(map(len, store.pending)) == pending_widths(SIZE) == (112, 17, 1)
    widths = {(0, 272): 256, (0, 273): 112, (0, 274): 0, (1, 0): 256, (1, 1): 17, (2, 0): 1, (3, 0): 0}
    assert {(level, i): tile_width(level=level, index=i, size=SIZE) for level, i in widths} == widths


def test_every_hash_of_a_tile_is_the_root_of_what_lies_below_it(store: TileStore) -> None:
    assert store.tiles[0, 272].hashes == tuple(LEAVES[272 * 256 : 273 * 256])
    assert store.tiles[1, 0].hashes == tuple(store.tiles[0, i].root() for i in range(256))
    assert store.pending == (
        tuple(LEAVES[273 * 256 :]),
        tuple(store.tiles[0, i].root() for i in range(256, 273)),
        (store.tiles[1, 0].root(),),
    )
    assert store.tiles[1, 0].root() == root_of(LEAVES[:65_536])


@pytest.mark.parametrize("batch_size", [64, 255, 256, 257, 1000, 65_536])
def test_tiles_do_not_depend_on_the_batches(store: TileStore, batch_size: int) -> None:
    batched = TileStore(LEAVES, batch_size=batch_size)
    assert batched.tiles == store.tiles
    assert batched.pending == store.pending


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=1100), max_size=8), st.sampled_from([0, 255, 65_000]))
def test_tiles_do_not_depend_on_irregular_batches(cuts: list[int], start: int) -> None:
    first, base = complete_tiles(size=0, pending=(), leaves=LEAVES[:start])
    at_once, expected = complete_tiles(size=start, pending=base, leaves=LEAVES[start : start + 1100])
    tiles: list[Tile] = []
    pending = base
    for a, b in pairwise([0, *sorted(cuts), 1100]):
        more, pending = complete_tiles(size=start + a, pending=pending, leaves=LEAVES[start + a : start + b])
        tiles += more
    assert pending == expected
    assert sorted(tiles, key=place) == sorted(at_once, key=place)
    assert len(first) + len(tiles) == (start + 1100) // 256 + (start + 1100) // 65_536


def place(tile: Tile) -> tuple[int, int]:
    return tile.level, tile.index


def test_a_tile_comes_after_the_tiles_that_it_stands_on() -> None:
    tiles, _ = complete_tiles(size=0, pending=(), leaves=LEAVES)
    assert [place(tile) for tile in tiles] == [*((0, i) for i in range(273)), (1, 0)]


@pytest.mark.parametrize(
    ("size", "pending"), [(1, ()), (0, ((H,),)), (256, ((), ())), (256, ((H,),)), (2, ((H,),)), (1, ((H,), ()))]
)
def test_pending_hashes_of_another_size_are_refused(size: int, pending: Pending) -> None:
    with pytest.raises(FormatError, match="pending tiles"):
        complete_tiles(size=size, pending=pending, leaves=[H])


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, SIZE])
def test_proofs_read_from_tiles_lead_to_the_root_of_the_frontier(size: int) -> None:
    store = TileStore(LEAVES[:size])
    root = Frontier.empty().extended(LEAVES[:size]).root()
    for index in sorted({0, 1, 254, 255, 256, 257, 65_534, 65_535, 65_536, size // 2, size - 1}):
        if index >= size:
            continue
        store.reads.clear()
        proof = prove_inclusion(index=index, size=size, read=tile_hash_reader(store, size))
        check_inclusion(index=index, size=size, leaf=LEAVES[index], proof=proof, root=root)
        assert len(store.reads) == len(set(store.reads)) <= 6
        root1 = Frontier.empty().extended(LEAVES[: index + 1]).root()
        proof = prove_consistency(size1=index + 1, size2=size, read=tile_hash_reader(store, size))
        check_consistency(size1=index + 1, size2=size, root1=root1, root2=root, proof=proof)


def test_an_older_tree_is_proved_from_the_tiles_of_a_newer_one(store: TileStore) -> None:
    for size in [3, 300, 65_000]:
        root = Frontier.empty().extended(LEAVES[:size]).root()
        proof = prove_inclusion(index=2, size=size, read=tile_hash_reader(store, size))
        check_inclusion(index=2, size=size, leaf=LEAVES[2], proof=proof, root=root)


def test_a_changed_hash_in_a_tile_gives_proofs_that_fail(store: TileStore) -> None:
    def changed(level: int, index: int, width: int) -> Tile:
        tile = store(level, index, width)
        return Tile(level=level, index=index, hashes=(tile.hashes[-1], *tile.hashes[1:])) if level == 0 else tile

    root = Frontier.empty().extended(LEAVES).root()
    proof = prove_inclusion(index=7, size=SIZE, read=tile_hash_reader(changed, SIZE))
    with pytest.raises(BrokenError):
        check_inclusion(index=7, size=SIZE, leaf=LEAVES[7], proof=proof, root=root)


def test_a_reader_that_gives_another_tile_or_a_narrow_one_is_caught(store: TileStore) -> None:
    def another(level: int, index: int, width: int) -> Tile:
        return store(level, index + 1, width)

    def narrow(level: int, index: int, width: int) -> Tile:
        return Tile(level=level, index=index, hashes=store(level, index, width).hashes[: width - 1])

    for read_tile in [another, narrow]:
        with pytest.raises(BrokenError) as caught:
            prove_inclusion(index=7, size=SIZE, read=tile_hash_reader(read_tile, SIZE))
        assert caught.value.fault is Fault.TILE
        assert caught.value.where == "tile/1/001.p/17"  # the first that the proof needs


@pytest.mark.parametrize(("level", "index"), [(0, SIZE), (16, 1), (17, 0), (-1, 0), (0, -1)])
def test_a_subtree_outside_the_tree_is_not_read(store: TileStore, level: int, index: int) -> None:
    with pytest.raises(LedgerError, match="subtree"):
        tile_hash_reader(store, SIZE)(level, index)
