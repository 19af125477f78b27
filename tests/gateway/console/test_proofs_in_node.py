# SPDX-License-Identifier: Apache-2.0
"""The modules that check proofs in a browser say in Node what our own verifier says, of right proofs and wrong ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lakeproof.commands.evidence import gather_from_log
from ledger.errors import BrokenError, FormatError
from ledger.format.cosignature import MlDsaKey, ml_dsa_verifier_key
from ledger.format.encoding import format_base64
from ledger.format.entry import parse_entry
from ledger.format.merkle import EMPTY_ROOT, leaf_hash, prove_consistency, prove_inclusion, root_of
from ledger.format.note import VerifierKey, format_note, parse_note
from ledger.format.witness_policy import WitnessPolicy
from ledger.proving.evidence.bundle import ENTRIES_MAX, Bundle, format_bundle, parse_bundle
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.gather import ALL_PARTS, DecisionAt, Rules
from ledger.proving.evidence.scope import DecisionScope
from testkit.gateway.console.node import Node, ThrownError, int_of, node
from testkit.gateway.evidence import committed, signed_and_anchored
from testkit.ledger.evidence_logs import SYSTEM, decided, group_id, group_of, rule, section_of, story_rows
from testkit.ledger.logs import KEY, SIGNER, noise, plain_rows, signed
from testkit.ledger.tampering.evidence import CLASSES, TRUST, UNWITNESSED, Case, Honest, make_honest
from testkit.ledger.tampering.instances import seeded
from testkit.ledger.virtual_log import VirtualLog
from testkit.ledger.witnesses import cosigners
from testkit.servers.gateways import Gateway

CORRUPTIONS = 400


@pytest.fixture(scope="module")
def modules() -> Iterator[Node]:
    with node() as running:
        yield running


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Honest:
    return make_honest(tmp_path_factory.mktemp("evidence"))


def python_verdict(case: Case) -> tuple[str, str | None, int | None]:
    """Return verdict, fault and index as the modules spell them, of our own verifier; it asks for no quorum."""
    try:
        check_evidence(case.data, [VerifierKey.parse(key) for key in case.keys])
    except BrokenError as error:
        return "broken", error.fault.value, error.index
    except FormatError:
        return "cannot tell", None, None
    return "proven", None, None


# Bundles


def test_an_honest_bundle_is_proven_with_all_that_it_says(modules: Node, honest: Honest) -> None:
    case = honest.case()
    found = modules.verify(case)
    assert (found["ok"], found["verdict"], found["fault"]) == (True, "proven", None)
    assert [step["ok"] for step in found["steps"]] == [True] * len(found["steps"])
    expected = check_evidence(case.data, honest.keys)
    assert [entry["index"] for entry in found["entries"]] == [1, 3, 7, 8, 9, 10]
    assert (found["complete"], found["selected"]) == (
        list(expected.coverage.complete),
        list(expected.coverage.selected),
    )
    assert (found["size"], found["root"]) == (15, expected.checkpoint.root.hex())
    assert (found["witnessed"], found["unchecked"]) == (True, [])
    assert {part["name"]: part["payload"] for part in found["entries"][2]["parts"]} == {
        part.name: part.payload for part in expected.entries[2].parts
    }


@pytest.mark.parametrize("name", CLASSES)
def test_a_tampered_bundle_is_refused_at_the_right_step_for_the_right_reason(
    modules: Node, honest: Honest, name: str
) -> None:
    case = CLASSES[name](honest)
    found = modules.verify(case)
    assert not found["ok"]
    failed = [step for step in found["steps"] if step["ok"] is False]
    assert [step["name"] for step in failed] == [case.step]
    assert (found["fault"], found["index"]) == (case.fault, case.index)
    assert found["verdict"] == ("cannot tell" if case.fault is None else "broken")
    assert "entries" not in found


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in TRUST])
def test_our_own_verifier_finds_the_same_fault_in_each_of_them(honest: Honest, name: str) -> None:
    case = CLASSES[name](honest)
    policy = WitnessPolicy.parse(case.policy.encode()) if case.policy else None
    if case.fault == UNWITNESSED:
        assert policy is not None
        bundle = parse_bundle(case.data)
        notes = [section.checkpoint for section in (bundle.section, bundle.anchor) if section is not None]
        assert not any(policy.is_met_by(policy.cosignatures(note).keys()) for note in notes)
    elif case.step == "witnesses":
        assert policy is not None
        anchor = parse_bundle(case.data).anchor
        assert anchor is not None
        with pytest.raises(BrokenError, match=f"{case.fault} fault"):
            policy.cosignatures(anchor.checkpoint)
    else:
        verdict = "cannot tell" if case.fault is None else "broken"
        assert python_verdict(case) == (verdict, case.fault, case.index)


def test_whatever_bytes_are_changed_both_say_the_same(modules: Node, honest: Honest) -> None:
    random, text = seeded("bundles in Node"), honest.anchor.checkpoint
    signed_alone = replace(honest.anchor, checkpoint=b"".join(text.splitlines(keepends=True)[:5]))
    whole = replace(honest, bundle=replace(honest.bundle, anchor=signed_alone)).case()
    seen = set()
    for _ in range(CORRUPTIONS):
        changed = corrupted(whole.data, random)
        case = replace(whole, data=changed, policy=None)
        found = modules.verify(case)
        assert (found["verdict"], found["fault"], found["index"]) == python_verdict(case), changed
        seen.add((found["verdict"], found["fault"]))
    assert ("proven", None) not in seen
    assert len(seen) >= 5


def corrupted(data: bytes, random: Random) -> bytes:
    """Return the data with a bit, a line or a stretch of it changed."""
    at = random.randrange(len(data))
    match random.randrange(5):
        case 0:
            lines = data.split(b"\n")
            one, two = random.sample(range(len(lines)), 2)
            lines[one], lines[two] = lines[two], lines[one]
            return b"\n".join(lines) if lines[one] != lines[two] else data + b"x"
        case 1:
            return data[:at]
        case 2:
            return data[:at] + data[at + random.randrange(1, 40) :]
        case _:
            return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id":"keep"', '"id":"\\ud800"'),
        ('"id":"keep"', '"id":"\\u006beep"'),
        ('"id":"keep"', '"id":"k\\/ep"'),
        ('"id":"keep"', '"id":"\\u0001\\b\\t\\n\\f\\r\\"\\\\"'),
        ('"id":"keep"', '"id":"\\u001F"'),
        ('"id":"keep"', '"id":"\x7f\u2028\U0001f600"'),
        ('"id":"keep"', '"id":9007199254740991'),
        ('"id":"keep"', '"id":-9007199254740991'),
        ('"id":"keep"', '"id":9007199254740992'),
        ('"id":"keep"', '"id":9007199254740993'),
        ('"id":"keep"', '"id":-0'),
        ('"id":"keep"', '"id":1e3'),
        ('"id":"keep"', '"id":1.5'),
        ('"id":"keep"', '"id":1e999'),
        ('"id":"keep"', '"id":NaN'),
        ('"id":"keep"', '"id":"keep","id":"keep"'),
        ('"data":{', '"data":{"__proto__":{},'),
        ('"data":{', '"data":{"b":1,"a":1,'),
        ('"data":{', '"data":{"10":1,"9":1,'),
        ('"data":{', '"data":{"é":1,'),
        ('"id":"keep"', '"id":' + "[" * 97 + "]" * 97),
        ('"id":"keep"', '"id":' + "[" * 98 + "]" * 98),
        ('"id":"keep"', '"id":' + "[" * 20_000 + "]" * 20_000),
        ('"data":{"id":"keep","version":1}', '"data":[]'),
        ('"data":{"id":"keep","version":1}', '"data":null'),
        ('"actor":"', '"actor":"A'),
        ('"parts":[]', '"parts":[["b","' + "0" * 64 + '"],["a","' + "0" * 64 + '"]]'),
        ('"parts":[]', '"parts":[["a","' + "0" * 64 + '"],["a","' + "0" * 64 + '"]]'),
        ('"parts":[]', '"parts":{}'),
        ('"type":"policy.created"', '"type":"policy.created.twice"'),
        ('"version":1},"group"', '"version":0},"group"'),
        ('"of":1', '"of":1025'),
        ('"of":1', '"of":0'),
        ('"position":0', '"position":1'),
        ('"branch":"then"', '"branch":"or"'),
        ('"recorded_at":"2026-03-01', '"recorded_at":"2024-02-29'),
        ('"recorded_at":"2026-03-01', '"recorded_at":"2023-02-29'),
        ('"recorded_at":"2026-03-01', '"recorded_at":"0000-03-01'),
        ('"recorded_at":"2026-03-01T12', '"recorded_at":"2026-03-01T24'),
        ('"occurred_at":"2026-03-01T12:00:00', '"occurred_at":"2026-03-01T12:00:60'),
        ('"index":0', '"index":00'),
        ('"key":"policy:keep"', '"key":"policy keep"'),
        ('"key":"policy:keep"', '"key":"policy:\\"keep\\\\"'),
        ('"key":"policy:keep"', '"key":"' + "k" * 2_001 + '"'),
        ('"id":"keep"', '"id":"' + "k" * 65_000 + '"'),
        ('"id":"keep"', '"id":"' + "k" * 66_000 + '"'),
    ],
)
def test_both_take_the_same_for_an_entry(modules: Node, honest: Honest, old: str, new: str) -> None:
    """The fault of an entry that one of them takes and the other does not would be another."""
    first = story_rows()[0].entry.decode()
    assert old in first
    entry = first.replace(old, new, 1).encode()
    note = honest.bundle.section.checkpoint
    head = b"lakeproof/evidence@v1\nscope table policy:keep\n"
    data = head + b"entry %b\nproof \ncheckpoint %d\n%b" % (entry, len(note), note)
    case = Case(data=data, keys=[KEY.format()], policy=None)
    found = modules.verify(case)
    assert (found["verdict"], found["fault"], found["index"]) == python_verdict(case)


def limits() -> dict[str, bytes]:
    """Return bundles that are beyond a limit of the form."""
    rows = plain_rows(ENTRIES_MAX + 1)
    note, entry = signed([rows[0].entry]), b"entry %b\n" % rows[0].entry
    head = f"lakeproof/evidence@v1\nscope table {parse_entry(rows[0].entry).key}\n".encode()
    checkpoint = b"checkpoint %d\n%b" % (len(note), note)
    names = [f"{first}{second}" for first in "abcdefgh" for second in "abcdefgh"]
    part = "".join(f"part {name} {format_base64(bytes(32))}\n" for name in names).encode()
    return {
        "no entry": head + b"proof \n" + checkpoint,
        "an entry without an end": head + entry[:-1],
        "too large an entry": head + b"entry " + b"x" * 65_536 + b"\nproof \n" + checkpoint,
        "too many entries": head + b"".join(b"entry %b\n" % row.entry for row in rows) + b"proof \n" + checkpoint,
        "too many parts": head + entry + part + b"proof \n" + checkpoint,
        "half a hash": head + entry + f"proof {format_base64(bytes(16))}\n".encode() + checkpoint,
        "no checkpoint": head + entry + b"proof \ncheckpoint 0\n",
        "too large a checkpoint": head + entry + b"proof \ncheckpoint 1000001\n" + b"x" * 1_000_001,
        "no time stamp": head + entry + b"proof \n" + checkpoint + b"stamp \n",
        "too large a time stamp": head
        + entry
        + b"proof \n"
        + checkpoint
        + f"stamp {format_base64(bytes(65_537))}\n".encode(),
    }


def test_what_is_beyond_a_limit_of_the_form_is_refused_before_anything_is_checked(modules: Node) -> None:
    for name, data in limits().items():
        case = Case(data=data, keys=[KEY.format()], policy=None)
        found = modules.verify(case)
        assert [step["name"] for step in found["steps"] if step["ok"] is False] == ["form"], name
        assert python_verdict(case) == (found["verdict"], found["fault"], found["index"]) == ("broken", "proof", None)


def test_rules_that_are_newer_than_the_decision_are_not_those_it_was_judged_by(modules: Node) -> None:
    for as_of, expected in ((1, ("proven", None, None)), (0, ("broken", "proof", 2))):
        rules = [
            group_of(0, rule("policy.changed", "keep", 2)),
            group_of(1, rule("access_rule.created", "engineers", 1)),
        ]
        rows = story_rows([*rules, group_of(2, decided(group_id(2), as_of=as_of))])
        bundle = Bundle(scope=DecisionScope(group_id=group_id(2)), section=section_of(rows, [0, 1, 2], SIGNER))
        case = Case(data=format_bundle(bundle), keys=[KEY.format()], policy=None)
        found = modules.verify(case)
        assert python_verdict(case) == (found["verdict"], found["fault"], found["index"]) == expected


async def test_the_evidence_of_a_real_decision_from_the_database_is_proven(
    modules: Node, gateway: Gateway, tmp_path: Path
) -> None:
    """A client commits through a gateway, its log is signed and anchored, and the operator bundles the decision."""
    index = await committed(gateway)
    installation, out = gateway.services.installation, tmp_path / "evidence"
    async with signed_and_anchored(gateway) as auditor:
        wanted = DecisionAt(index=index, rules=Rules.INCLUDED)
        done = await gather_from_log(installation, auditor, "acme", wanted, out, parts=ALL_PARTS, keys=[])
    keys = done.members["verifier_keys"]
    assert isinstance(keys, list)
    case = Case(data=out.read_bytes(), keys=keys, policy=None)
    found = await asyncio.to_thread(modules.verify, case)
    assert (found["verdict"], found["unchecked"]) == ("proven", [])
    assert {step["name"]: step["ok"] for step in found["steps"] if step["ok"] is not True} == {"witnesses": None}
    for other in (b"approved", b"accepted"):
        spoilt = replace(case, data=case.data.replace(other, b"rejected"))
        assert (await asyncio.to_thread(modules.verify, spoilt))["verdict"] == "broken"


# What is there and not checked


def test_without_the_key_of_the_system_log_the_anchor_is_not_checked_and_no_witness_counts(
    modules: Node, honest: Honest
) -> None:
    alone = replace(honest, keys=[KEY])
    found = modules.verify(replace(alone.case(), policy=None))
    assert (found["ok"], found["witnessed"]) == (True, False)
    assert {step["name"] for step in found["steps"] if step["ok"] is None} == {"anchor", "witnesses"}
    assert found["unchecked"] == [f"the anchor in the log {SYSTEM.name}: name its key, too"]
    assert modules.verify(alone.case())["fault"] == UNWITNESSED


def test_a_policy_names_keys_of_logs_and_its_quorum_may_be_of_witnesses_or_of_none(
    modules: Node, honest: Honest
) -> None:
    logs = "".join(f"log {key.format()}\n" for key in honest.keys)
    case = replace(honest.case(), keys=[])
    assert case.policy is not None
    assert modules.verify(replace(case, policy=logs + case.policy))["witnessed"]
    found = modules.verify(replace(case, policy=f"{logs}quorum none\n"))
    assert (found["ok"], found["witnessed"]) == (True, False)


def test_keys_of_ml_dsa_are_refused_and_witnesses_with_such_keys_do_not_count(modules: Node, honest: Honest) -> None:
    log_key = ml_dsa_verifier_key(KEY.name, MlDsaKey.from_seed(bytes(32)).public)
    found = modules.verify(replace(honest.case(), keys=[*honest.case().keys, log_key.format()]))
    assert (found["verdict"], found["steps"][1]["ok"]) == ("cannot tell", False)
    assert "ML-DSA-44" in found["steps"][1]["words"]

    _, ml_dsa = cosigners("witness.example/w9")
    text, lines = parse_note(honest.anchor.checkpoint)
    note = format_note(text, [*lines[:2], ml_dsa.cosign(text, time_s=1)])
    bundle = replace(honest.bundle, anchor=replace(honest.anchor, checkpoint=note))
    case = replace(honest, bundle=bundle).case()
    first = f"witness w0 {honest.cosigners[0].verifier_key.format()}\nwitness w9 {ml_dsa.verifier_key.format()}\n"
    assert modules.verify(replace(case, policy=f"{first}quorum w9\n"))["fault"] == UNWITNESSED
    enough = modules.verify(replace(case, policy=f"{first}quorum w0\n"))
    assert enough["unchecked"] == ["cosignatures of w9: ML-DSA-44"]


def test_signatures_of_others_and_time_stamps_are_named_as_not_checked(modules: Node, honest: Honest) -> None:
    bundle = replace(honest.bundle, section=replace(honest.bundle.section, stamp=b"a token"))
    found = modules.verify(replace(replace(honest, bundle=bundle).case(), policy=None))
    assert found["ok"]
    assert sorted(found["unchecked"])[:2] == [
        "a signature by witness.example/w0",
        "a signature by witness.example/w1",
    ]
    assert "time stamp" in found["unchecked"][-1]


# Proofs


def refused(modules: Node, name: str, *args: Any) -> str:
    with pytest.raises(ThrownError) as caught:
        modules.call(name, *args)
    assert caught.value.fault is not None, caught.value
    return caught.value.fault


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 13])
def test_every_inclusion_proof_of_a_small_tree_holds_and_none_that_was_changed(modules: Node, size: int) -> None:
    leaves = [noise(size, number) for number in range(size)]
    root = root_of(leaves)

    def read(level: int, index: int) -> bytes:
        return root_of(leaves[index << level : (index + 1) << level])

    for index in range(size):
        proof = prove_inclusion(index=index, size=size, read=read)
        right: dict[str, Any] = {"index": index, "size": size, "leaf": leaves[index], "proof": proof, "root": root}
        modules.call("verifyInclusion", right)
        others: list[dict[str, Any]] = [{"index": number} for number in {(index + 1) % size, size, -1} - {index}]
        others += [{"leaf": noise("leaf")}, {"root": noise("root")}, {"proof": [*proof, noise("more")]}]
        others += [{"proof": proof[:at] + proof[at + 1 :]} for at in range(len(proof))]
        others += [{"proof": [*proof[:at], noise("other"), *proof[at + 1 :]]} for at in range(len(proof))]
        others += [{"proof": [*proof[:at], proof[at][:31], *proof[at + 1 :]]} for at in range(len(proof))]
        for other in others:
            assert refused(modules, "verifyInclusion", right | other) == "proof"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 13])
def test_every_consistency_proof_of_a_small_tree_holds_and_none_that_was_changed(modules: Node, size: int) -> None:
    leaves = [noise(size, number) for number in range(size)]
    root2 = root_of(leaves)

    def read(level: int, index: int) -> bytes:
        return root_of(leaves[index << level : (index + 1) << level])

    for size1 in range(1, size + 1):
        root1 = root_of(leaves[:size1])
        proof = prove_consistency(size1=size1, size2=size, read=read)
        right: dict[str, Any] = {"size1": size1, "size2": size, "root1": root1, "root2": root2, "proof": proof}
        modules.call("verifyConsistency", right)
        others: list[dict[str, Any]] = [{"root1": noise("root")}, {"root2": noise("root")}, {"size1": 0}]
        others += [{"size1": size + 1}, {"proof": [*proof, noise("more")]}]
        others += [{"proof": proof[:at] + proof[at + 1 :]} for at in range(len(proof))]
        others += [{"proof": [*proof[:at], noise("other"), *proof[at + 1 :]]} for at in range(len(proof))]
        for other in others:
            assert refused(modules, "verifyConsistency", right | other) == "proof"


def test_hashes_of_another_length_are_refused_though_their_bytes_together_are_right(modules: Node) -> None:
    """The border between two hashes that are hashed together can be moved, and the hash stays."""
    leaves = [noise(number) for number in range(3)]
    first = root_of(leaves[:2])
    moved: dict[str, Any] = {"leaf": leaves[0] + leaves[1][:1], "proof": [leaves[1][1:]]}
    assert refused(modules, "verifyInclusion", {"index": 0, "size": 2, "root": first} | moved) == "proof"
    grown: dict[str, Any] = {"size1": 2, "size2": 3, "root2": root_of(leaves)}
    modules.call("verifyConsistency", grown | {"root1": first, "proof": [leaves[2]]})
    moved = {"root1": first + leaves[2][:1], "proof": [leaves[2][1:]]}
    assert refused(modules, "verifyConsistency", grown | moved) == "proof"


def test_an_empty_tree_is_consistent_with_itself_alone(modules: Node) -> None:
    empty: dict[str, Any] = {"size1": 0, "size2": 0, "root1": EMPTY_ROOT, "root2": EMPTY_ROOT, "proof": []}
    modules.call("verifyConsistency", empty)
    for other in ({"root1": bytes(32), "root2": bytes(32)}, {"size2": 1, "proof": [bytes(32)]}, {"proof": [bytes(32)]}):
        assert refused(modules, "verifyConsistency", empty | other) == "proof"


@pytest.mark.parametrize("size", [2**31 + 1, 2**32 - 1, 2**32 + 1, 10**10, 2**40, 2**53 - 1, 2**53 + 1, 2**62 + 3])
def test_logs_beyond_what_a_number_of_a_browser_holds_are_proven_as_small_ones_are(modules: Node, size: int) -> None:
    places = sorted({0, size // 3, 2**31 % size, size - 2, size - 1})
    log = VirtualLog(size, {place: leaf_hash(str(place).encode()) for place in places})
    for place in places:
        right: dict[str, Any] = {
            "index": int_of(place),
            "size": int_of(size),
            "leaf": log.leaf(place),
            "proof": log.inclusion(place),
            "root": log.root(),
        }
        modules.call("verifyInclusion", right)
        near = place - 1 if place else place + 1
        assert refused(modules, "verifyInclusion", right | {"index": int_of(near)}) == "proof"
    for size1 in (2**31 - 1, size // 2, size - 1):
        before = log.at(size1)
        grown: dict[str, Any] = {
            "size1": int_of(size1),
            "size2": int_of(size),
            "root1": before.root(),
            "root2": log.root(),
            "proof": log.consistency(size1),
        }
        modules.call("verifyConsistency", grown)
        assert refused(modules, "verifyConsistency", grown | {"size1": int_of(size1 - 1)}) == "proof"


# Notes, keys and policies


def test_a_note_is_parsed_as_our_own_parser_does_or_refused_as_by_it(modules: Node, honest: Honest) -> None:
    whole, random = honest.anchor.checkpoint, seeded("notes in Node")
    for changed in (whole, *(corrupted(whole, random) for _ in range(300))):
        try:
            text, lines = parse_note(changed)
        except FormatError:
            assert refused(modules, "parseNote", changed) == "checkpoint", changed
            continue
        found = modules.call("parseNote", changed)
        assert found["text"] == text
        assert found["signatures"] == [
            {"name": line.name, "id": f"{line.name}+{line.key_id.hex()}", "signature": line.signature} for line in lines
        ]


def test_a_checkpoint_of_any_size_is_opened_by_a_key_of_its_own_log_alone(modules: Node) -> None:
    key, other = (modules.call("parseKey", each.format()) for each in (KEY, SYSTEM.verifier_key))
    for size in (1, 2**40, 2**63 - 1):
        note = VirtualLog(size).signed(SIGNER)
        assert modules.call("openCheckpoint", note, [other, key]) == {
            "origin": KEY.name,
            "size": size,
            "root": VirtualLog(size).root(),
        }
        assert refused(modules, "openCheckpoint", note, [other]) == "signature"
        assert refused(modules, "openCheckpoint", note, []) == "signature"


def test_a_verifier_key_has_one_spelling_and_a_private_key_is_not_shown(modules: Node) -> None:
    right = KEY.format()
    assert modules.call("parseKey", right)["publicKey"] == KEY.public
    name, key_id, encoded = right.split("+", 2)
    private = f"PRIVATE+KEY+{right}"
    for wrong in ("", name, f"{name}+{key_id}", f"{name} x+{key_id}+{encoded}", right + "=", right + "\n", private):
        with pytest.raises(ThrownError) as caught:
            modules.call("parseKey", wrong)
        assert caught.value.fault == "key"
        assert encoded not in str(caught.value)


def test_a_policy_is_read_as_our_own_reader_does_or_refused_as_by_it(modules: Node, honest: Honest) -> None:
    random = seeded("policies in Node")
    whole = honest.policy.format().decode()
    policies = [
        whole,
        f"# a comment\n\n\t{whole}",
        whole.replace("two 2", "two any"),
        whole.replace("two 2", "two all"),
    ]
    policies += [whole.replace("two 2", f"two {count}") for count in ("0", "4", "02", "-1", "x", "some", "constructor")]
    policies += [whole.replace("quorum two", f"quorum {name}") for name in ("none", "w0", "w9", "two w0", "")]
    policies += [whole.replace("w0 w1", "w0 w0"), whole.replace("w0 w1", "none w1"), whole.replace("w2", "w1")]
    policies += [whole + line + "\n" for line in ("quorum two", "group g 1 two", "group h 1 w0", "log", "other x")]
    policies += ["".join(random.sample(whole.splitlines(keepends=True), 5)) for _ in range(60)]
    for policy in policies:
        try:
            expected = WitnessPolicy.parse(policy.encode())
        except FormatError:
            assert refused(modules, "parsePolicy", policy) in {"policy", "key"}, policy
            continue
        found = modules.call("parsePolicy", policy)
        assert [witness["name"] for witness in found["witnesses"]] == [witness.name for witness in expected.witnesses]
        assert [(group["name"], group["threshold"], tuple(group["members"])) for group in found["groups"]] == [
            (group.name, group.threshold, group.members) for group in expected.groups
        ]
        assert found["quorum"] == expected.quorum
