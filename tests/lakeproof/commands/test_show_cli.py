# SPDX-License-Identifier: Apache-2.0
"""`lakeproof ledger show`, `tail` and `stats`: what they print and what they return."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.format.sequence import SequencedEntry
from testkit.lakeproof.operator import Operator, make_operator
from testkit.ledger.logs import TENANT, change, put, rows_of

SIZE = 300
NAME = TENANT.hex


@pytest.fixture
def rows(installation: Provisioned) -> list[SequencedEntry]:
    return rows_of(SIZE, log=installation.origin(TENANT))


@pytest.fixture
def operator(database: str, installation: Provisioned, rows: list[SequencedEntry], tmp_path: Path) -> Operator:
    log_id = create_tenant_log(database, installation, TENANT)
    asyncio.run(put(database, log_id, rows))
    change(
        database,
        "INSERT INTO ledger.subjects (log_id, actor, identity) VALUES (%s, %s, 'ann@example.org')",
        log_id,
        json.loads(rows[1].entry)["event"]["actor"],
    )
    return make_operator(database, installation, tmp_path)


def test_the_newest_entries_are_shown_a_line_each(operator: Operator) -> None:
    done = operator.run("show", NAME)
    lines = done.stdout.splitlines()
    assert (done.exit_code, done.stderr, len(lines)) == (0, "", 20)
    assert lines[-1].split()[0] == "299"
    assert "table:sales/orders" in lines[-1]


def test_only_entries_that_match_are_shown(operator: Operator, rows: list[SequencedEntry]) -> None:
    done = operator.run("show", NAME, "--type", "policy.*", "--about", "table:sales/orders*", "-n", 1_000)
    shown = [int(line.split()[0].replace(",", "")) for line in done.stdout.splitlines()]
    assert shown == [row.index for row in rows if row.type.startswith("policy.")]
    assert operator.run("show", NAME, "--after", "2026-03-02").stdout == ""
    assert operator.run("show", NAME, "--before", "2026-03-01T12:00:00Z").stdout == ""


def test_an_actor_may_be_called_by_name(operator: Operator, rows: list[SequencedEntry]) -> None:
    actor = json.loads(rows[1].entry)["event"]["actor"]
    by_name = operator.run("tail", NAME, "--actor", "ann@example.org", "-n", SIZE, "--json").stdout
    assert by_name == operator.run("tail", NAME, "--actor", actor, "-n", SIZE, "--json").stdout
    assert by_name.encode().splitlines() == [
        row.entry for row in rows if json.loads(row.entry)["event"]["actor"] == actor
    ]
    done = operator.run("show", NAME, "--actor", "nobody@example.org")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("lakeproof: actor 'nobody@example.org': expected 32 hex digits")


def test_a_name_means_all_actors_of_that_identity(
    operator: Operator, rows: list[SequencedEntry], database: str
) -> None:
    actors = {json.loads(row.entry)["event"]["actor"] for row in rows} - {"system"}
    own = json.loads(rows[1].entry)["event"]["actor"]
    for number, actor in enumerate(sorted(actors - {own})):
        change(
            database,
            "INSERT INTO ledger.subjects (log_id, actor, identity, issuer) "
            "SELECT log_id, %s, identity, %s FROM ledger.subjects WHERE actor = %s",
            actor,
            f"{number:032x}",
            own,
        )
    assert len(actors) > 1
    by_name = operator.run("tail", NAME, "--actor", "ann@example.org", "-n", SIZE, "--json").stdout
    assert by_name.encode().splitlines() == [
        row.entry for row in rows if json.loads(row.entry)["event"]["actor"] in actors
    ]


def test_tail_writes_the_entries_as_they_are_stored(operator: Operator, rows: list[SequencedEntry]) -> None:
    done = operator.run("tail", NAME, "--json", "-n", SIZE)
    assert done.stdout.encode() == b"".join(row.entry + b"\n" for row in rows)
    assert operator.run("tail", NAME, "--json", "--from", SIZE - 2).stdout.encode() == b"".join(
        row.entry + b"\n" for row in rows[-2:]
    )


def test_one_entry_is_shown_whole_with_the_parts_that_are_held(
    operator: Operator, rows: list[SequencedEntry], database: str
) -> None:
    change(database, "DELETE FROM ledger.parts WHERE index = 7 AND name = 'inputs'")
    done = operator.run("show", NAME, 7)
    assert done.exit_code == 0
    assert f"leaf       {rows[7].leaf.hex()}" in done.stdout
    assert "part       inputs, erased" in done.stdout
    assert "part       principal, held" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nobody"], 1),
        (["show", NAME, SIZE], 1),
        (["show", NAME, -1], 2),
        (["show", NAME, "--after", "yesterday"], 2),
        (["tail", NAME, "-n", 1_000_000_000], 2),
        (["stats", "nobody"], 1),
    ],
    ids=str,
)
def test_what_cannot_be_shown_is_said_in_a_sentence(operator: Operator, arguments: list[object], code: int) -> None:
    done = operator.run(*arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr


def test_the_figures_are_shown_as_a_page_and_as_json(operator: Operator, rows: list[SequencedEntry]) -> None:
    page = operator.run("stats", NAME)
    assert (page.exit_code, page.stderr) == (0, "")
    assert f"size       {SIZE} entries in " in page.stdout
    figures = json.loads(operator.run("stats", NAME, "--json").stdout)
    assert figures["size"] == sum(one["entries"] for one in figures["types"].values()) == SIZE
    assert figures["parts_held"] == sum(len(row.parts) for row in rows)
