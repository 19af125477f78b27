# SPDX-License-Identifier: Apache-2.0
"""The fast path accepts nothing that the rules refuse, and what it accepts it takes for the same."""

from __future__ import annotations

import subprocess
import sys
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.format.entry import Branch, parse_entry
from ledger.format.event import KEY_LENGTH_MAX, Event, Part, format_key, prepare
from ledger.format.events import EVENTS
from ledger.format.merkle import leaf_hash
from ledger.format.sequence import Group, SequencedEntry
from ledger.format.tiles import format_bundle, parse_bundle
from ledger.format.verification import EntryRules
from ledger.verify import kernel
from ledger.verify.fast import FastPage, FastPath
from testkit.ledger.evidence_logs import story_rows
from testkit.ledger.example_log import example_rows
from testkit.ledger.logs import (
    KEY,
    START,
    group_entries,
    groups,
    new_rules,
    plain_rows,
    rows_of,
    sequenced,
    write_directory,
)

FAST = FastPath()


def after(entries: Sequence[bytes]) -> EntryRules:
    """Return the rules behind these entries."""
    rules = new_rules()
    for entry in entries:
        rules.check(entry, leaf_hash(entry))
    return rules


def bundle_page(bundle: bytes, width: int) -> FastPage | None:
    FAST.buffer[: len(bundle)] = bundle
    return FAST.bundle_page(len(bundle), width)


def is_accepted(bundle: bytes, width: int, *, behind: Sequence[bytes] = ()) -> bool:
    """Tell whether the fast path accepts a bundle; if it does, the rules must, and both must know the same then."""
    rules = after(behind)
    before = rules.state
    page = bundle_page(bundle, width)
    if page is None or not FAST.accept(page, rules):
        assert (rules.state, len(rules.groups)) == (before, sum(b'"position":0' in entry for entry in behind))
        return False
    entries = parse_bundle(bundle)
    assert (page.entries(), page.leaves) == (entries, [leaf_hash(entry) for entry in entries])
    exact = after([*behind, *entries])
    assert (rules.state, rules.groups.pack()) == (exact.state, exact.groups.pack())
    return True


@pytest.mark.parametrize("width", [1, 2, 3, 7, 255, 256])
def test_plain_entries_are_accepted(width: int) -> None:
    entries = [row.entry for row in rows_of(width + 9)]
    assert is_accepted(format_bundle(entries[:width]), width)
    assert is_accepted(format_bundle(entries[9:]), width, behind=entries[:9])


@pytest.mark.parametrize("branch", Branch)
def test_a_group_of_either_branch_goes_on_over_the_end_of_a_page(branch: Branch) -> None:
    entries = group_entries(range(3), of=3, branch=branch)
    assert is_accepted(format_bundle(entries[:2]), 2)
    assert is_accepted(format_bundle(entries[2:]), 1, behind=entries[:2])


def test_every_change_of_a_byte_that_the_fast_path_accepts_is_one_that_the_rules_accept() -> None:
    entries = [row.entry for row in rows_of(8)]
    accepted = 0
    for last, step in ((0, 8), (1, 80), (7, 80)):  # 1 is within a group, 7 has two parts
        entry = entries[last]
        for at in range(len(entry)):
            for other in range(at % step, 256, step):  # every value is tried, at one place or at another
                changed = entry[:at] + bytes([entry[at] ^ other]) + entry[at + 1 :]
                accepted += is_accepted(format_bundle([changed]), 1, behind=entries[:last])
    assert accepted > 500  # data, keys and times are free


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), size=st.integers(1, 12))
def test_no_change_of_several_bytes_is_accepted_unless_the_rules_do(data: st.DataObject, size: int) -> None:
    bundle = bytearray(format_bundle([row.entry for row in rows_of(size)]))
    for _ in range(data.draw(st.integers(1, 3))):
        at, end = sorted(data.draw(st.tuples(st.integers(0, len(bundle)), st.integers(0, len(bundle)))))
        end = data.draw(st.sampled_from([at, min(at + 1, len(bundle)), end]))
        bundle[at:end] = data.draw(
            st.sampled_from(TOKENS) | st.binary(max_size=4) | st.just(bytes(bundle[at:end][:90]))
        )
    is_accepted(bytes(bundle), size)


TOKENS = [
    *(
        b'"',
        b"\\",
        b'\\"',
        b"\\u0000",
        b"\\u001f",
        b"\\u0008",
        b"\\u0041",
        b"\\n",
        b"\\/",
        b"{}",
        b"[]",
        b"{",
        b"]",
        b",",
    ),
    *(b"0", b"-1", b"-0", b"01", b"1.0", b"1e1", b"999999999999999", b"9007199254740993", b"true", b"null", b"nul"),
    *(b"\x7f", b"\x80", b"\xc0\x80", b"\xc3\xbc", b"\xed\xa0\x80", b"\xf0\x9d\x84\x9e", b"\xf4\x90\x80\x80", b"\x00"),
]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(max_size=30)
    | st.text(st.characters(max_codepoint=160), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abAB\x7f\t '", max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=VALUES, data=st.data())
def test_any_data_is_read_as_the_canonical_form_has_it(value: object, data: st.DataObject) -> None:
    event = prepare(
        Event(type="a.b", version=1, key="k", actor="system", occurred_at=START, data={"v": value})  # type: ignore[dict-item]
    )
    entry = sequenced([Group(id=next(groups(1)).id, then=(event,))])[0][0].entry
    is_accepted(format_bundle([entry]), 1)
    start = entry.index(b'"v":') + 4
    at = data.draw(st.integers(start, start + len(repr(value))))
    token = data.draw(st.sampled_from(TOKENS))
    is_accepted(format_bundle([entry[:at] + token + entry[at + data.draw(st.integers(0, 2)) :]]), 1)


@pytest.mark.parametrize(
    ("old", "new", "accepted"),
    [
        (b"2026-03-01T12:00:00", b"2024-02-29T12:00:00", True),
        (b"2026-03-01T12:00:00", b"2000-02-29T12:00:00", True),
        (b"2026-03-01T12:00:00", b"1900-02-29T12:00:00", False),
        (b"2026-03-01T12:00:00", b"2023-02-29T12:00:00", False),
        (b"2026-03-01T12:00:00", b"2026-04-31T12:00:00", False),
        (b"2026-03-01T12:00:00", b"2026-13-01T12:00:00", False),
        (b"2026-03-01T12:00:00", b"0000-03-01T12:00:00", False),
        (b"2026-03-01T12:00:00", b"2026-03-01T24:00:00", False),
        (b"2026-03-01T12:00:00", b"2026-03-01T23:59:60", False),
        (b'"of":1', b'"of":1024', True),
        (b'"of":1', b'"of":1025', False),
        (b'"of":1', b'"of":0', False),
        (b'"version":1', b'"version":0', False),
        (b'"actor":"system"', b'"actor":"' + b"09af" * 8 + b'"', True),
        (b'"actor":"system"', b'"actor":"' + b"09af" * 7 + b'09a"', False),
        (b'"actor":"system"', b'"actor":"' + b"09af" * 8 + b'0"', False),
        (b'"actor":"system"', b'"actor":"systems"', False),
        (b'"actor":"system"', b'"actor":"syste"', False),
        (b'"actor":"system"', b'"actor":"ada@example.org"', False),
        (b'"key":"table:sales/orders0"', b'"key":"~"', True),
        (b'"key":"table:sales/orders0"', b'"key":""', False),
        (b'"key":"table:sales/orders0"', b'"key":"table:a b"', False),
        (b'"key":"table:sales/orders0"', b'"key":"' + b"k" * KEY_LENGTH_MAX + b'"', True),
        (b'"key":"table:sales/orders0"', b'"key":"k' + b"k" * KEY_LENGTH_MAX + b'"', False),
        (b'"type":"commit.decided"', b'"type":"a.b"', True),
        (b'"type":"commit.decided"', b'"type":"a_.b_"', True),
        (b'"type":"commit.decided"', b'"type":"_a.b"', False),
        (b'"type":"commit.decided"', b'"type":"a._b"', False),
        (b'"type":"commit.decided"', b'"type":"commit"', False),
        (b'"type":"commit.decided"', b'"type":"a.b.c"', False),
        (b'"type":"commit.decided"', b'"type":"a.b1"', False),
        (b'"type":"commit.decided"', b'"type":"a."', False),
        (b'"type":"commit.decided"', b'"type":".b"', False),
        (b'"number":0', b'"number":999999999999999', True),
        (b'"number":0', b'"number":-7', True),
        (b'"number":0', b'"number":-0', False),
        (b'[["inputs","', b'[["a","' + b"0" * 64 + b'"],["inputs","', True),
        (b'[["inputs","', b'[["' + b"i" * 63 + b'","', True),
        (b'[["inputs","', b'[["' + b"i" * 64 + b'","', False),
        (b'[["inputs","', b'[["0a","', False),
        (b'[["inputs","', b'[["_a","', False),
        (b'[["inputs","', b'[["zoo","' + b"0" * 64 + b'"],["inputs","', False),
        (b'[["inputs","', b'[["inputs","' + b"0" * 64 + b'"],["inputs","', False),
        (b'"nested":{', b'"nested":' + b"[" * 31 + b"]" * 31 + b',"nesteds":{', True),
        (b'"nested":{', b'"nested":' + b"[" * 40 + b"]" * 40 + b',"nesteds":{', False),
        (b"[null,true,", b"[false,-1,{},[],", True),
        (b'"plain"', '"ü𝄞漢\u007f\\"\\\\\\b\\u0001"'.encode(), True),
        (b'"plain"', '"\U0010ffff\U000fffff\ud7ff\ue000"'.encode(), True),
    ],
)
def test_the_fast_path_at_the_edges_of_the_format(old: bytes, new: bytes, accepted: bool) -> None:
    entry = rows_of(1)[0].entry
    assert old in entry
    assert is_accepted(format_bundle([entry.replace(old, new)]), 1) is accepted


def with_data(text: bytes) -> bytes:
    """Return a page of one entry with this text in its data."""
    return format_bundle([rows_of(1)[0].entry.replace(b'"plain"', text)])


def test_a_character_is_escaped_only_where_it_must_be_and_has_no_shorter_form() -> None:
    for code in range(0x100):
        escaped = with_data(f'"\\u{code:04x}"'.encode())
        assert is_accepted(escaped, 1) == (code < 0x20 and chr(code) not in "\b\t\n\f\r")
    for short in b'"\\bfnrt':
        assert is_accepted(with_data(b'"\\' + bytes([short]) + b'"'), 1)
    digits = b"0123456789abcdef"
    for first in range(0x100):
        for second in b"/0:1a`fgAF":
            escaped = with_data(b'"\\u00' + bytes([first, second]) + b'"')
            needed = first in b"01" and second in digits and chr(int(bytes([first, second]), 16)) not in "\b\t\n\f\r"
            assert is_accepted(escaped, 1) is needed
    for none in b"/0aeuvx'":
        assert not is_accepted(with_data(b'"\\' + bytes([none]) + b'"'), 1)


def test_a_character_is_taken_only_as_utf_8_has_it() -> None:
    edges = (b"\x7f", b"\x80", b"\x8f", b"\x90", b"\x9f", b"\xa0", b"\xbf", b"\xc0")
    for first in range(0x80, 0x100):
        for second in edges:
            for rest in (b"", b"\x80", b"\xbf\x80", b"\x80\xbf", b"\x7f\x80", b"\x80\xc0"):
                text = bytes([first]) + second + rest
                try:
                    text.decode()
                    is_text = True
                except UnicodeDecodeError:
                    is_text = False
                assert is_accepted(with_data(b'"' + text + b'"'), 1) is is_text, text


@pytest.mark.parametrize("depth", range(1, 9))
def test_the_names_of_members_are_sorted_however_deep_they_lie(depth: int) -> None:
    def nested(*names: str) -> bytes:
        """Return objects in objects, the names outside sorting before those inside; the innermost has `names`."""
        inner = "{" + ",".join(f'"{name}":[{{"z":1}}]' for name in names) + "}"
        for level in reversed(range(depth)):
            inner = f'{{"{"abcdefgh"[level]}":{inner},"{"abcdefgh"[level]}z":[]}}'
        return inner.encode()

    assert is_accepted(with_data(nested("m", "n", "o")), 1)
    for names in (("n", "m"), ("m", "o", "n"), ("m", "m"), ("mm", "m")):
        assert not is_accepted(with_data(nested(*names)), 1)


@pytest.mark.parametrize(
    "text",
    [
        *(b"{1:2}", b"{a:1}", b'{"a"1}', b'{"a":}', b'{"a":1,}', b'{"a":1,b:2}', b'{"a":1,"b"}', b'{"a":1;"b":2}'),
        *(b'{"a:1}', b'{"\\u0001":1}', b'{"a":1]', b"[1}", b"[1,]", b"[,1]", b"[1 ,2]", b"[1;2]", b"{,}", b"[{]}"),
        *(b"tru", b"fals", b"nul", b"True", b"+1", b"--1", b"-", b"0x1", b"1.", b".1", b"1_0", b'"a', b'a"'),
    ],
)
def test_what_is_no_canonical_value_is_not_accepted(text: bytes) -> None:
    assert not is_accepted(with_data(text), 1)
    assert not is_accepted(with_data(b"[" + text + b"]"), 1)
    assert not is_accepted(with_data(b'{"a":' + text + b"}"), 1)


def test_a_time_is_taken_only_of_a_day_and_an_hour_that_exist() -> None:
    def taken(text: str) -> bool:
        return is_accepted(format_bundle([entry.replace(b"2026-03-01T12:00:00", text.encode())]), 1)

    entry = rows_of(1)[0].entry
    for year in (1, 4, 99, 100, 400, 1900, 2000, 2023, 2024, 9999):
        for month in range(14):
            for day in (0, 1, 27, 28, 29, 30, 31, 32):
                exists = 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
                assert taken(f"{year:04}-{month:02}-{day:02}T12:00:00") is exists, (year, month, day)
    for unit, end in enumerate((24, 60, 60)):
        for value in range(62):
            clock = [0, 0, 0]
            clock[unit] = value
            assert taken("2026-03-01T{:02}:{:02}:{:02}".format(*clock)) is (value < end)


@pytest.mark.parametrize(
    ("origin", "accepted"),
    [
        ("~", True),
        ("x" * 255, True),
        ("x" * 256, False),
        ('logs.example/a"b', False),
        ("logs.example/a\\b", False),
        ("logs.example/a+b", False),
        ("logs.example/a b", False),
        ("logs.exämple/b", False),
    ],
)
def test_entries_of_an_origin_that_names_no_log_are_not_accepted(origin: str, accepted: bool) -> None:
    page = bundle_page(format_bundle([row.entry for row in rows_of(1, log=origin)]), 1)
    assert page is not None
    assert FAST.accept(page, new_rules(origin)) is accepted


def test_entries_as_they_are_made_keep_to_the_fast_path() -> None:
    for made in (rows_of(256), story_rows(), example_rows(), of_all_types()):
        page = bundle_page(format_bundle([row.entry for row in made]), len(made))
        assert page is not None
        assert FAST.accept(page, new_rules(parse_entry(made[0].entry).log))


def of_all_types() -> list[SequencedEntry]:
    """Return entries of all types of the vocabulary, about things with names that keys must encode."""
    part = Part(name="principal", payload=b"who", salt=bytes(32))
    made = [
        Event(
            type=kind,
            version=version,
            key=format_key("table", ("läke", 'a "b"', "c/d\\e")),
            actor=bytes(range(16)).hex(),
            occurred_at=START,
            data={"snapshots": ["3051729675574597004"], "text": "ü"},
            parts=(part,),
        )
        for kind, version in EVENTS
    ]
    return sequenced([Group(id=UUID(int=number), then=(prepare(one),)) for number, one in enumerate(made)])[0]


def test_an_entry_of_the_largest_size_is_accepted_and_a_bundle_of_another_width_is_not() -> None:
    entry = rows_of(1)[0].entry
    full = entry.replace(b'"plain"', b'"' + b"x" * (65_535 - len(entry) + 5) + b'"')
    assert len(full) == 65_535
    assert is_accepted(format_bundle([full]), 1)
    bundle = format_bundle([row.entry for row in rows_of(3)])
    for width, data in ((2, bundle), (4, bundle), (3, bundle[:-1]), (3, bundle + b"\0"), (3, b""), (1, b"\xff\xff")):
        assert bundle_page(data, width) is None


def as_python(compiled: Any) -> Any:
    """Return a function of the kernel as it was before it was compiled."""
    return compiled.py_func


def test_what_comes_behind_a_step_that_has_failed_fails_too() -> None:
    # As Python: what the compiled code would read else, at the page's beginning, is a length that an entry may choose.
    room, hashes = np.zeros(64, dtype=np.uint8), np.zeros(64, dtype=np.uint8)
    for step in (kernel.actor, kernel.event_key, kernel.event_type, kernel.hash_text, kernel.parts, kernel.word):
        assert as_python(step)(room, -1) == -1
    assert as_python(kernel.skip)(room, -1, hashes[:1]) == -1
    assert as_python(kernel.decimal)(room, -1) == (-1, -1)
    assert as_python(kernel.timestamp)(room, -1) == -1
    assert as_python(kernel.uuid)(room, -1, hashes, 0) == -1
    assert as_python(kernel.previous)(room, -1, hashes, 0) == -1


def test_a_name_that_does_not_sort_behind_the_one_before_is_refused_by_that_step() -> None:
    for one, other, is_sorted in (("a", "b", True), ("a", "ab", True), ("b", "a", False), ("a", "a", False)):
        first, second = f'"{one}"', f'"{other}":'
        room = np.frombuffer(f"{first}{second}".ljust(64, "\0").encode(), dtype=np.uint8)
        end = as_python(kernel.member)(room, len(first), np.array([1, len(first) - 1]))
        assert end == (len(first + second) if is_sorted else -1)


@pytest.mark.parametrize(
    ("step", "texts"),
    [
        (kernel.member, (b'a":1', b'"a', b'"a"', b'"a";', b'"\x01":')),
        (
            kernel.timestamp,
            (
                *(b"0000-01-01T00:00:00.000000Z", b"2026-13-01T00:00:00.000000Z", b"2026-02-29T00:00:00.000000Z"),
                *(b"2026-01-01t00:00:00.000000Z", b"2026-01-01T00:00:00.00000Z", b"2026-01-01T00:00:00.000000"),
            ),
        ),
        (kernel.value, (b"[" * 40, b'{"a":' * 40, b'{"a":1]', b"[1}", b'{"a":1,"a":1}', b"{1", b"[1;", b"x")),
        (kernel.any_text, (b"\x1f", b"\\x", b"\x80", b"\xff")),
        (kernel.escape, (b"x", b"u0x", b"u002", b"u00/1", b"u0008", b"u001g", b"u00 1")),
        (kernel.character, (b"\x80", b"\xc1\x80", b"\xc2\x7f", b"\xe0\x9f\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")),
        (kernel.actor, (b"system", b"sys", b"0" * 32, b"0" * 31 + b'"', b"g" * 32)),
        (kernel.event_key, (b'"', b" ", b"k" * 60)),
        (kernel.event_type, (b"1", b"a", b"a.", b"a.b", b'a"', b'a.1"')),
        (kernel.parts, (b"[", b'["a"', b'["a","' + b"0" * 40)),
        (kernel.word, (b"1", b"_")),
        (kernel.hash_text, (b"0" * 60, b"g")),
    ],
)
def test_a_step_that_fails_says_so_wherever_its_text_begins(step: Any, texts: Sequence[bytes]) -> None:
    more = (np.full((kernel.LEVELS_MAX, 2), -1, dtype=np.int64),) if step is kernel.value else ()
    if step is kernel.member:
        more = (np.array([-1, -1]),)
    for text in texts:
        for start in (0, 7):  # 0, where a step that said "0" for "failed" would go on
            room = np.zeros(start + len(text) + 320, dtype=np.uint8)
            room[start : start + len(text)] = np.frombuffer(text, dtype=np.uint8)
            assert as_python(step)(room, start, *more) == -1, text


# Rows with their derived columns

OIDS = (20, 17, 17, 25, 25, 16, 2950)


def record(row: SequencedEntry) -> bytes:
    """Return a row as PostgreSQL's record_send does."""
    columns = (
        row.index.to_bytes(8, "big"),
        row.entry,
        row.leaf,
        row.type.encode(),
        row.key.encode(),
        bytes([row.is_control]),
        row.group_id.bytes if row.group_id else None,
    )
    packed = len(columns).to_bytes(4, "big")
    for oid, column in zip(OIDS, columns, strict=True):
        length = b"\xff" * 4 if column is None else len(column).to_bytes(4, "big")
        packed += oid.to_bytes(4, "big") + length + (column or b"")
    return packed


def accepted_rows(data: bytes, width: int, behind: Sequence[bytes] = ()) -> int | None:
    page = FAST.rows_page(data, width)
    return None if page is None else FAST.accept_rows(page, after(behind))


def test_rows_whose_columns_say_what_the_entries_do_are_accepted() -> None:
    rows = rows_of(20)
    assert accepted_rows(b"".join(map(record, rows)), 20) == max(row.index for row in rows if row.is_control)
    assert accepted_rows(b"".join(map(record, rows[:2])), 2) == -1
    behind = [row.entry for row in rows[:9]]
    last = max(row.index for row in rows if row.is_control)
    assert accepted_rows(b"".join(map(record, rows[9:])), 11, behind) == last - 9


def test_any_changed_byte_of_a_row_is_refused() -> None:
    rows = rows_of(4)[1:]
    behind, data = [rows_of(1)[0].entry], b"".join(map(record, rows))
    assert accepted_rows(data, 3, behind) is not None
    oids = set()
    at = 0
    for _ in rows:
        at += 4
        for _ in OIDS:
            oids |= set(range(at, at + 4))  # which our own query has made, and nobody reads
            length = int.from_bytes(data[at + 4 : at + 8], "big")
            at += 8 + (0 if length == 0xFFFFFFFF else length)
    for at in set(range(len(data))) - oids:
        for bit in range(8):
            changed = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            assert accepted_rows(changed, 3, behind) is None, (at, bit)
    for cut in range(len(data)):
        assert accepted_rows(data[:cut], 3, behind) is None
    assert accepted_rows(data, 2, behind) is None


def test_a_row_without_an_entry_is_refused() -> None:
    first, second = rows_of(2)
    length = len(second.entry).to_bytes(4, "big")
    data = record(first) + record(second)
    assert accepted_rows(data, 2) is not None
    assert accepted_rows(data.replace(length + second.entry, b"\xff" * 4), 2) is None


@pytest.mark.parametrize(
    ("kind", "is_control"),
    [
        ("policy.x", True),
        ("key.created", True),
        ("policyx.y", False),
        ("policy_x.y", False),
        ("polic.y", False),
    ],
)
def test_control_types_are_told_by_their_first_word(kind: str, is_control: bool) -> None:
    row = rows_of(1)[0]
    entry = row.entry.replace(b'"type":"commit.decided"', f'"type":"{kind}"'.encode())
    for claimed in (True, False):
        told = replace(row, entry=entry, leaf=leaf_hash(entry), type=kind, is_control=claimed)
        expected = None if claimed != is_control else 0 if is_control else -1
        assert accepted_rows(record(told), 1) == expected


# Loading


def test_small_logs_are_verified_without_the_kernel_and_large_ones_if_numba_is_not_there(tmp_path: Path) -> None:
    path = write_directory(tmp_path, plain_rows(300))
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "from pathlib import Path\n"
        "from ledger.format.note import VerifierKey\n"
        "from ledger.verify.directory import verify_directory\n"
        "from ledger.verify.workers import Effort\n"
        f"keys = [VerifierKey.parse({KEY.format()!r})]\n"
        f"path = Path({str(path)!r})\n"
        "print(verify_directory(path, keys).size, 'numpy' in sys.modules)\n"
        "print(verify_directory(path, keys, effort=Effort(kernel_entries_min=0)).size)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path.cwd(), check=False)
    assert (done.stdout, done.stderr) == ("300 False\n300\n", "")
