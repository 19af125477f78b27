# SPDX-License-Identifier: Apache-2.0
"""Trust policies: each rule of tlog-policy, what is accepted and what is not, and that nothing fails open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.cosignature import Cosigner
from ledger.format.note import Ed25519Signer, Signature, format_note, parse_note
from ledger.format.signature import ED25519_COSIGNATURE
from ledger.format.witness_policy import (
    LINES_MAX,
    UNSAFE_NO_QUORUM,
    PolicyGroup,
    PolicyLog,
    PolicyWitness,
    UnwitnessedError,
    WitnessPolicy,
)
from testkit.ledger.witnesses import GENUINE, LOG, OTHER_LOG, TIME_S, cosigners, timeless

LOG_KEY = LOG.verifier_key.format()
OTHER_KEY = OTHER_LOG.verifier_key.format()
WITNESSES = {
    name: Cosigner.from_seed(ED25519_COSIGNATURE, name=f"witness.example/{name}", seed=name.encode().ljust(32))
    for name in ("X1", "X2", "X3", "Y1", "Y2", "Y3")
}
KEYS = {name: cosigner.verifier_key.format() for name, cosigner in WITNESSES.items()}
# tlog-policy, "Example policy".
EXAMPLE = f"""\
log {LOG_KEY}

witness X1 {KEYS["X1"]}
witness X2 {KEYS["X2"]}
witness X3 {KEYS["X3"]}
group X-witnesses 2 X1 X2 X3

witness Y1 {KEYS["Y1"]}
witness Y2 {KEYS["Y2"]}
witness Y3 {KEYS["Y3"]}
group Y-witnesses any Y1 Y2 Y3

group X-and-Y all X-witnesses Y-witnesses
quorum X-and-Y
"""
W1 = f"witness X1 {KEYS['X1']}"
W2 = f"witness X2 {KEYS['X2']}"


def parse(*lines: str) -> WitnessPolicy:
    return WitnessPolicy.parse("".join(f"{line}\n" for line in lines).encode())


def cosigned(*names: str, log: Ed25519Signer = LOG, size: int = 7) -> bytes:
    text = GENUINE.text(size).replace(LOG.name, log.name)
    lines = [WITNESSES[name].cosign(text, time_s=TIME_S) for name in names]
    own = Signature(name=log.name, key_id=log.verifier_key.key_id, signature=log.sign(text.encode()))
    return format_note(text, [own, *lines])


def test_the_example_of_the_specification_asks_for_two_x_and_one_y() -> None:
    policy = WitnessPolicy.parse(EXAMPLE.encode())
    for count in range(7):
        for names in combinations(WITNESSES, count):
            x, y = (sum(name.startswith(side) for name in names) for side in "XY")
            if x >= 2 and y >= 1:
                assert set(policy.check(cosigned(*names)).cosignatures) == set(names)
            else:
                with pytest.raises(UnwitnessedError, match="X-and-Y"):
                    policy.check(cosigned(*names))


def test_a_witness_that_names_no_time_does_not_count_and_a_bad_line_of_it_is_still_an_error() -> None:
    for cosigner in cosigners():
        policy = parse(f"log {LOG_KEY}", f"witness w {cosigner.verifier_key.format()}", "quorum w")
        text, lines = parse_note(GENUINE.note(7))
        none = timeless(cosigner, text)
        assert policy.cosignatures(format_note(text, [*lines, none])) == {}
        with pytest.raises(UnwitnessedError, match="nobody"):
            policy.check(format_note(text, [*lines, none]))
        both = format_note(text, [*lines, none, cosigner.cosign(text, time_s=TIME_S)])
        assert policy.check(both).cosignatures == {"w": TIME_S}
        with pytest.raises(BrokenError):
            policy.check(format_note(text, [*lines, timeless(cosigner, GENUINE.text(8))]))


def test_an_accepted_checkpoint_comes_with_its_log_and_the_times_of_its_witnesses() -> None:
    witnessed = WitnessPolicy.parse(EXAMPLE.encode()).check(cosigned("X1", "X3", "Y2"))
    assert witnessed.checkpoint == GENUINE.checkpoint(7)
    assert witnessed.log == LOG.verifier_key
    assert witnessed.cosignatures == {"X1": TIME_S, "X3": TIME_S, "Y2": TIME_S}


def test_the_quorum_may_be_one_witness_and_both_types_of_keys_count() -> None:
    for cosigner in cosigners():
        policy = parse(f"log {LOG_KEY}", f"witness w {cosigner.verifier_key.format()}", "quorum w")
        text, lines = parse_note(GENUINE.note(7))
        note = format_note(text, [*lines, cosigner.cosign(text, time_s=TIME_S)])
        assert policy.check(note).cosignatures == {"w": TIME_S}
        with pytest.raises(UnwitnessedError):
            policy.check(GENUINE.note(7))


def test_a_policy_without_witness_cosigning_has_to_say_quorum_none() -> None:
    policy = parse(f"log {LOG_KEY}", "quorum none")
    assert policy.quorum == UNSAFE_NO_QUORUM
    assert policy.check(GENUINE.note(7)).cosignatures == {}
    with pytest.raises(FormatError, match="quorum"):
        parse(f"log {LOG_KEY}")
    with pytest.raises(FormatError, match="quorum"):
        WitnessPolicy.parse(b"")


def test_any_one_of_the_logs_is_accepted_and_no_other() -> None:
    policy = parse(f"log {LOG_KEY}", f"log {OTHER_KEY} https://log.example/", W1, "quorum X1")
    for log in (LOG, OTHER_LOG):
        assert policy.check(cosigned("X1", log=log)).log == log.verifier_key
    alone = parse(f"log {OTHER_KEY}", W1, "quorum X1")
    with pytest.raises(BrokenError) as caught:
        alone.check(cosigned("X1"))
    assert caught.value.fault is Fault.SIGNATURE


def test_a_policy_without_logs_needs_one_known_from_elsewhere() -> None:
    policy = parse(W1, "quorum X1")
    assert policy.check(cosigned("X1"), logs=[LOG.verifier_key]).log == LOG.verifier_key
    with pytest.raises(BrokenError):
        policy.check(cosigned("X1"))
    with pytest.raises(BrokenError):
        policy.check(cosigned("X1"), logs=[OTHER_LOG.verifier_key])


def test_the_logs_key_name_must_correspond_to_the_origin() -> None:
    text = GENUINE.text(7)
    signed = Signature(
        name=OTHER_LOG.name, key_id=OTHER_LOG.verifier_key.key_id, signature=OTHER_LOG.sign(text.encode())
    )
    note = format_note(text, [signed, WITNESSES["X1"].cosign(text, time_s=TIME_S)])
    with pytest.raises(BrokenError, match=LOG.name):
        parse(f"log {LOG_KEY}", f"log {OTHER_KEY}", W1, "quorum X1").check(note)


def test_a_witness_named_like_the_origin_does_not_stand_in_for_the_log() -> None:
    twin = Cosigner.from_seed(ED25519_COSIGNATURE, name=LOG.name, seed=b"t" * 32)
    text = GENUINE.text(7)
    policy = parse(f"log {LOG_KEY}", f"witness w {twin.verifier_key.format()}", "quorum w")
    with pytest.raises(BrokenError, match="by a log"):
        policy.check(format_note(text, [twin.cosign(text, time_s=TIME_S)]))


def test_a_bad_cosignature_of_a_known_witness_refuses_the_checkpoint() -> None:
    policy = parse(f"log {LOG_KEY}", W1, W2, "quorum X1")
    text, lines = parse_note(cosigned("X1", "X2"))
    policy.check(format_note(text, lines))
    for bad in (1, 2):
        changed = [replace(line, signature=bytes(72)) if at == bad else line for at, line in enumerate(lines)]
        with pytest.raises(BrokenError):
            policy.check(format_note(text, changed))


def test_a_cosignature_of_another_checkpoint_does_not_count() -> None:
    policy = parse(f"log {LOG_KEY}", W1, "quorum X1")
    _, (_, other) = parse_note(cosigned("X1", size=8))
    text, (own,) = parse_note(GENUINE.note(7))
    with pytest.raises(BrokenError):
        policy.check(format_note(text, [own, other]))


@pytest.mark.parametrize(("threshold", "enough"), [("any", 1), ("all", 3), ("1", 1), ("2", 2), ("3", 3)])
def test_any_is_one_all_is_every_one_and_a_number_is_that_many(threshold: str, enough: int) -> None:
    policy = parse(f"log {LOG_KEY}", W1, W2, f"witness X3 {KEYS['X3']}", f"group g {threshold} X1 X2 X3", "quorum g")
    assert policy.is_met_by(set(["X1", "X2", "X3"][:enough]))
    assert not policy.is_met_by(set(["X1", "X2", "X3"][: enough - 1]))
    assert not policy.is_met_by({"g", "stranger", "none"})


def test_only_space_and_tab_separate_and_comments_and_empty_lines_are_ignored() -> None:
    plain = parse(f"log {LOG_KEY}", W1, "quorum X1")
    assert parse("# a comment", "  \t ", f"\tlog  {LOG_KEY}\t", f"  {W1} ", " \t# quorum X2", "quorum\tX1 ") == plain
    wide = "\N{NO-BREAK SPACE}"
    assert parse(f"witness a{wide}b {KEYS['X1']}", f"quorum a{wide}b").witnesses[0].name == f"a{wide}b"


def test_names_are_opaque_octets() -> None:
    names = [
        b"K",
        "\N{KELVIN SIGN}".encode(),
        "\N{ANGSTROM SIGN}".encode(),
        "\N{LATIN CAPITAL LETTER A WITH RING ABOVE}".encode(),
        b"\xff",
        b"\xfe\xff",
    ]
    lines = [b"witness %b %b" % (name, key.encode()) for name, key in zip(names, KEYS.values(), strict=True)]
    for at, name in enumerate(names):
        policy = WitnessPolicy.parse(b"\n".join([*lines, b"quorum " + name]) + b"\n")
        assert policy.quorum == policy.witnesses[at].name
        assert policy.is_met_by({policy.witnesses[at].name})
        assert not policy.is_met_by({w.name for w in policy.witnesses if w is not policy.witnesses[at]})
        assert WitnessPolicy.parse(policy.format()) == policy


@pytest.mark.parametrize("octet", [*range(9), *range(11, 32), 127])
def test_other_control_characters_than_tab_and_newline_are_refused(octet: int) -> None:
    with pytest.raises(FormatError, match="control"):
        WitnessPolicy.parse(b"# a comment %c\nquorum none\n" % octet)


def test_every_line_must_end_in_a_newline_so_that_a_cut_policy_is_none() -> None:
    for end in range(len(EXAMPLE)):
        with pytest.raises(FormatError):
            WitnessPolicy.parse(EXAMPLE[:end].encode())


@pytest.mark.parametrize(
    "lines",
    [
        ["quorum X1"],  # not defined
        ["quorum X1", W1],  # only later
        [W1, "quorum X1", "quorum X1"],
        [W1, "quorum X1", "quorum none"],
        [W1, "quorum"],
        [W1, "quorum X1 X1"],
        [W1, "quorum x1"],
        ["log"],
        ["log x+y+z", "quorum none"],
        [f"log {LOG_KEY} url another", "quorum none"],
        [f"log {LOG_KEY}", f"log {LOG_KEY}", "quorum none"],
        [f"witness {KEYS['X1']}", "quorum none"],
        [f"witness a {LOG_KEY}", "quorum a"],  # not the type of a cosigner
        [f"witness none {KEYS['X1']}", "quorum none"],
        [W1, f"witness X1 {KEYS['X2']}", "quorum X1"],
        [W1, f"witness X9 {KEYS['X1']}", "quorum X1"],
        [W1, "group g any", "quorum g"],
        [W1, "group g 1", "quorum g"],
        [W1, "group g 0 X1", "quorum g"],
        [W1, "group g 2 X1", "quorum g"],
        [W1, "group g 01 X1", "quorum g"],
        [W1, "group g +1 X1", "quorum g"],
        [W1, "group g -1 X1", "quorum g"],
        [W1, "group g ANY X1", "quorum g"],
        [W1, "group g X1", "quorum g"],
        [W1, "group g any X1 X1", "quorum g"],
        [W1, "group g any none", "quorum g"],
        [W1, "group g any g", "quorum g"],
        [W1, "group g any X2", W2, "quorum g"],
        [W1, "group X1 any X1", "quorum X1"],
        [W1, "group none any X1", "quorum none"],
        [W1, W2, "group a any X1", "group b any X1 X2", "quorum b"],  # X1 would count in two ways
        [W1, W2, "group a any X1", "group a any X2", "quorum a"],
        [W1, "Quorum X1"],
        [W1, "threshold 1", "quorum X1"],
    ],
)
def test_a_line_that_the_specification_does_not_allow_is_a_format_error(lines: list[str]) -> None:
    with pytest.raises(FormatError):
        parse(*lines)


def test_keys_are_duplicate_whatever_their_names() -> None:
    renamed = Cosigner.from_seed(ED25519_COSIGNATURE, name="witness.example/another", seed=b"X1".ljust(32))
    with pytest.raises(FormatError, match="public key of its own"):
        parse(W1, f"witness X9 {renamed.verifier_key.format()}", "quorum X1")
    again = Ed25519Signer.from_seed(name="log.example/another", seed=b"l" * 32)
    with pytest.raises(FormatError, match="public key of its own"):
        parse(f"log {LOG_KEY}", f"log {again.verifier_key.format()}", "quorum none")


def test_32_logs_32_witnesses_and_32_groups_are_supported() -> None:
    logs = [Ed25519Signer.from_seed(name=f"log.example/{n}", seed=bytes([n]) * 32) for n in range(LINES_MAX + 1)]
    keys = [Cosigner.from_seed(ED25519_COSIGNATURE, name="w", seed=bytes([n]) * 32) for n in range(LINES_MAX + 1)]

    def policy(count: int) -> WitnessPolicy:
        return WitnessPolicy(
            logs=tuple(PolicyLog(key=log.verifier_key) for log in logs[:count]),
            witnesses=tuple(PolicyWitness(name=f"w{n}", key=keys[n].verifier_key) for n in range(count)),
            groups=tuple(PolicyGroup(name=f"g{n}", threshold=1, members=(f"w{n}",)) for n in range(count)),
            quorum=f"g{count - 1}",
        )

    for count in (32, LINES_MAX):
        assert WitnessPolicy.parse(policy(count).format()) == policy(count)
        assert policy(count).is_met_by({f"w{count - 1}"})
    with pytest.raises(FormatError, match="at most"):
        policy(LINES_MAX + 1)


@pytest.mark.parametrize("word", ["", "a b", "a\tb", "a\nb", "a\x00", "\x7f", "\ud800"])
def test_a_policy_that_could_not_be_read_again_cannot_be_made(word: str) -> None:
    key = WITNESSES["X1"].verifier_key
    makes: list[Callable[[], WitnessPolicy]] = [
        lambda: WitnessPolicy(logs=(), witnesses=(PolicyWitness(name=word, key=key),), groups=(), quorum=word),
        lambda: WitnessPolicy(logs=(), witnesses=(PolicyWitness(name="w", key=key, url=word),), groups=(), quorum="w"),
        lambda: WitnessPolicy(
            logs=(PolicyLog(key=LOG.verifier_key, url=word),), witnesses=(), groups=(), quorum="none"
        ),
    ]
    for make in makes:
        with pytest.raises(FormatError):
            make()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_mutated_policy_is_a_policy_that_is_written_again_or_a_format_error(data: st.DataObject) -> None:
    lines = EXAMPLE.splitlines(keepends=True)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["drop", "swap", "repeat", "bytes"])):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "swap":
                lines[at], lines[-1] = lines[-1], lines[at]
            case "repeat":
                lines.insert(at, lines[-1])
            case _:
                cut = data.draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:cut] + data.draw(st.text(" #\tX12gnone", max_size=4)) + lines[at][cut + 1 :]
    try:
        policy = WitnessPolicy.parse("".join(lines).encode())
    except FormatError:
        return
    assert WitnessPolicy.parse(policy.format()) == policy
    assert policy.quorum == UNSAFE_NO_QUORUM or not policy.is_met_by(set())
