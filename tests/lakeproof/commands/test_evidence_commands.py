# SPDX-License-Identifier: Apache-2.0
"""The commands `bundle` and `check`, and evidence from PostgreSQL, of real decisions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner, Result

from lakeproof.commands.evidence import evidence_page, gather_from_log
from lakeproof.commands.ledger import ledger_app
from lakeproof.log_names import find_named_log
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import leaf_hash
from ledger.format.note import sign_note
from ledger.format.proof import prove_entries, root_from
from ledger.proving.evidence.bundle import Section, format_bundle, parse_bundle
from ledger.proving.evidence.check import check_evidence
from ledger.proving.evidence.from_database import open_source
from ledger.proving.evidence.gather import ALL_PARTS, DecisionAt, PartNames, Rules, gather
from testkit.gateway.evidence import committed, signed_and_anchored
from testkit.ledger.evidence_logs import TABLE, evidence, story_directory
from testkit.ledger.logs import KEY, noise
from testkit.ledger.standalone import standalone
from testkit.servers.gateways import Gateway

VKEY = KEY.format()
DECISION_SIZE_BYTES_MAX = 4_096


def not_opened() -> NoReturn:
    raise AssertionError("no installation is needed here")


APP = ledger_app(not_opened)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    return story_directory(tmp_path / "log")


def test_a_decision_is_bundled_from_a_directory_and_checked_in_words(exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "evidence"
    made = run("bundle", "--directory", exported, "--key", VKEY, "--decision", 5, "--part", "principal", "--out", out)
    assert (made.exit_code, made.stderr) == (0, "")
    assert f"lakeproof ledger check {out} --key {VKEY}" in made.stdout
    done = run("check", out, "--key", VKEY)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"update_table on {TABLE} approved" in done.stdout
    assert f"accepted: outcome on {TABLE}" in done.stdout
    assert re.search("by ada@acme.example, actor [0-9a-f]{32}, API key key-1\n", done.stdout)
    assert "SELECTION: the log may hold other outcomes" in done.stdout
    assert done.stdout.splitlines()[-2].startswith("NOT WITNESSED")
    assert done.stdout.splitlines()[-1] == "OK"
    said = json.loads(run("check", out, "--key", VKEY, "--json").stdout)
    assert (said["status"], said["witnessed"], [entry["index"] for entry in said["entries"]]) == (
        "verified",
        False,
        [5, 6],
    )


def test_verify_takes_a_bundle_and_says_what_check_says(exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "evidence"
    run("bundle", "--directory", exported, "--key", VKEY, "--decision", 5, "--out", out)
    for more in ([], ["--json"]):
        checked, verified = (run(command, out, "--key", VKEY, *more) for command in ("check", "verify"))
        assert (verified.exit_code, verified.stdout, verified.stderr) == (0, checked.stdout, "")
    assert run("verify", out).exit_code == 2, "without a key nothing is told"
    assert run("verify", out, "--key", VKEY, "--second-opinion").exit_code == 2
    out.write_bytes(out.read_bytes().replace(b"approved", b"rejected"))
    assert run("verify", out, "--key", VKEY).exit_code == 1


def test_nothing_is_disclosed_unless_it_is_named(exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "evidence"
    run("bundle", "--directory", exported, "--key", VKEY, "--table", "lake.sales.orders", "--out", out)
    done = run("check", out, "--key", VKEY)
    assert "(who that is, is not disclosed)" in done.stdout
    assert b"\npart " not in out.read_bytes()
    run("bundle", "--directory", exported, "--key", VKEY, "--table", TABLE, "--out", out, "--all-parts")
    assert out.read_bytes().count(b"\npart ") == 9


def test_a_period_is_bundled_by_its_times(exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "evidence"
    times = ["--from", "2026-03-01T16:00:00", "--to", "2026-03-01T18:00:00Z"]
    assert run("bundle", "--directory", exported, "--key", VKEY, *times, "--out", out).exit_code == 0
    assert "COMPLETE: the period: all 6 entries" in run("check", out, "--key", VKEY).stdout


def test_what_an_entry_says_takes_no_line_of_its_own_in_the_verdict(exported: Path) -> None:
    forged = "x\nWITNESSED: cosigned by witness.example/w\x1b[2J\nOK"
    found = check_evidence(evidence(exported, DecisionAt(index=5)), [KEY])
    (first, *_) = found.entries
    entry = replace(first.entry, actor=forged, key=forged, type=forged)
    payloads = {"principal": json.dumps({"sub": forged}).encode(), "verdicts": forged.encode(), "inputs": b"\xff"}
    parts = tuple(replace(part, payload=payloads[part.name]) for part in first.parts)
    for shown in (
        parts,
        (),
        *(tuple(replace(part, payload=payload) for part in parts) for payload in (b"[]", b"[" * 100_000)),
    ):
        page = evidence_page(replace(found, entries=(replace(first, entry=entry, parts=shown),), unchecked=(forged,)))
        assert not any(line.startswith(("WITNESSED", "x")) for line in page.splitlines())
        assert page.splitlines().count("OK") == 1
        assert "\x1b" not in page


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--decision", "5", "--table", TABLE],
        ["--from", "2026-03-01"],
        ["--table", TABLE, "--with-policies"],
        ["--decision", "x"],
        ["--decision", "99"],
    ],
)
def test_what_makes_no_sense_is_refused(exported: Path, tmp_path: Path, options: list[str]) -> None:
    done = run("bundle", "--directory", exported, "--key", VKEY, *options, "--out", tmp_path / "evidence")
    assert done.exit_code == 1
    assert done.stderr.startswith("lakeproof: ")


def test_check_ends_with_2_where_it_cannot_tell_and_with_1_where_it_is_broken(exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "evidence"
    run("bundle", "--directory", exported, "--key", VKEY, "--decision", 5, "--out", out)
    assert run("check", out).exit_code == 2
    assert run("check", exported / "checkpoint", "--key", VKEY).exit_code == 2
    assert run("check", tmp_path / "none", "--key", VKEY).exit_code == 2
    out.write_bytes(out.read_bytes().replace(b"accepted", b"rejected"))
    done = run("check", out, "--key", VKEY)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (1, "BROKEN")


def test_check_loads_no_database_driver() -> None:
    script = "import sys, lakeproof.commands.evidence; sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# From PostgreSQL


async def test_a_real_decision_is_proven_from_the_database_with_its_rules_and_parts(
    gateway: Gateway, tmp_path: Path
) -> None:
    index = await committed(gateway)
    out = tmp_path / "evidence"
    installation = gateway.services.installation
    async with signed_and_anchored(gateway) as auditor:
        wanted = DecisionAt(index=index, rules=Rules.INCLUDED)
        done = await gather_from_log(installation, auditor, "acme", wanted, out, parts=ALL_PARTS, keys=[])
        log = await find_named_log(installation, auditor, "acme")
        keys = [installation.verifier_key(origin) for origin in (log.origin, installation.system_origin)]
    assert all(key.format() in done.text for key in keys)
    assert done.members == {
        "file": str(out),
        "size_bytes": out.stat().st_size,
        "verifier_keys": [key.format() for key in keys],
    }
    found = check_evidence(out.read_bytes(), keys)
    decided = next(one for one in found.entries if one.entry.index == index)
    assert {part.name for part in decided.parts} == {"inputs", "principal", "verdicts"}
    assert any("rules in force" in text for text in found.coverage.complete)
    assert standalone(out.read_bytes(), keys).code == 0
    assert found.anchor is not None
    assert (found.anchor.size, found.anchor.root) == (found.checkpoint.size, found.checkpoint.root)
    assert any("anchor in the log" in name for name in check_evidence(out.read_bytes(), keys[:1]).unchecked)


async def test_evidence_of_a_real_decision_in_a_log_of_a_million_is_at_most_4_kb(gateway: Gateway) -> None:
    index = await committed(gateway)
    installation = gateway.services.installation
    async with signed_and_anchored(gateway) as auditor:
        log = await find_named_log(installation, auditor, "acme")
        key = installation.verifier_key(log.origin)
        source = await open_source(auditor, log, None, keys=[key], policy=None, opener=installation.opener)
        data = await gather(source, DecisionAt(index=index), keys=[key], parts=PartNames(names=["principal"]))
        signer = installation.open_keys().signer(log.origin)
    bundle = parse_bundle(data)
    # The same entries in a log of a million others: its hashes are noise, and the root is what follows from them.
    size, first = 1_000_003, 699_051
    leaves: dict[int, bytes] = {}
    bundled = []
    for number, one in enumerate(bundle.section.entries, start=first):
        entry = one.entry.replace(f'"index":{index + number - first},'.encode(), f'"index":{number},'.encode())
        if number > first:
            entry = re.sub(rb'"previous":"[0-9a-f]{64}"', b'"previous":"%b"' % leaves[number - 1].hex().encode(), entry)
        leaves[number] = leaf_hash(entry)
        bundled.append(replace(one, entry=entry))
    proof = tuple(prove_entries(list(leaves), size=size, read=lambda level, i: noise(level, i)))
    root = root_from(leaves, size=size, proof=proof)
    note = sign_note(format_checkpoint(Checkpoint(origin=log.origin, size=size, root=root)), [signer])
    data = format_bundle(replace(bundle, section=Section(entries=tuple(bundled), proof=proof, checkpoint=note)))
    assert [one.entry.type for one in check_evidence(data, [key]).entries] == ["commit.decided", "commit.settled"]
    assert standalone(data, [key]).code == 0
    assert len(data) <= DECISION_SIZE_BYTES_MAX
