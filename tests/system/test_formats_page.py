# SPDX-License-Identifier: Apache-2.0
"""
The page of stored formats says what the code does, and each comparison notices a page that does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from testkit.system.formats_page import CHECKS, PAGE, rows

TEXT = PAGE.read_text(encoding="utf-8")

COMPARED = {
    "Event types": "events",
    "Objects and closed sets": "shapes",
    "Payload parts": "parts",
    "Event keys": "keys",
    "Hashes": "prefixes",
    "Labels": "labels",
    "Tables of the log": "tables",
    "Other tables": "tables",
    "Migrations": "migrations",
    "Constants": "constants",
}

CORRUPTED = [
    ("events", "`as_of` integer; ", "", "the members of commit.decided 1 are"),
    ("events", "`base` text or null", "`base` text", "the members of commit.decided 1 are"),
    ("events", "| `key.created` | 2 |", "| `key.created` | 3 |", "the code knows no key.created 3"),
    ("events", "| `log.continued` | 1 |", "| `log.continues` | 1 |", "add a row for log.continued 1"),
    ("shapes", "`mistake`, `order`", "`mistake`", "the row must be | `ErasureReason` |"),
    (
        "shapes",
        "| `Reason` | `id` text; `version` integer |",
        "| `Reason` | `id` text |",
        "the row must be | `Reason` |",
    ),
    (
        "parts",
        "| `forward` | `gateway/commit/events.py`",
        "| `onward` | `gateway/commit/events.py`",
        "makes a part 'forward'",
    ),
    ("keys", "| `place` |", "| `plaice` |", "the code makes keys `place:"),
    ("prefixes", "| commitment | `0x03`", "| commitment | `0x04`", "commitment begins with 0x03"),
    ("prefixes", "| node | `0x01`", "| node | `0x00`", "node begins with 0x01"),
    ("group_ids", "| `commit.reconciled` |", "| `commit.found` |", "of the kind 'commit.reconciled'"),
    (
        "group_ids",
        "`streams/sources/poller.py`",
        "`streams/processing/deferred_runner.py`",
        "name streams/sources/poller.py",
    ),
    ("labels", '| `"lakeproof/part/v1"` |', '| `"lakeproof/part/v2"` |', "'lakeproof/part/v1' stands in"),
    ("tables", "`server_started_at`, ", "", "the row must be | `ledger.confirmations` |"),
    ("tables", "`gateway.key_macs`, ", "", "the row of gateway must say"),
    ("migrations", "| `log` | `6596af336fd4` |", "| `log` | `000000000000` |", "write a new migration instead"),
    ("migrations", "| `streams` | 0003 | `forgetting` |", "| `streams` | 0004 | `forgetting` |", "add the row"),
    ("forms", "actor   [0-9a-f]{32}|system", "actor   [0-9a-f]{32}", "the form of actor is"),
    ("forms", "{1,2000}", "{1,2001}", "the form of key is"),
    ("constants", "EVENT_SIZE_BYTES_MAX` | 64,512 |", "EVENT_SIZE_BYTES_MAX` | 64,513 |", "| 64,512 |"),
    (
        "constants",
        "| `ledger.format.tiles.LEVEL_MAX` | 63 |\n",
        "",
        "the row must be | `ledger.format.tiles.LEVEL_MAX` | 63 |",
    ),
    ("example", '"position":0},"index":0', '"position":0},"index":1', "must be the first entry of docs/example-log"),
    ("example", '"expression":"!has', '"expression": "!has', "the example is no entry"),
    ("example", "| `recorded_at` |", "| `recorded` |", "say what the member recorded_at is"),
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_says_what_the_code_does(check: str) -> None:
    assert list(CHECKS[check](TEXT)) == []


@pytest.mark.parametrize(("check", "right", "wrong", "told"), CORRUPTED)
def test_a_page_that_is_wrong_is_told_what_to_say(check: str, right: str, wrong: str, told: str) -> None:
    assert right in TEXT
    found = list(CHECKS[check](TEXT.replace(right, wrong, 1)))
    assert any(told in sentence for sentence in found), found


def test_every_comparison_is_shown_to_fail() -> None:
    assert {check for check, *_ in CORRUPTED} == set(CHECKS)


@pytest.mark.parametrize(("title", "check"), COMPARED.items())
def test_a_row_that_is_missing_is_noticed(title: str, check: str) -> None:
    if title == "Hashes":  # whose second table is of derived ids
        removed = [line for line in _lines(title) if "`0x" in line]
    elif title == "Event keys":
        removed = [line for line in _lines(title) if line.count("|") == 4]
    else:
        removed = list(_lines(title))
    assert len(removed) >= 3
    for line in removed:
        assert list(CHECKS[check](TEXT.replace(f"{line}\n", "", 1))), line


def test_a_derived_group_id_that_is_missing_is_noticed() -> None:
    removed = [line for line in _lines("Hashes") if "`0x" not in line]
    assert len(removed) >= 10
    for line in removed:
        assert list(CHECKS["group_ids"](TEXT.replace(f"{line}\n", "", 1))), line


@pytest.mark.parametrize("title", COMPARED)
def test_no_row_stands_there_twice(title: str) -> None:
    identities = [tuple(row) for row in rows(TEXT, title)]
    assert len(identities) == len(set(identities))


def _lines(title: str) -> Iterator[str]:
    """Yield the rows of the tables of a section, as they stand in the page."""
    body = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0].splitlines()
    for before, line in pairwise(body):
        if line.startswith("| ") and before.startswith("|"):
            yield line
