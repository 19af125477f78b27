# SPDX-License-Identifier: Apache-2.0
"""The page about the log is true: its example is what our rules make, and its commands print what it says."""

from __future__ import annotations

import shutil
from pathlib import Path

from testkit.environment import PROJECT
from testkit.ledger.example_log import write_example
from testkit.system.documents import Reader, console_of

EXAMPLE = PROJECT / "docs" / "example-log"


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_example_is_what_the_rules_make(tmp_path: Path) -> None:
    write_example(tmp_path)
    assert files(tmp_path) == files(EXAMPLE)


def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    reader = Reader(folder=shutil.copytree(EXAMPLE, tmp_path / "log"))
    found = console_of("docs/ledger.md")
    assert len(found) >= 14
    for command, printed in found:
        done = reader.call(command)
        assert done.stderr == "", command
        assert done.stdout.rstrip("\n") == printed.rstrip("\n"), command


def test_a_changed_byte_of_the_example_changes_what_the_commands_print(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "log")
    bundle = folder / "tile" / "entries" / "000.p" / "3"
    bundle.write_bytes(bundle.read_bytes().replace(b"the table is frozen", b"the table is molten"))
    command, printed = next(step for step in console_of("docs/ledger.md") if step[0].endswith("| sha256sum"))
    assert Reader(folder=folder).call(command).stdout != printed
