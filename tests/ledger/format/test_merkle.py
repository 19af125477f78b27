# SPDX-License-Identifier: Apache-2.0
"""The tree against the definitions of RFC 6962, against vectors and a library of others, and every proof corrupted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pymerkle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format.merkle import (
    EMPTY_ROOT,
    Frontier,
    check_consistency,
    check_inclusion,
    leaf_hash,
    node_hash,
    perfect_subtrees,
    prove_consistency,
    prove_inclusion,
    root_of,
)

SIZE_MAX = 130
ENTRIES = [b"entry %d" % i for i in range(SIZE_MAX)]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]
ROOTS = [root_of(LEAVES[:size]) for size in range(SIZE_MAX + 1)]
SIZES = st.integers(min_value=1, max_value=2**63 - 1)
EVERY_KIND_OF_SIZE = (*range(1, 41), 63, 64, 65, 127, 128, 129, SIZE_MAX)


@cache
def mth(start: int, end: int) -> bytes:
    """MTH(D[start:end]) as RFC 6962, section 2.1, defines it."""
    match end - start:
        case 0:
            return sha256(b"").digest()
        case 1:
            return sha256(b"\x00" + ENTRIES[start]).digest()
        case n:
            k = largest_power_of_two_below(n)
            return sha256(b"\x01" + mth(start, start + k) + mth(start + k, end)).digest()


def path(m: int, start: int, end: int) -> list[bytes]:
    """PATH(m, D[start:end]) as RFC 6962, section 2.1.1, defines it."""
    n = end - start
    if n == 1:
        return []
    k = largest_power_of_two_below(n)
    if m < k:
        return [*path(m, start, start + k), mth(start + k, end)]
    return [*path(m - k, start + k, end), mth(start, start + k)]


def subproof(m: int, start: int, end: int, *, known: bool) -> list[bytes]:
    """SUBPROOF(m, D[start:end], b) as RFC 6962, section 2.1.2, defines it."""
    n = end - start
    if m == n:
        return [] if known else [mth(start, end)]
    k = largest_power_of_two_below(n)
    if m <= k:
        return [*subproof(m, start, start + k, known=known), mth(start + k, end)]
    return [*subproof(m - k, start + k, end, known=False), mth(start, start + k)]


def largest_power_of_two_below(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def read(level: int, index: int) -> bytes:
    return mth(index << level, (index + 1) << level)


def corrupted(proof: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Every hash with a bit flipped, every hash dropped, a hash added at every place."""
    for i, h in enumerate(proof):
        bit = 37 * i % 256  # another bit each time, so that the whole width of a hash is covered
        flipped = bytearray(h)
        flipped[bit // 8] ^= 1 << bit % 8
        yield [*proof[:i], bytes(flipped), *proof[i + 1 :]]
        yield [*proof[:i], *proof[i + 1 :]]
    for i in range(len(proof) + 1):
        yield [*proof[:i], LEAVES[0], *proof[i:]]


def assert_broken(check: Callable[..., None], **arguments: object) -> None:
    with pytest.raises(BrokenError) as caught:
        check(**arguments)
    assert caught.value.fault is Fault.PROOF


def test_hashes_have_the_known_values_of_rfc_6962() -> None:
    # From the tests of certificate-transparency-go and transparency-dev/merkle (rfc6962/rfc6962_test.go).
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert leaf_hash(b"").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert leaf_hash(b"L123456").hex() == "395aa064aa4c29f7010acfe3f25db9485bbd4b91897b6ad7ad547639252b4d56"
    assert node_hash(b"N123", b"N456").hex() == "aa217fe888e47007fa15edab33c2b492a722cb106c64667fc2b044444de66bbb"


def test_roots_of_the_eight_test_leaves_have_the_known_values() -> None:
    # Leaves and roots of the reference tree of certificate-transparency (merkle_tree_test), sizes 1 to 8.
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    leaves = [leaf_hash(bytes.fromhex(entry)) for entry in inputs]
    assert [root_of(leaves[:size]).hex() for size in range(1, 9)] == roots


def test_roots_are_those_of_the_definition_and_no_two_sizes_share_one() -> None:
    assert [mth(0, size) for size in range(SIZE_MAX + 1)] == ROOTS
    assert len(set(ROOTS)) == SIZE_MAX + 1


def test_a_lone_right_node_is_promoted_and_not_doubled() -> None:
    a, b, c = LEAVES[:3]
    assert root_of([a, b, c]) == node_hash(node_hash(a, b), c)
    assert root_of([a, b, c]) != root_of([a, b, c, c])


def test_every_perfect_subtree_is_made_once_and_none_over_leaves_that_are_not_there() -> None:
    for size in range(SIZE_MAX + 1):
        heights = perfect_subtrees(LEAVES[:size])
        assert [len(roots) for roots in heights] == [size >> height for height in range(size.bit_length())]
        for height, roots in enumerate(heights):
            assert roots == [mth(at << height, (at + 1) << height) for at in range(len(roots))]


def test_the_frontier_knows_the_root_of_every_size_whether_leaves_come_singly_or_at_once() -> None:
    one_by_one = Frontier.empty()
    for size in range(SIZE_MAX + 1):
        assert one_by_one == Frontier.empty().extended(LEAVES[:size])
        assert one_by_one.root() == ROOTS[size]
        assert Frontier.parse(size, one_by_one.pack()) == one_by_one
        one_by_one = one_by_one.extended(LEAVES[size : size + 1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=SIZE_MAX), max_size=8))
def test_the_frontier_does_not_depend_on_the_batches(cuts: list[int]) -> None:
    frontier = Frontier.empty()
    for start, end in pairwise([0, *sorted(cuts), SIZE_MAX]):
        frontier = frontier.extended(iter(LEAVES[start:end]))
    assert frontier == Frontier.empty().extended(LEAVES)
    assert frontier.root() == ROOTS[SIZE_MAX]


@pytest.mark.parametrize(
    ("size", "data"),
    [(0, b"x"), (3, b"x" * 32), (3, b"x" * 63), (3, b"x" * 65), (3, b"x" * 96), (-1, b""), (-1, b"x" * 32)],
)
def test_a_frontier_with_the_wrong_hashes_for_its_size_is_a_format_error(size: int, data: bytes) -> None:
    with pytest.raises(FormatError, match="frontier"):
        Frontier.parse(size, data)


def test_every_inclusion_proof_is_the_one_of_the_definition_and_no_corrupted_one_passes() -> None:
    for size in EVERY_KIND_OF_SIZE:
        for index in range(size):
            proof = prove_inclusion(index=index, size=size, read=read)
            assert proof == path(index, 0, size)
            check_inclusion(index=index, size=size, leaf=LEAVES[index], proof=proof, root=ROOTS[size])
            for bad in corrupted(proof):
                with pytest.raises(BrokenError):
                    check_inclusion(index=index, size=size, leaf=LEAVES[index], proof=bad, root=ROOTS[size])


def test_every_consistency_proof_is_the_one_of_the_definition_and_no_corrupted_one_passes() -> None:
    for size2 in EVERY_KIND_OF_SIZE:
        for size1 in range(1, size2 + 1):
            proof = prove_consistency(size1=size1, size2=size2, read=read)
            assert proof == subproof(size1, 0, size2, known=True)
            root1, root2 = ROOTS[size1], ROOTS[size2]
            check_consistency(size1=size1, size2=size2, root1=root1, root2=root2, proof=proof)
            for bad in corrupted(proof):
                with pytest.raises(BrokenError):
                    check_consistency(size1=size1, size2=size2, root1=root1, root2=root2, proof=bad)


def test_an_inclusion_proof_holds_for_no_other_index_leaf_or_root() -> None:
    for size in range(1, 34):
        for index in range(size):
            proof = prove_inclusion(index=index, size=size, read=read)
            good = {"index": index, "size": size, "leaf": LEAVES[index], "proof": proof, "root": ROOTS[size]}
            for other in {-1, *range(size + 1), 2**64 - 1} - {index}:
                assert_broken(check_inclusion, **{**good, "index": other})
            assert_broken(check_inclusion, **{**good, "leaf": LEAVES[index + 1]})
            assert_broken(check_inclusion, **{**good, "leaf": LEAVES[index][:31]})
            assert_broken(check_inclusion, **{**good, "root": ROOTS[size + 1]})
            assert_broken(check_inclusion, **{**good, "root": b""})


def test_a_consistency_proof_holds_for_no_other_roots_or_smaller_size() -> None:
    for size2 in range(2, 34):
        for size1 in range(1, size2):
            proof = prove_consistency(size1=size1, size2=size2, read=read)
            good = {"size1": size1, "size2": size2, "root1": ROOTS[size1], "root2": ROOTS[size2], "proof": proof}
            for other in {-1, *range(size2 + 2)} - {size1}:
                assert_broken(check_consistency, **{**good, "size1": other})
            assert_broken(check_consistency, **{**good, "root1": ROOTS[size1 - 1]})
            assert_broken(check_consistency, **{**good, "root2": ROOTS[size2 + 1]})
            assert_broken(check_consistency, **{**good, "root1": ROOTS[size2], "root2": ROOTS[size1]})
            assert_broken(check_consistency, **{**good, "root1": b""})


def test_moving_the_border_between_two_hashes_is_detected() -> None:
    proof = prove_inclusion(index=5, size=8, read=read)
    leaf, sibling = LEAVES[5], proof[0]  # index 5 is a right child: sibling || leaf is hashed
    assert node_hash(sibling + leaf[:1], leaf[1:]) == node_hash(sibling, leaf)
    moved = [sibling + leaf[:1], *proof[1:]]
    assert_broken(check_inclusion, index=5, size=8, leaf=leaf[1:], proof=moved, root=ROOTS[8])


def test_hashes_of_another_length_are_refused_as_such() -> None:
    proof = prove_consistency(size1=3, size2=8, read=read)
    for bad in [[proof[0][:31], *proof[1:]], [*proof[:-1], proof[-1] + b"x"], [b"", *proof]]:
        with pytest.raises(BrokenError, match="32 bytes"):
            check_consistency(size1=3, size2=8, root1=ROOTS[3], root2=ROOTS[8], proof=bad)
        with pytest.raises(BrokenError, match="32 bytes"):
            check_inclusion(index=2, size=8, leaf=LEAVES[2], proof=bad, root=ROOTS[8])


def test_a_proof_longer_than_the_tree_is_high_is_refused_though_it_leads_to_the_root() -> None:
    # Whoever invents the root can make any further hash fit; only the size says where a proof must end.
    more = LEAVES[0]
    proof = prove_inclusion(index=5, size=8, read=read)
    for root in [node_hash(more, ROOTS[8]), node_hash(ROOTS[8], more)]:
        assert_broken(check_inclusion, index=5, size=8, leaf=LEAVES[5], proof=[*proof, more], root=root)
    proof = prove_consistency(size1=5, size2=8, read=read)
    root1, root2 = node_hash(more, ROOTS[5]), node_hash(more, ROOTS[8])
    assert_broken(check_consistency, size1=5, size2=8, root1=root1, root2=root2, proof=[*proof, more])


def test_consistency_of_equal_sizes_needs_equal_roots_and_no_proof() -> None:
    check_consistency(size1=7, size2=7, root1=ROOTS[7], root2=ROOTS[7], proof=[])
    check_consistency(size1=0, size2=0, root1=EMPTY_ROOT, root2=EMPTY_ROOT, proof=[])
    assert_broken(check_consistency, size1=7, size2=7, root1=ROOTS[7], root2=ROOTS[8], proof=[])
    assert_broken(check_consistency, size1=7, size2=7, root1=ROOTS[7], root2=ROOTS[7], proof=[LEAVES[0]])
    assert_broken(check_consistency, size1=0, size2=0, root1=LEAVES[0], root2=LEAVES[0], proof=[])
    assert_broken(check_consistency, size1=-1, size2=-1, root1=EMPTY_ROOT, root2=EMPTY_ROOT, proof=[])


def test_nothing_is_proved_from_the_empty_tree() -> None:
    assert_broken(check_consistency, size1=0, size2=3, root1=EMPTY_ROOT, root2=ROOTS[3], proof=[])
    assert_broken(check_consistency, size1=0, size2=3, root1=EMPTY_ROOT, root2=ROOTS[3], proof=[ROOTS[3]])
    for size1, size2 in [(0, 3), (0, 0), (4, 3), (-1, 3)]:
        with pytest.raises(LedgerError, match="consistency proof"):
            prove_consistency(size1=size1, size2=size2, read=read)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (3, 3), (4, 3), (-1, 3)])
def test_there_is_no_inclusion_proof_outside_the_tree(index: int, size: int) -> None:
    with pytest.raises(LedgerError, match="inclusion proof"):
        prove_inclusion(index=index, size=size, read=read)


class EqualLeaves:
    """Trees of any size whose leaves are all alike, so that the hash of a perfect subtree depends on its level only."""

    def __init__(self) -> None:
        self.reads = 0
        self.hashes = [leaf_hash(b"")]
        for _ in range(63):
            self.hashes.append(node_hash(self.hashes[-1], self.hashes[-1]))

    def __call__(self, level: int, index: int) -> bytes:
        assert index >= 0
        self.reads += 1
        return self.hashes[level]

    def root(self, size: int) -> bytes:
        levels = [level for level in range(63, -1, -1) if size >> level & 1]
        return Frontier(size=size, hashes=tuple(self.hashes[level] for level in levels)).root()


@settings(max_examples=40, deadline=None)
@given(SIZES, st.data())
def test_proofs_of_trees_of_any_size_hold_and_read_few_hashes(size: int, data: st.DataObject) -> None:
    tree = EqualLeaves()
    index = data.draw(st.integers(min_value=0, max_value=size - 1))
    proof = prove_inclusion(index=index, size=size, read=tree)
    check_inclusion(index=index, size=size, leaf=tree.hashes[0], proof=proof, root=tree.root(size))
    assert tree.reads <= 2 * 63
    size1 = index + 1
    roots = {"root1": tree.root(size1), "root2": tree.root(size)}
    consistency = prove_consistency(size1=size1, size2=size, read=tree)
    check_consistency(size1=size1, size2=size, proof=consistency, **roots)
    assert tree.reads <= 4 * 63
    for bad in corrupted(proof):
        assert_broken(check_inclusion, index=index, size=size, leaf=tree.hashes[0], proof=bad, root=tree.root(size))
    for bad in corrupted(consistency):
        assert_broken(check_consistency, size1=size1, size2=size, proof=bad, **roots)


def from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def test_every_inclusion_vector_of_transparency_dev_is_judged_as_it_says(shared_data: Path) -> None:
    vectors = sorted((shared_data / "merkle/inclusion").rglob("*.json"))
    assert len(vectors) == 98
    for vector in vectors:
        case = json.loads(vector.read_bytes())
        arguments = {
            "index": case["leafIdx"],
            "size": case["treeSize"],
            "leaf": from_base64(case["leafHash"]),
            "proof": [from_base64(h) for h in case["proof"] or []],
            "root": from_base64(case["root"]),
        }
        judge(case, vector, check_inclusion, arguments)


def test_every_consistency_vector_of_transparency_dev_is_judged_as_it_says(shared_data: Path) -> None:
    vectors = sorted((shared_data / "merkle/consistency").rglob("*.json"))
    assert len(vectors) == 98
    for vector in vectors:
        case = json.loads(vector.read_bytes())
        arguments = {
            "size1": case["size1"],
            "size2": case["size2"],
            "root1": from_base64(case["root1"]),
            "root2": from_base64(case["root2"]),
            "proof": [from_base64(h) for h in case["proof"] or []],
        }
        judge(case, vector, check_consistency, arguments)


def judge(case: dict[str, object], vector: Path, check: Callable[..., None], arguments: dict[str, object]) -> None:
    accepted = True
    try:
        check(**arguments)
    except BrokenError:
        accepted = False
    assert accepted is not case["wantErr"], vector


def test_pymerkle_agrees_on_every_root_and_inclusion_proof() -> None:
    # Its indexes count from 1, its paths begin with the leaf, and its consistency proofs are another construction.
    tree = pymerkle.InmemoryTree(algorithm="sha256")
    for entry in ENTRIES:
        tree.append_entry(entry)
    for size in range(SIZE_MAX + 1):
        assert tree.get_root(size) == ROOTS[size]
    for size in EVERY_KIND_OF_SIZE:
        for index in range(size):
            theirs = tree.prove_inclusion(index + 1, size).path
            assert theirs == [LEAVES[index], *prove_inclusion(index=index, size=size, read=read)]
