# SPDX-License-Identifier: Apache-2.0
"""A directory is anchored as far as a verified system log, seen by others, says what is in it; and not beyond."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from lakeproof.commands.exits import Meter
from lakeproof.commands.ledger import ledger_app
from ledger.anchoring import Pinned
from ledger.anchoring.anchors import anchor_key
from ledger.errors import BrokenError, Fault
from ledger.files.directory import CHECKPOINT_FILE
from ledger.format.cosignature import Cosigner
from ledger.format.event import Event, prepare
from ledger.format.events import LogsAnchored, to_data
from ledger.format.merkle import root_of
from ledger.format.note import Ed25519Signer, format_note, parse_note
from ledger.format.sequence import Group, SequencedEntry
from ledger.format.signature import ED25519_COSIGNATURE
from ledger.format.witness_policy import PolicyWitness, WitnessPolicy
from ledger.verify.anchored import judge_directory, verify_system_export
from ledger.verify.directory import verify_directory
from testkit.ledger.logs import KEY, ORIGIN, START, groups, noise, rows_of, sequenced, write_directory

SYSTEM = Ed25519Signer.from_seed(name="logs.example/system", seed=b"s" * 32)
WITNESS = Cosigner.from_seed(ED25519_COSIGNATURE, name="witness.example", seed=b"w" * 32)
POLICY = WitnessPolicy(logs=(), witnesses=(PolicyWitness(name="w", key=WITNESS.verifier_key),), groups=(), quorum="w")
ROWS = rows_of(700)
KEYS = [KEY, SYSTEM.verifier_key]

APP = ledger_app(None)  # type: ignore[arg-type]


def anchor(size: int, *, root: bytes | None = None, number: int = 1) -> Group:
    said = LogsAnchored(origin=ORIGIN, root=(root or root_of([row.leaf for row in ROWS[:size]])).hex(), size=size)
    event = Event(
        type=LogsAnchored.TYPE,
        version=1,
        key=anchor_key(ORIGIN),
        actor="system",
        occurred_at=START,
        data=to_data(said),
    )
    return Group(id=UUID(int=number), then=(prepare(event),))


def system_log(path: Path, anchors: Sequence[Group], *, cosigned: Sequence[Cosigner] = (WITNESS,)) -> Path:
    """Write the export of a system log with these anchors, as the witnesses have seen it."""
    rows, _ = sequenced([*groups(300), *anchors, *groups(4, first=300)], log=SYSTEM.name)
    return cosign(write_directory(path, rows, SYSTEM), cosigned)


def cosign(path: Path, witnesses: Sequence[Cosigner]) -> Path:
    note = path / CHECKPOINT_FILE
    text, lines = parse_note(note.read_bytes())
    stamp_s = int(START.timestamp())
    note.write_bytes(format_note(text, [*lines, *(witness.cosign(text, time_s=stamp_s) for witness in witnesses)]))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_directory(tmp_path / "log", ROWS)


def judged_size(log: Path, *, system: Path | None, pinned: Pinned | None = None) -> tuple[bool, int]:
    report = verify_directory(log, KEYS)
    pinned = pinned or Pinned(policy=POLICY)
    anchoring_report = verify_system_export(system, KEYS) if system else None
    judged = judge_directory(log, report, trusted=KEYS, pinned=pinned, system=anchoring_report)
    assert replace(judged, anchored_size=None, witnessed_size=0, witnessed_by=(), checked=()) == report
    return judged.witnessed, judged.witnessed_size


@pytest.mark.parametrize("size", [1, 255, 256, 300, 512, 699, 700])
def test_a_log_is_anchored_up_to_its_newest_anchor(log: Path, tmp_path: Path, size: int) -> None:
    anchors = [anchor(size)] if size == 1 else [anchor(1), anchor(size, number=2)]
    assert judged_size(log, system=system_log(tmp_path / "system", anchors)) == (size == 700, size)


def test_what_no_quorum_has_seen_or_nobody_has_anchored_is_not_anchored(log: Path, tmp_path: Path) -> None:
    alone = system_log(tmp_path / "alone", [anchor(700)], cosigned=())
    assert judged_size(log, system=alone) == (False, 0)
    assert judged_size(log, system=system_log(tmp_path / "other", [])) == (False, 0)
    assert judged_size(log, system=system_log(tmp_path / "seen", [anchor(700)]), pinned=Pinned()) == (False, 0)
    assert judged_size(log, system=None) == (False, 0)
    assert judged_size(cosign(log, [WITNESS]), system=None) == (True, 700)


def test_a_log_of_any_name_is_not_taken_for_the_system_log(tmp_path: Path) -> None:
    system = verify_system_export(system_log(tmp_path / "system", []), KEYS)
    for name in ("logs.example/a", "logs.example/z"):
        signer = Ed25519Signer.from_seed(name=name, seed=b"z" * 32)
        log = write_directory(tmp_path / name, rows_of(3, log=name), signer)
        keys = [signer.verifier_key, SYSTEM.verifier_key]
        judged = judge_directory(log, verify_directory(log, keys), trusted=keys, pinned=Pinned(), system=system)
        assert judged.witnessed_size == 0


@pytest.mark.parametrize(
    "anchors",
    [[anchor(300, root=noise("another"))], [anchor(300), anchor(200, number=2)], [anchor(700, root=noise("x"))]],
    ids=["another root", "a size that falls", "another end"],
)
def test_a_log_that_is_not_what_was_anchored_is_broken(log: Path, tmp_path: Path, anchors: list[Group]) -> None:
    with pytest.raises(BrokenError) as caught:
        judged_size(log, system=system_log(tmp_path / "system", anchors))
    assert caught.value.fault is Fault.ANCHOR


def test_a_log_that_was_cut_off_behind_an_anchor_is_broken_at_its_end(tmp_path: Path) -> None:
    end = next(row.index for row in ROWS[400:] if row.group_id is not None)
    short = write_directory(tmp_path / "short", ROWS[:end])
    with pytest.raises(BrokenError) as caught:
        judged_size(short, system=system_log(tmp_path / "system", [anchor(700)]))
    assert (caught.value.fault, caught.value.index) == (Fault.ANCHOR, end)


def test_a_system_log_that_is_broken_vouches_for_nothing(log: Path, tmp_path: Path) -> None:
    system = system_log(tmp_path / "system", [anchor(700)])
    bundle = system / "tile/entries/000"
    bundle.write_bytes(bundle.read_bytes().replace(b'"number":7,', b'"number":8,'))
    with pytest.raises(BrokenError) as caught:
        judged_size(log, system=system)
    assert caught.value.fault is Fault.ENTRY


def test_the_command_says_how_far_a_log_is_anchored_and_how_far_witnessed(log: Path, tmp_path: Path) -> None:
    (tmp_path / "policy").write_bytes(POLICY.format())
    arguments = ["verify", log, "--key", KEY.format(), "--key", SYSTEM.verifier_key.format()]
    for size in (700, 600):
        system = system_log(tmp_path / f"system{size}", [anchor(size)])
        more = ["--anchored-in", system, "--policy", tmp_path / "policy", "--second-opinion"]
        done = CliRunner().invoke(APP, [str(argument) for argument in [*arguments, *more]])
        assert (done.exit_code, done.stderr) == (0, "")
        said = "WITNESSED: cosigned, 2026-03-01 12:00:00 UTC; w"
        if size == 600:
            said = f"WITNESSED up to size 600: {said[11:]}; the 100 entries behind it NOT WITNESSED"
        recorded = "ANCHORED: the system log has recorded this size and root"
        if size == 600:
            recorded = "ANCHORED up to size 600 in the system log; the 100 entries behind it NOT ANCHORED"
        assert done.stdout.splitlines()[-3:] == [recorded, said, "OK"]
        assert "checked    1 anchors in logs.example/system, a log of 305 entries" in done.stdout
        assert "inclusion proofs by pymerkle" in done.stdout
        done = CliRunner().invoke(APP, [str(a) for a in [*arguments, *more, "--json"]])
        told = json.loads(done.stdout)
        assert (told["anchored_size"], told["witnessed"], told["witnessed_size"]) == (size, size == 700, size)


def test_the_system_log_in_the_place_of_the_log_that_it_vouches_for_is_refused(tmp_path: Path) -> None:
    system = system_log(tmp_path / "system", [anchor(700)])
    keys = ["--key", KEY.format(), "--key", SYSTEM.verifier_key.format()]
    done = CliRunner().invoke(APP, ["verify", str(system), *keys, "--anchored-in", str(system)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is itself an export of the system log logs.example/system" in done.stderr


def test_the_command_verifies_from_a_checkpoint_on_and_says_what_it_has_not_read(log: Path, tmp_path: Path) -> None:
    rows: list[SequencedEntry] = ROWS[: next(row.index for row in ROWS[600:] if row.group_id is not None)]
    older = write_directory(tmp_path / "older", rows) / CHECKPOINT_FILE
    arguments = ["verify", str(log), "--key", KEY.format(), "--since", str(older), "--resume", str(tmp_path / "kept")]
    done = CliRunner().invoke(APP, arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    expected = f"entries below 512 were not read; the log extends the checkpoint of size {len(rows)} that you hold"
    assert f"PREFIX NOT RE-READ: {expected}" in done.stdout
    result = json.loads(CliRunner().invoke(APP, [*arguments, "--json"]).stdout)
    assert (result["prefix_reread"], result["since"], result["first"]) == (False, len(rows), 512)


def test_progress_tells_speed_and_what_is_left_at_most_ten_times_a_second() -> None:
    times = iter([0.0, 0.05, 0.2, 2.0])
    meter = Meter(lambda: next(times))
    assert meter.line(1_000, 9_000, "entries") == "[##......................] 1,000 of 9,000 entries"
    assert meter.line(1_500, 9_000, "entries") is None
    line = meter.line(2_000, 9_000, "entries")
    assert line == "[#####...................] 2,000 of 9,000 entries, 5,000/s, 1 s left"
    assert meter.line(9_000, 9_000, "entries") == f"[{'#' * 24}] 9,000 of 9,000 entries, 4,000/s, 0 s left"


def test_a_checkpoint_that_is_kept_outside_witnesses_an_export_and_finds_one_that_was_cut_off(
    log: Path, tmp_path: Path
) -> None:
    system = system_log(tmp_path / "system", [anchor(600)])
    published = tmp_path / "published"
    published.write_bytes((system / CHECKPOINT_FILE).read_bytes())
    keys = ["--key", KEY.format(), "--key", SYSTEM.verifier_key.format()]

    def run(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(APP, [str(one) for one in ("verify", *arguments, *keys)])
        return done.exit_code, done.output

    for named in (published, f"file:{published}"):
        code, said = run(log, "--anchored-in", system, "--checkpoint", named)
        assert (code, f"WITNESSED up to size 600: kept outside; {named}; the 100 entries" in said) == (0, True), said
        assert f"WITNESSED: kept outside; {named}\nOK" in run(system, "--checkpoint", named)[1]
    code, said = run(log, "--checkpoint", published)
    assert (code, "name an export of that one with --anchored-in" in said) == (2, True)
    # The same system log, grown: the export from before is smaller than what was published.
    published.write_bytes(
        (system_log(tmp_path / "grown", [anchor(600), anchor(700, number=2)]) / CHECKPOINT_FILE).read_bytes()
    )
    code, said = run(log, "--anchored-in", system, "--checkpoint", f"file:{published}")
    assert (code, "index fault" in said, said.endswith("BROKEN\n")) == (1, True, True), said
    assert run(log, "--anchored-in", system, "--checkpoint", "git:nowhere")[0] == 2
    assert run(tmp_path / "nowhere", "--checkpoint", published)[0] == 2
