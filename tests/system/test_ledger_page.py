"""The page about the log is true: its example is what our rules make, and its commands print what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from testkit.environment import PROJECT
from testkit.ledger.example_log import write_example

DOCS = PROJECT / "docs"
EXAMPLE = DOCS / "example-log"


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def steps(page: Path) -> list[tuple[str, str]]:
    """Return the commands of a page's consoles, in order, each with what it is said to print."""
    consoles = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = []
    for console in consoles:
        for step in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command, _, printed = step.partition("\n")
            found.append((command, printed))
    return found


def test_the_example_is_what_the_rules_make(tmp_path: Path) -> None:
    write_example(tmp_path)
    assert files(tmp_path) == files(EXAMPLE)


def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "log")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = steps(DOCS / "ledger.md")
    assert len(found) >= 14
    for command, printed in found:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout.rstrip("\n") == printed.rstrip("\n"), command


def test_a_changed_byte_of_the_example_changes_what_the_commands_print(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "log")
    bundle = folder / "tile" / "entries" / "000.p" / "3"
    bundle.write_bytes(bundle.read_bytes().replace(b"the table is frozen", b"the table is molten"))
    command, printed = next(step for step in steps(DOCS / "ledger.md") if step[0].endswith("| sha256sum"))
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout != printed
