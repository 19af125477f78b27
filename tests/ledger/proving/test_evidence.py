# SPDX-License-Identifier: Apache-2.0
"""Evidence bundles: what they prove, how complete they are, and that both checkers refuse every change to one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format.entry import parse_entry
from ledger.format.merkle import check_inclusion, root_of
from ledger.format.note import Ed25519Signer
from ledger.format.proof import inclusion_proof, prove_entries, root_from
from ledger.format.sequence import Group
from ledger.proving.evidence.bundle import ENTRIES_MAX, Bundle, format_bundle, parse_bundle
from ledger.proving.evidence.check import CheckedEvidence, check_evidence
from ledger.proving.evidence.gather import (
    DecisionAt,
    DecisionOf,
    EvidenceRefusedError,
    EvidenceRequest,
    PartNames,
    Rules,
    rules_in_force,
)
from ledger.proving.evidence.scope import Period, PeriodScope, TableScope, parse_scope
from testkit.ledger.evidence_logs import (
    OTHER_TABLE,
    SYSTEM,
    SYSTEM_ORIGIN,
    TABLE,
    anchor_of,
    evidence,
    group_id,
    group_of,
    hour,
    rule,
    section_of,
    story_directory,
    story_rows,
    text_of,
)
from testkit.ledger.logs import KEY, ORIGIN, OTHER_ORIGIN, SIGNER, noise, plain_rows, rows_of, signed
from testkit.ledger.standalone import standalone

KEYS = [KEY, SYSTEM.verifier_key]
NO_PARTS = PartNames()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story_directory(tmp_path_factory.mktemp("story"))


def period(first: int, end: int) -> Period:
    return Period(since=text_of(hour(first)), until=text_of(hour(end)))


def proven(data: bytes) -> CheckedEvidence:
    """Return what both checkers accept."""
    assert standalone(data, KEYS).code == 0
    return check_evidence(data, KEYS)


def broken(data: bytes) -> BrokenError:
    """Return the fault that a bundle is refused for, by both checkers."""
    assert standalone(data, KEYS).code == 1
    with pytest.raises(BrokenError) as caught:
        check_evidence(data, KEYS)
    return caught.value


def indexes(found: CheckedEvidence) -> list[int]:
    return [one.entry.index for one in found.entries]


# The proof over several entries


@pytest.mark.parametrize("size", [*range(1, 18), 255, 256, 257])
def test_a_proof_of_any_two_entries_leads_to_the_root_and_no_changed_one_does(size: int) -> None:
    leaves = [noise(size, number) for number in range(size)]
    root = root_of(leaves)

    def read(level: int, index: int) -> bytes:
        return root_of(leaves[index << level : (index + 1) << level])

    for first in range(0, size, max(size // 8, 1)):
        wanted = sorted({first, (7 * first + 3) % size, size - 1})
        known = {index: leaves[index] for index in wanted}
        proof = prove_entries(wanted, size=size, read=read)
        assert root_from(known, size=size, proof=proof) == root
        for index in wanted:
            path = inclusion_proof(index, known, size=size, proof=proof)
            check_inclusion(index=index, size=size, leaf=leaves[index], proof=path, root=root)
        for at in range(len(proof)):
            changed = [*proof[:at], noise("other"), *proof[at + 1 :]]
            assert root_from(known, size=size, proof=changed) != root
            with pytest.raises(BrokenError, match="longer proof"):
                root_from(known, size=size, proof=proof[:at] + proof[at + 1 :])
        with pytest.raises(BrokenError, match="too many"):
            root_from(known, size=size, proof=[*proof, noise("surplus")])


def test_neighbours_share_the_hashes_of_their_proof() -> None:
    def read(level: int, index: int) -> bytes:
        return noise(level, index)

    assert len(prove_entries([77], size=1 << 20, read=read)) == 20
    assert len(prove_entries(range(64, 128), size=1 << 20, read=read)) == 14


@pytest.mark.parametrize("wanted", [[], [1, 1], [2, 1], [-1], [8]])
def test_only_growing_indexes_within_the_tree_are_proven(wanted: list[int]) -> None:
    with pytest.raises(LedgerError, match="growing indexes"):
        prove_entries(wanted, size=8, read=lambda _level, _index: bytes(32))


# What is in a bundle


def test_a_decision_comes_with_its_outcome_and_what_is_disclosed_of_it(exported: Path) -> None:
    data = evidence(exported, DecisionOf(group_id=group_id(5)), parts=PartNames(names=["principal"]))
    found = proven(data)
    assert indexes(found) == [5, 6]
    assert [one.entry.type for one in found.entries] == ["commit.decided", "commit.settled"]
    assert [part.name for part in found.entries[0].parts] == ["principal"]
    assert "group of the decision: 2 entries" in found.coverage.complete[0]
    assert found.coverage.selected == ("the log may hold other outcomes of the decision",)


def test_an_outcome_of_another_group_is_found(exported: Path) -> None:
    assert indexes(proven(evidence(exported, DecisionOf(group_id=group_id(7))))) == [11, 13]


def test_a_transaction_is_whole_unless_one_table_is_asked_for(exported: Path) -> None:
    assert indexes(proven(evidence(exported, DecisionOf(group_id=group_id(6))))) == [7, 8, 9, 10]
    one = proven(evidence(exported, DecisionAt(index=8)))
    assert indexes(one) == [8, 10]
    assert one.coverage.complete == ()


def test_the_rules_that_judged_are_those_of_the_digest(exported: Path) -> None:
    found = proven(evidence(exported, DecisionOf(group_id=group_id(7), rules=Rules.INCLUDED)))
    assert indexes(found) == [1, 3, 11, 13]  # the policy as it was then, not as it is now, and none that was retired
    assert any("rules in force" in said for said in found.coverage.complete)


def test_a_table_is_a_selection_also_in_a_period(exported: Path) -> None:
    assert indexes(proven(evidence(exported, TableScope(key=TABLE)))) == [5, 6, 7, 9, 11, 13]
    found = proven(evidence(exported, TableScope(key=OTHER_TABLE, period=period(5, 6))))
    assert indexes(found) == [8, 10]
    assert not found.coverage.complete
    assert found.coverage.selected


@pytest.mark.parametrize(
    ("first", "end", "inside"),
    [(4, 6, range(5, 11)), (0, 1, range(1)), (9, 20, range(14, 15)), (-5, 50, range(15)), (-5, -1, range(0))],
)
def test_a_period_is_complete_between_its_neighbours(exported: Path, first: int, end: int, inside: range) -> None:
    found = proven(evidence(exported, PeriodScope(period=period(first, end))))
    shown = range(max(inside.start - 1, 0), min(inside.stop + 1, 15))
    assert indexes(found) == list(shown)
    assert f"all {len(inside)} entries" in found.coverage.complete[0]
    assert ("as far as signed" in found.coverage.complete[0]) == (end > 9)


def test_an_empty_period_between_two_entries_is_proven_empty(exported: Path) -> None:
    within = Period(since=text_of(hour(4) + timedelta(minutes=1)), until=text_of(hour(5)))
    found = proven(evidence(exported, PeriodScope(period=within)))
    assert indexes(found) == [6, 7]
    assert "all 0 entries" in found.coverage.complete[0]


@pytest.mark.parametrize(
    "wanted",
    [
        DecisionOf(group_id=group_id(77)),
        DecisionOf(group_id=group_id(1)),
        DecisionAt(index=15),
        TableScope(key="table:lake/sales/none"),
    ],
)
def test_what_is_not_there_is_refused(exported: Path, wanted: EvidenceRequest) -> None:
    with pytest.raises(EvidenceRefusedError):
        evidence(exported, wanted)


def test_an_anchor_in_the_system_log_is_proven_and_named_if_its_key_is_not_at_hand(exported: Path) -> None:
    data = evidence(exported, DecisionOf(group_id=group_id(5)))
    bundle = parse_bundle(data)
    checkpoint = check_evidence(data, [KEY]).checkpoint
    anchored = format_bundle(replace(bundle, anchor=anchor_of(checkpoint)))
    found = proven(anchored)
    assert found.anchor is not None
    assert (found.anchor.origin, found.anchor.size, found.anchor.root) == (
        checkpoint.origin,
        checkpoint.size,
        checkpoint.root,
    )
    assert any("anchor in the log" in name for name in check_evidence(anchored, [KEY]).unchecked)
    assert standalone(anchored, [KEY]).code == 0
    of_another = format_bundle(replace(bundle, anchor=anchor_of(replace(checkpoint, size=14))))
    assert broken(of_another).fault is Fault.ANCHOR


def test_an_anchor_counts_only_in_the_system_log_of_the_same_installation(exported: Path) -> None:
    data = evidence(exported, DecisionOf(group_id=group_id(5)))
    bundle, checkpoint = parse_bundle(data), check_evidence(data, [KEY]).checkpoint
    for origin, accepted in (
        (SYSTEM_ORIGIN, True),
        (f"{SYSTEM_ORIGIN}/2", True),  # which goes on from it
        (ORIGIN, False),
        (OTHER_ORIGIN, False),
        ("logs.another/system", False),
        (f"{ORIGIN}/system", False),
    ):
        signer = Ed25519Signer.from_seed(name=origin, seed=bytes(32)) if origin != ORIGIN else SIGNER
        anchored = format_bundle(replace(bundle, anchor=anchor_of(checkpoint, signer=signer)))
        keys = [*KEYS, signer.verifier_key]
        assert standalone(anchored, keys).code == (0 if accepted else 1), origin
        if accepted:
            assert check_evidence(anchored, keys).anchor is not None
            continue
        with pytest.raises(BrokenError) as caught:
            check_evidence(anchored, keys)
        assert caught.value.fault is Fault.ANCHOR


def test_the_key_of_another_installation_s_system_log_asks_for_no_anchor(exported: Path) -> None:
    data = evidence(exported, DecisionOf(group_id=group_id(5)))
    anchored = format_bundle(replace(parse_bundle(data), anchor=anchor_of(check_evidence(data, [KEY]).checkpoint)))
    keys = [KEY, Ed25519Signer.from_seed(name="logs.another/system", seed=bytes(32)).verifier_key]
    assert standalone(anchored, keys).code == 0
    assert "NOT CHECKED: the anchor in the log 'logs.example/system'" in standalone(anchored, keys).output
    assert check_evidence(anchored, keys).unchecked == ("the anchor in the log logs.example/system: name its key, too",)


# What is refused


def test_every_changed_byte_is_refused_by_both(exported: Path) -> None:
    data = evidence(exported, DecisionOf(group_id=group_id(10)), parts=PartNames(names=["verdicts"]))
    bundle = parse_bundle(data)
    data = format_bundle(replace(bundle, anchor=anchor_of(check_evidence(data, [KEY]).checkpoint)))
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ (1 << at % 7)]) + data[at + 1 :]
        with pytest.raises(LedgerError):
            check_evidence(changed, KEYS)
        if at % 12 == 0:  # which takes ten times as long
            assert standalone(changed, KEYS).code in {1, 2}, at


@settings(max_examples=30)
@given(st.data())
def test_no_corruption_raises_anything_but_our_errors(exported: Path, data: st.DataObject) -> None:
    whole = evidence(exported, DecisionOf(group_id=group_id(6)))
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
    changed = whole[:at] + data.draw(st.binary(max_size=40) | st.just(whole[at:end] * 2)) + whole[end:]
    codes = {standalone(changed, KEYS).code == 0}
    try:
        check_evidence(changed, KEYS)
        codes.add(True)
    except LedgerError:
        codes.add(False)
    assert len(codes) == 1


@pytest.fixture
def bundle(exported: Path) -> Bundle:
    return parse_bundle(evidence(exported, DecisionOf(group_id=group_id(6))))


def test_surplus_and_missing_hashes_are_refused(bundle: Bundle) -> None:
    proof = bundle.section.proof
    for changed in (proof[:-1], proof[1:], (*proof, bytes(32)), tuple(reversed(proof))):
        section = replace(bundle.section, proof=changed)
        assert broken(format_bundle(replace(bundle, section=section))).fault is Fault.PROOF


def test_a_line_too_many_is_refused(bundle: Bundle) -> None:
    data = format_bundle(bundle)
    ends = [at + 1 for at in range(len(data)) if data[at : at + 1] == b"\n" and at < data.index(b"\ncheckpoint ")]
    assert len(ends) > 8
    for at in (*ends, len(data)):
        for line in (b"\n", b" \n", b"part\n", b"entry\n", b"x y\n"):
            broken(data[:at] + line + data[at:])


def test_an_entry_of_another_log_is_refused(bundle: Bundle) -> None:
    stranger = story_rows(log=OTHER_ORIGIN)[7].entry
    entries = (replace(bundle.section.entries[0], entry=stranger, parts=()), *bundle.section.entries[1:])
    error = broken(format_bundle(replace(bundle, section=replace(bundle.section, entries=entries))))
    assert (error.fault, error.index) == (Fault.ORIGIN, 7)


def test_a_checkpoint_of_another_key_is_refused(bundle: Bundle) -> None:
    stranger = Ed25519Signer.from_seed(name=KEY.name, seed=bytes(32))
    section = section_of(story_rows(), [7, 8, 9, 10], stranger)
    assert broken(format_bundle(replace(bundle, section=section))).fault is Fault.SIGNATURE


def test_a_part_of_another_entry_and_swapped_salts_are_refused(bundle: Bundle) -> None:
    one, two, *rest = bundle.section.entries
    inputs, principal, verdicts = one.parts
    for entries in (
        (one, replace(two, parts=one.parts), *rest),
        (replace(one, parts=(inputs, replace(principal, salt=verdicts.salt))), two, *rest),
        (replace(one, parts=(inputs, replace(principal, payload=b"{}"))), two, *rest),
        (one, two, replace(rest[0], parts=(principal,)), *rest[1:]),
    ):
        error = broken(format_bundle(replace(bundle, section=replace(bundle.section, entries=entries))))
        assert error.fault is Fault.PART


def test_entries_out_of_order_or_twice_are_refused(bundle: Bundle) -> None:
    one, two, *rest = bundle.section.entries
    for entries in ((two, one, *rest), (one, one, two, *rest)):
        assert broken(format_bundle(replace(bundle, section=replace(bundle.section, entries=entries)))).fault in {
            Fault.INDEX,
            Fault.TIME,
        }


@pytest.mark.parametrize(
    ("scope", "chosen"),
    [
        (f"decision {group_id(6)}", [7, 8, 9]),  # a table of the transaction was left out
        (f"decision {group_id(6)}", [7, 8, 9, 10, 12]),  # a rule that was not in force
        (f"decision {group_id(6)}", [5, 7, 8, 9, 10]),  # another decision
        (f"decision {group_id(6)} {TABLE}", [9]),  # an outcome without its decision
        (f"table {TABLE}", [5, 8]),
        (f"period {text_of(hour(4))} {text_of(hour(6))}", [4, 5, 6, 8, 9, 10, 11]),  # one left out
        (f"period {text_of(hour(4))} {text_of(hour(6))}", [5, 6, 7, 8, 9, 10, 11]),  # no neighbour before
        (f"period {text_of(hour(4))} {text_of(hour(6))}", [4, 5, 6, 7, 8, 9, 10]),  # none behind
        (f"period {text_of(hour(4))} {text_of(hour(6))}", [3, 4, 5, 6, 7, 8, 9, 10, 11]),  # more than is needed
    ],
)
def test_entries_that_are_proven_but_not_what_the_scope_says_are_refused(scope: str, chosen: list[int]) -> None:
    data = format_bundle(Bundle(scope=parse_scope(scope), section=section_of(story_rows(), chosen, SIGNER)))
    with pytest.raises(BrokenError) as caught:
        check_evidence(data, KEYS)
    assert caught.value.fault is Fault.PROOF
    if chosen[-1] != 12:  # which rules were in force is said to be unchecked there
        assert standalone(data, KEYS).code == 1


@pytest.mark.parametrize(
    "text",
    [
        "decision",
        "decision 1",
        f"decision {group_id(6)} a b",
        f"decision {str(group_id(6)).upper()}",
        "table ",
        "table a b",
        f"period {text_of(hour(2))} {text_of(hour(2))}",
        "period 2026-01-01 2026-02-01",
        "everything",
    ],
)
def test_a_scope_has_one_spelling(text: str) -> None:
    with pytest.raises(FormatError):
        parse_scope(text)


@pytest.mark.parametrize(
    "times",
    [
        (text_of(hour(3)).replace("T15:00", "T15:99"), text_of(hour(6))),
        (text_of(hour(3)), text_of(hour(6)).replace("T18:00", "T24:00")),
        (text_of(hour(3)).replace("03-01", "02-30"), text_of(hour(6))),
        (text_of(hour(6)), text_of(hour(3))),
        (text_of(hour(3)), text_of(hour(3))),
    ],
)
def test_a_period_of_times_that_are_none_is_refused_by_both(exported: Path, times: tuple[str, str]) -> None:
    for scope in (PeriodScope(period=period(3, 6)), TableScope(key=TABLE, period=period(3, 6))):
        data = evidence(exported, scope)
        proven(data)
        right = f"{text_of(hour(3))} {text_of(hour(6))}".encode()
        assert data.count(right) == 1
        assert broken(data.replace(right, " ".join(times).encode())).fault is Fault.PROOF


def test_more_entries_or_parts_than_evidence_may_hold_are_refused_by_both() -> None:
    rows = plain_rows(ENTRIES_MAX + 1)
    note = signed([row.entry for row in rows])
    head = f"lakeproof/evidence@v1\nscope table {parse_entry(rows[0].entry).key}\n".encode()
    tail = b"proof \ncheckpoint %d\n%b" % (len(note), note)
    whole = head + b"".join(b"entry %b\n" % row.entry for row in rows) + tail
    assert "at most 10000 entries" in str(broken(whole))

    part = b"part inputs " + b"A" * 44 + b"\n"
    for count in (1_000, 100_000):
        error = broken(head + b"entry %b\n" % rows[0].entry + part * count + tail)
        assert "commits to: at most" in str(error)


def test_a_file_that_is_no_bundle_is_no_broken_bundle() -> None:
    for data in (b"", b"x" * 100, rows_of(1)[0].entry):
        with pytest.raises(FormatError):
            check_evidence(data, KEYS)
        assert standalone(data, KEYS).code == 2


class ControlEntries:
    """A source of evidence that has control entries alone."""

    def __init__(self, *groups: Group) -> None:
        self._raw = [row.entry for row in story_rows(groups)]

    async def control_entries(self, *, end: int) -> list[bytes]:
        return self._raw[:end]


async def test_a_policy_that_ends_at_a_time_is_among_the_rules_of_a_decision_before_it() -> None:
    ends = rule("policy.retired", "keep", 2, retired_from=text_of(hour(5)))
    source = ControlEntries(group_of(0, rule("policy.created", "keep", 1)), group_of(1, ends))
    for moment, expected in ((4, [0]), (5, []), (6, [])):
        found = await rules_in_force(source, 1, at=hour(moment))  # type: ignore[arg-type]
        assert [one.index for one, _ in found] == expected
