# SPDX-License-Identifier: Apache-2.0
"""Time stamps in evidence: whoever pins an authority has each of them checked, and one that is spoilt is a fault."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from ledger.anchoring.anchors import Pinned, WitnessKind, stamped_note
from ledger.errors import BrokenError, Fault
from ledger.proving.evidence.bundle import Bundle, Section, format_bundle, parse_bundle
from ledger.proving.evidence.check import CheckedEvidence, check_evidence
from ledger.proving.evidence.gather import DecisionAt
from testkit.ledger import stamps
from testkit.ledger.evidence_logs import SYSTEM, anchor_of, evidence, story_directory
from testkit.ledger.logs import KEY

KEYS = [KEY, SYSTEM.verifier_key]
PINNED = Pinned(stamp_roots=[stamps.good().root.certificate])


def stamped(section: Section, token: bytes | None = None) -> Section:
    """Return the section with a time stamp over its checkpoint, by default a good one."""
    good = replace(stamps.good(), note=stamped_note(section.checkpoint)).token()
    return replace(section, stamp=token or good)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle with an anchor, both stamped."""
    data = evidence(story_directory(tmp_path_factory.mktemp("story")), DecisionAt(index=6))
    plain = parse_bundle(data)
    anchor = anchor_of(check_evidence(data, KEYS).checkpoint)
    return replace(plain, section=stamped(plain.section), anchor=stamped(anchor))


def check(bundle: Bundle, pinned: Pinned = PINNED) -> CheckedEvidence:
    return check_evidence(format_bundle(bundle), KEYS, pinned=pinned)


def test_good_stamps_anchor_the_evidence(bundle: Bundle) -> None:
    for whole in (bundle, replace(bundle, anchor=None)):
        found = check(whole)
        assert (found.witnessing.kinds, found.witnessing.time) == ((WitnessKind.STAMPED,), stamps.NOON)
        assert found.unchecked == ()


def test_a_stamp_of_which_one_bit_differs_is_a_fault_and_no_other_error(bundle: Bundle) -> None:
    alone = replace(bundle, anchor=None)
    good = alone.section.stamp
    assert good is not None
    random = Random(3161)  # noqa: S311 - the same in every run
    for _ in range(120):
        changed = bytearray(good)
        changed[random.randrange(len(good))] ^= 1 << random.randrange(8)
        with pytest.raises(BrokenError) as caught:
            check(replace(alone, section=stamped(alone.section, bytes(changed))))
        assert caught.value.fault is Fault.STAMP


@pytest.mark.parametrize("token", [b"garbage", b"\x30\x80", b"x" * 60_000, stamps.good().token()])
def test_a_bad_stamp_is_a_fault_wherever_it_stands(bundle: Bundle, token: bytes) -> None:
    assert bundle.anchor is not None
    for spoilt in (
        replace(bundle, section=stamped(bundle.section, token)),  # though the anchor vouches for it
        replace(bundle, anchor=stamped(bundle.anchor, token)),
        replace(bundle, section=stamped(bundle.section, token), anchor=None),
    ):
        with pytest.raises(BrokenError) as caught:
            check(spoilt)
        assert caught.value.fault is Fault.STAMP


def test_stamps_are_named_as_not_checked_if_no_authority_is_pinned(bundle: Bundle) -> None:
    found = check(bundle, Pinned())
    assert found.witnessing.kinds == ()
    assert [name.partition(" on ")[0] for name in found.unchecked] == ["the time stamp", "the time stamp"]
