# SPDX-License-Identifier: Apache-2.0
"""Verifying exported logs through rotations of the signer's keys: from files, with one pinned key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import ledger_app
from ledger.errors import BrokenError, Fault
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.events import EventData, SignedTree
from ledger.format.key_history import follow_recorded_keys
from ledger.format.note import sign_note
from ledger.format.sequence import SequencedEntry
from ledger.verify.anchored import verify_system_directory
from ledger.verify.directory import verify_directory
from testkit.ledger.logs import head_of, rows_of, write_directory
from testkit.ledger.signer_lives import ORIGIN, SYSTEM, created, pin, retired, rotated, rows, signer

ENTRIES = rows_of(600, log=ORIGIN)
FORGED = rows_of(600, log=ORIGIN, salt="forged")


def end(rows: Sequence[SequencedEntry], *, whole: int) -> int:
    """Return the size, `whole` or somewhat more, at which a group of the log ends."""
    return next(row.index for row in rows[whole:] if row.group_id is not None)


LAST = end(ENTRIES, whole=300)
"""The size of the log when the first key retired."""


def export(path: Path, rows: Sequence[SequencedEntry], origin: str, *by: int) -> Path:
    """Write the directory of a log, signed by these keys."""
    checkpoint = Checkpoint(origin=origin, size=len(rows), root=head_of(rows).frontier.root())
    note = sign_note(format_checkpoint(checkpoint), [signer(number, origin) for number in by])
    return write_directory(path, rows, note=note)


def life() -> tuple[EventData, ...]:
    tree = SignedTree(origin=ORIGIN, size=LAST, root=head_of(ENTRIES[:LAST]).frontier.root().hex())
    return created(1), rotated(1, 2), *retired(1, 2, [tree]), rotated(2, 3)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return export(tmp_path / "system", rows(*life()), SYSTEM, 3, 2)


@pytest.mark.parametrize("pinned", [1, 2, 3])
@pytest.mark.parametrize(("size", "by"), [(LAST, [1]), (LAST, [2, 1]), (600, [2]), (600, [3])])
def test_a_log_verifies_whichever_key_is_pinned(
    tmp_path: Path, system: Path, pinned: int, size: int, by: list[int]
) -> None:
    report, history = verify_system_directory(system, [pin(pinned)])
    assert (report.origin, len(history.terms)) == (SYSTEM, 3)
    log = export(tmp_path / "log", ENTRIES[:size], ORIGIN, *by)
    assert verify_directory(log, history).size == size


@pytest.mark.parametrize(
    ("entries", "size", "by", "fault"),
    [
        (ENTRIES, 600, [1], Fault.SIGNATURE),  # the retired key signs a newer checkpoint
        (ENTRIES, 600, [9], Fault.SIGNATURE),  # an unknown key
        (ENTRIES, end(ENTRIES, whole=200), [1], Fault.INDEX),  # an older log than the one that was signed last
        (FORGED, LAST, [1], Fault.ROOT),  # whoever has found the old key rewrites what it had signed
        (FORGED, 600, [2], Fault.ROOT),
    ],
)
def test_what_the_keys_do_not_vouch_for_is_broken(
    tmp_path: Path, system: Path, entries: list[SequencedEntry], size: int, by: list[int], fault: Fault
) -> None:
    _, history = verify_system_directory(system, [pin(1)])
    log = export(tmp_path / "log", entries[:size], ORIGIN, *by)
    with pytest.raises(BrokenError) as caught:
        verify_directory(log, history)
    assert caught.value.fault is fault


@pytest.mark.parametrize("by", [[1], [9]])
def test_a_system_log_that_no_key_in_force_has_signed_is_broken(tmp_path: Path, by: list[int]) -> None:
    forged = export(tmp_path / "system", rows(*life()), SYSTEM, *by)
    with pytest.raises(BrokenError) as caught:
        verify_system_directory(forged, [pin(1)])
    assert caught.value.fault is Fault.SIGNATURE


def test_a_system_log_whose_entries_were_changed_is_broken(tmp_path: Path, system: Path) -> None:
    other = write_directory(tmp_path / "other", rows(*life()[:2]), note=(system / "checkpoint").read_bytes())
    with pytest.raises(BrokenError):
        verify_system_directory(other, [pin(1)])
    (system / "checkpoint").write_bytes(b"?")
    with pytest.raises(BrokenError) as caught:
        verify_system_directory(system, [pin(1)])
    assert caught.value.fault is Fault.CHECKPOINT


# The command


def follow(*arguments: object) -> Result:
    def unopened() -> None:
        raise AssertionError("no installation is needed")

    return CliRunner().invoke(ledger_app(unopened), ["keys", "follow", *map(str, arguments)])  # type: ignore[arg-type]


def test_the_command_names_keys_and_logs(tmp_path: Path, system: Path) -> None:
    log = export(tmp_path / "log", ENTRIES, ORIGIN, 3)
    done = follow(system, log, "--key", pin(1).format())
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["retired", "in", "in", "8", "600", "OK"]
    result = json.loads(follow(system, log, "--key", pin(1).format(), "--json").stdout)
    assert (result["status"], [key["retired"] for key in result["keys"]]) == ("verified", [True, False, False])
    assert [one["origin"] for one in result["logs"]] == [SYSTEM, ORIGIN]


def test_the_command_tells_broken_from_unknown(tmp_path: Path, system: Path) -> None:
    assert follow(system).exit_code == 2
    assert follow(tmp_path / "nothing", "--key", pin(1).format()).exit_code in {1, 2}
    stranger = follow(system, "--key", pin(9).format())
    assert (stranger.exit_code, stranger.stdout.splitlines()[-1]) == (1, "BROKEN")
    log = export(tmp_path / "log", ENTRIES, ORIGIN, 1)
    assert follow(system, log, "--key", pin(1).format()).exit_code == 1


def test_without_entries_about_keys_those_that_are_pinned_are_trusted_and_an_entry_that_is_none_is_broken() -> None:
    others = [row.entry for row in ENTRIES[:5]]
    assert follow_recorded_keys(others, [pin(1)], origin=SYSTEM) == [pin(1)]
    with pytest.raises(BrokenError) as caught:
        follow_recorded_keys([*others, b'{"event":{"type":"signer.created"'], [pin(1)], origin=SYSTEM)
    assert caught.value.fault is Fault.ENTRY
