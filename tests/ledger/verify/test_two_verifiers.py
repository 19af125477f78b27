# SPDX-License-Identifier: Apache-2.0
"""The two verifiers, which share no code, say the same of the same signed log, however odd what was signed is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import BrokenError, FormatError
from ledger.files.directory import format_parts, parts_path
from ledger.format.canonical import DEPTH_MAX, INTEGER_MAX
from ledger.format.entry import Branch, format_entry, parse_entry, read_envelope
from ledger.format.event import KEY_LENGTH_MAX
from ledger.format.merkle import leaf_hash
from ledger.format.note import Ed25519Signer, VerifierKey
from ledger.format.sequence import SequencedEntry
from ledger.proving.evidence.gather import DecisionAt
from ledger.verify.directory import verify_directory
from ledger.verify.workers import Effort
from testkit.ledger.continued_logs import NAMES, continued, export, key, links, rows_after
from testkit.ledger.continued_logs import ORIGIN as FIRST
from testkit.ledger.evidence_logs import evidence, group_id, story_directory
from testkit.ledger.logs import KEY, ORIGIN, rows_of, write_directory
from testkit.ledger.standalone import MODULE, standalone

FAST: Final = Effort(kernel_entries_min=0)
HASH: Final = "0" * 64
TIME: Final = "2026-03-01T12:00:00.000000Z"
PLAIN: Final = {
    "actor": '"system"',
    "data": "{}",
    "key": '"table:a/b"',
    "occurred_at": f'"{TIME}"',
    "parts": "[]",
    "type": '"commit.observed"',
    "version": "1",
}
"""The members of an event as JSON."""


def event(**changed: str) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in (PLAIN | changed).items()) + "}").encode()


def chained(events: Sequence[bytes], *, log: str = ORIGIN, recorded_at: str = TIME) -> list[SequencedEntry]:
    """Return the rows of a log of these events, a group each, whatever they are."""
    rows: list[SequencedEntry] = []
    previous = bytes(32)
    for index, told in enumerate(events):
        entry = format_entry(
            told,
            log=log,
            index=index,
            previous=previous,
            recorded_at=recorded_at,
            group_id=group_id(index),
            branch=Branch.THEN,
            of=1,
            position=0,
        )
        previous = leaf_hash(entry)
        rows.append(
            SequencedEntry(
                index=index, entry=entry, leaf=previous, type="", key="", is_control=False, group_id=None, parts=()
            )
        )
    return rows


def verdict(path: Path, keys: Sequence[VerifierKey] = (KEY,)) -> tuple[str, int | None] | None:
    """Return fault and index that ours names, on both of its ways, None for a log that verifies; the script agrees."""
    found = [_ours(path, keys, effort) for effort in (Effort(), FAST)]
    assert found[0] == found[1]
    ran = standalone(path, keys)
    assert (ran.code == 0) == (found[0] is None), (found, ran)
    assert ran.code in {0, 1}, ran
    if found[0] is not None:
        assert (ran.fault, ran.index) == found[0], ran
    return found[0]


def _ours(path: Path, keys: Sequence[VerifierKey], effort: Effort) -> tuple[str, int | None] | None:
    try:
        verify_directory(path, keys, effort=effort)
    except BrokenError as error:
        return error.fault.value, error.index
    return None


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def part_names(*names: str) -> str:
    return json.dumps([[name, HASH] for name in names], separators=(",", ":"))


SOUND: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "an actor": {"actor": '"' + "0f" * 16 + '"'},
    "the shortest key": {"key": '"~"'},
    "the longest key": {"key": '"' + "k" * KEY_LENGTH_MAX + '"'},
    "the longest key, escaped": {"key": '"' + '\\"' * KEY_LENGTH_MAX + '"'},
    "a key that JSON escapes": {"key": r'"a\"b\\c"'},
    "a short type": {"type": '"a.b"'},
    "an underscore": {"type": '"a_.b_"'},
    "the largest version": {"version": str(INTEGER_MAX)},
    "parts": {"parts": part_names("a", "a0", "a_", "z" * 63)},
    "the largest integers": {"data": f'{{"a":{INTEGER_MAX},"b":-{INTEGER_MAX}}}'},
    "separators that are text": {"data": '{"a":"\u2028\x7f\u0085 "}'},
    "names that are empty or not printed": {"data": r'{"":1,"\u0000":2,"' + "\x7f" + '":3}'},
    "a name that is a number": {"data": '{"99999999999999999999":"99999999999999999999"}'},
    "all levels": {"data": f'{{"a":{nested(DEPTH_MAX - 3)}}}'},
    "brackets in text": {"data": f'{{"a":"{nested(300)}"}}'},
    "the first year": {"occurred_at": '"0001-01-01T00:00:00.000000Z"'},
    "the last year": {"occurred_at": '"9999-12-31T23:59:59.999999Z"'},
    "members of the event within data": {"data": '{"a":",\\"key\\":\\"b\\"","b":{"key":"c","occurred_at":"x"}}'},
}
ODD: Final[Mapping[str, Mapping[str, str]]] = {
    "an address as actor": {"actor": '"ada@example.org"'},
    "an actor of two lines": {"actor": '"a\\nWITNESSED: x"'},
    "no actor": {"actor": '""'},
    "a short actor": {"actor": '"' + "0" * 31 + '"'},
    "a long actor": {"actor": '"' + "0" * 33 + '"'},
    "an actor in capitals": {"actor": '"' + "A" * 32 + '"'},
    "nearly the system": {"actor": '"systems"'},
    "no text as actor": {"actor": "null"},
    "an empty key": {"key": '""'},
    "a space in a key": {"key": '"a b"'},
    "a key beyond ASCII": {"key": '"tablé"'},
    "a key with a control character": {"key": r'"a\u0001"'},
    "a key with a deletion": {"key": '"a\x7f"'},
    "a key that is too long": {"key": '"' + "k" * (KEY_LENGTH_MAX + 1) + '"'},
    "a long key, escaped": {"key": '"' + "\\\\" * (KEY_LENGTH_MAX + 1) + '"'},
    "a type with a space": {"type": '"Commit Decided2"'},
    "a type in capitals": {"type": '"commit.Decided"'},
    "a type of one word": {"type": '"commit"'},
    "a type of three words": {"type": '"a.b.c"'},
    "a type without a family": {"type": '".b"'},
    "a type without a verb": {"type": '"a."'},
    "a type that begins with an underscore": {"type": '"_a.b"'},
    "a type with a digit": {"type": '"a.b2"'},
    "an empty type": {"type": '""'},
    "a version too large": {"version": str(INTEGER_MAX + 1)},
    "a version of 16 nines": {"version": "9" * 16},
    "version 0": {"version": "0"},
    "a part name in capitals": {"parts": part_names("Ab")},
    "a part name with a space": {"parts": part_names("A b")},
    "a part name that begins with a digit": {"parts": part_names("0a")},
    "a part name that begins with an underscore": {"parts": part_names("_a")},
    "a part name that is too long": {"parts": part_names("z" * 64)},
    "an empty part name": {"parts": part_names("")},
    "a part name twice": {"parts": part_names("a", "a")},
    "part names out of order": {"parts": part_names("b", "a")},
    "an integer too large": {"data": f'{{"a":{INTEGER_MAX + 1}}}'},
    "an integer too small": {"data": f'{{"a":-{INTEGER_MAX + 1}}}'},
    "an integer of twenty digits": {"data": '{"a":[{"b":99999999999999999999}]}'},
    "an integer of five thousand digits": {"data": f'{{"a":{"9" * 5_000}}}'},
    "a name beyond ASCII": {"data": '{"é":1}'},
    "a name beyond ASCII, further in": {"data": '{"a":[[{"é":1}]]}'},
    "one level too many": {"data": f'{{"a":{nested(DEPTH_MAX - 2)}}}'},
    "one object too many": {"data": '{"a":' * (DEPTH_MAX - 1) + "{}" + "}" * (DEPTH_MAX - 1)},
    "150 levels": {"data": f'{{"a":{nested(150)}}}'},
    "700 levels": {"data": f'{{"a":{nested(700)}}}'},
    "20,000 levels": {"data": f'{{"a":{nested(20_000)}}}'},
    "the year 0": {"occurred_at": '"0000-03-01T12:00:00.000000Z"'},
    "24 o'clock": {"occurred_at": '"2026-03-01T24:00:00.000000Z"'},
    "a leap second": {"occurred_at": '"2026-03-01T12:00:60.000000Z"'},
    "no day": {"occurred_at": '"2026-02-29T12:00:00.000000Z"'},
    "half a character": {"data": r'{"a":"\ud800"}'},
    "minus zero": {"data": '{"a":-0}'},
    "a fraction": {"data": '{"a":1.5}'},
    "an exponent": {"data": '{"a":1e5}'},
    "not a number": {"data": '{"a":NaN}'},
    "a name twice": {"data": '{"a":1,"a":1}'},
    "an escape too many": {"data": r'{"a":"\u0041"}'},
    "a list as data": {"data": "[]"},
    "white space": {"data": '{"a": 1}'},
}


def test_both_accept_what_the_format_has(tmp_path: Path) -> None:
    assert verdict(write_directory(tmp_path, chained([event(**sound) for sound in SOUND.values()]))) is None


@pytest.mark.parametrize("name", ODD)
def test_both_refuse_what_the_format_has_not(tmp_path: Path, name: str) -> None:
    path = write_directory(tmp_path, chained([event(), event(**ODD[name]), event()]))
    assert verdict(path) == ("entry", 1)


@pytest.mark.parametrize("recorded_at", ["2026-03-01T24:00:00.000000Z", "2026-02-29T12:00:00.000000Z"])
def test_both_refuse_a_time_of_record_that_is_none(tmp_path: Path, recorded_at: str) -> None:
    assert verdict(write_directory(tmp_path, chained([event()], recorded_at=recorded_at))) == ("entry", 0)


@pytest.mark.parametrize(
    ("origin", "accepted"),
    [
        ("logs.example/log", True),
        ("~", True),
        ("x" * 255, True),
        ("x" * 256, False),
        ('logs.example/a"b', False),
        ("logs.example/a\\b", False),
        ("logs.exämple/log", False),
        ("logs.example/\x7f", False),
    ],
)
def test_both_refuse_entries_of_an_origin_that_names_no_log(tmp_path: Path, origin: str, accepted: bool) -> None:
    signer = Ed25519Signer.from_seed(name=origin, seed=bytes(32))
    spelled = (origin, json.dumps(origin, ensure_ascii=False)[1:-1])  # as it is, and as JSON has it
    for number, log in enumerate(spelled):
        path = write_directory(tmp_path / str(number), chained([event(), event()], log=log), signer)
        assert verdict(path, [signer.verifier_key]) == (None if accepted else ("entry", 0))


# What a generator finds


ANY: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) - 1, 2**53 + 1)
    | st.floats()
    | st.text(max_size=8)
    | st.text('"\\,:{}[] a', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('abé"\\\x7f', max_size=2), inner, max_size=3),
    max_leaves=8,
)
TEXTS: Final = st.text('abz0_.~A "\\é\x7f', max_size=5) | st.from_regex(r"[a-z_0-9]{1,3}\.[a-z_0-9.]{1,3}")
MEMBERS: Final = {
    "actor": TEXTS | st.from_regex(r"[0-9a-f]{31,33}|system[0-9]?", fullmatch=True),
    "data": st.dictionaries(st.text("abcé", max_size=2), ANY, max_size=4),
    "key": TEXTS,
    "occurred_at": st.datetimes().map(lambda t: t.isoformat(timespec="microseconds") + "Z") | TEXTS,
    "parts": st.lists(st.tuples(st.text("aAz0_", max_size=2), st.just(HASH)), max_size=3),
    "type": TEXTS,
    "version": st.integers(-1, 2) | st.integers(2**53 - 2, 2**53 + 1),
}


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_three_readers_of_an_entry_accept_the_same(data: st.DataObject) -> None:
    canonical = data.draw(st.sampled_from([True, True, False]))
    odd = {
        name: json.dumps(
            data.draw(MEMBERS[name]),
            ensure_ascii=data.draw(st.just(False) if canonical else st.booleans()),
            sort_keys=canonical or data.draw(st.booleans()),
            separators=(",", ":"),
        )
        for name in data.draw(st.lists(st.sampled_from(sorted(MEMBERS)), min_size=1, max_size=2))
    }
    try:
        (row,) = chained([event(**odd)])
    except UnicodeEncodeError:
        return
    accepted = set()
    for read in (parse_entry, read_envelope, lambda entry: MODULE.check_entry(entry, ORIGIN, 0)):
        try:
            read(row.entry)
            accepted.add(True)
        except (FormatError, MODULE.BrokenError):
            accepted.add(False)
    assert len(accepted) == 1, row.entry


# Logs that go on from others


@pytest.mark.parametrize("name", ["sound", *NAMES])
def test_both_hold_a_log_that_goes_on_from_another_to_its_first_entry(tmp_path: Path, name: str) -> None:
    first, fault = {"sound": (continued(FIRST), None), **links(FIRST)}[name]
    newer, older = key(f"{FIRST}/2").verifier_key, key(FIRST).verifier_key
    path = export(tmp_path, first)
    for keys in ([newer], [newer, older]):
        found = verdict_of_first(path, keys)
        assert found == (None if fault is None else fault.value)


def verdict_of_first(path: Path, keys: Sequence[VerifierKey]) -> str | None:
    """Return the fault that ours names, at the first entry; the script refuses it there, too."""
    found, ran = _ours(path, keys, Effort()), standalone(path, keys)
    assert ran.code == (0 if found is None else 1), ran
    assert found is None or (found[1] == 0 and ran.index in {0, None})
    return None if found is None else found[0]


def test_both_hold_the_third_log_of_a_name_to_the_second(tmp_path: Path) -> None:
    signer = key(f"{FIRST}/3")
    for name, before in (("second", f"{FIRST}/2"), ("first", FIRST)):
        path = export_after(tmp_path / name, before, signer)
        assert verdict_of_first(path, [signer.verifier_key]) == (None if name == "second" else "origin")


def export_after(path: Path, before: str, signer: Ed25519Signer) -> Path:
    """Write the export of a log that says it goes on from the log `before`."""
    return write_directory(path, rows_after(continued(before), log=signer.name), signer)


def test_an_empty_log_that_goes_on_from_another_says_nothing_yet(tmp_path: Path) -> None:
    signer = key(f"{FIRST}/2")
    assert verdict(write_directory(tmp_path, [], signer), [signer.verifier_key]) is None


def test_both_refuse_a_log_that_says_it_goes_on_though_its_origin_does_not(tmp_path: Path) -> None:
    signer = key(FIRST)
    path = export_after(tmp_path, FIRST, signer)
    assert verdict_of_first(path, [signer.verifier_key]) == "origin"


# Links to folders


def test_neither_follows_a_link_to_a_folder_and_both_name_it(tmp_path: Path) -> None:
    rows = rows_of(30)
    path = write_directory(tmp_path / "log", rows, parts=True)
    (path / "parts").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "000").write_bytes(b"forged")
    (path / "parts").symlink_to("../elsewhere")
    assert verdict(path) is None
    assert verify_directory(path, [KEY]).unchecked == ("parts",)
    assert "NOT CHECKED: the file 'parts'" in standalone(path, [KEY]).output


def test_no_part_behind_a_link_to_a_folder_gets_into_evidence(tmp_path: Path) -> None:
    path = story_directory(tmp_path / "log")
    assert b"\npart " in evidence(path, DecisionAt(index=5))
    (path / "parts").rename(tmp_path / "elsewhere")
    (path / "parts").symlink_to("../elsewhere")
    assert b"\npart " not in evidence(path, DecisionAt(index=5))


@pytest.mark.parametrize("where", ["tile/zzz", "tile/0/zzz", "tile/entries/zzz", "tile/entries/x000"])
def test_both_refuse_a_link_to_a_folder_among_the_tiles(tmp_path: Path, where: str) -> None:
    path = write_directory(tmp_path / "log", rows_of(300))
    (path / where).symlink_to(tmp_path)
    found, ran = _ours(path, [KEY], Effort()), standalone(path, [KEY])
    assert found is not None
    assert (ran.code, ran.fault) == (1, "tile")


def test_both_refuse_a_link_to_a_folder_where_the_parts_of_an_entry_belong(tmp_path: Path) -> None:
    rows = rows_of(30)
    path = write_directory(tmp_path / "log", rows)
    (path / "parts").mkdir()
    (tmp_path / "000").write_bytes(format_parts(0, rows[0].parts))
    (path / parts_path(0)).symlink_to(tmp_path)
    assert verdict(path) == ("part", 0)
