# SPDX-License-Identifier: Apache-2.0
"""
The documents' commands, as a reader runs them: which blocks a page has, and one way to run them.

Blocks of `sh` and `python` are run as they stand. Blocks of `console` are commands behind `$ `, each with what it
prints. A block of any other language, or of none, is no command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testkit.environment import PROJECT

DOCUMENTS: Final = (*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").glob("*.md")))
CONTINUED: Final = (
    "docs/first-hours.md",
    "docs/auditing.md",
    "docs/event-store.md",
    "docs/access-rules.md",
    "docs/policies.md",
)
"""The pages whose commands continue the first steps of the README, in this order."""
TIMEOUT_S: Final = 300

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def path_of(page: str) -> Path:
    """Return the file of a page, named from the root of the project."""
    return PROJECT / page


def blocks_of(page: str, *languages: str, section: str | None = None) -> list[tuple[str, str]]:
    """Return the blocks (language, text) of a page in these languages, in order; perhaps of one section alone."""
    text = path_of(page).read_text(encoding="utf-8")
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [(language, block) for language, block in _BLOCK.findall(text) if language in languages]


def console_of(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page's consoles, in order, each with what the page says that it prints."""
    found = []
    for _, console in blocks_of(page, "console"):
        for step in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command, _, printed = step.partition("\n")
            found.append((command, printed))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Runs commands in one folder."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: reader_environment())
    exchanged: Mapping[str, str] = field(default_factory=dict)
    """Texts of a page that are others here: a port that is free."""

    def run(self, blocks: list[tuple[str, str]]) -> str:
        """Run blocks in order; each must succeed. Return what they print."""
        return "".join(self.call(text, language).stdout for language, text in blocks)

    def call(self, text: str, language: str = "sh") -> subprocess.CompletedProcess[str]:
        """Run one block, which must succeed."""
        program = ["bash", "-e", "-c"] if language == "sh" else [sys.executable, "-W", "ignore", "-c"]
        for old, new in self.exchanged.items():
            text = text.replace(old, new)
        done = subprocess.run(
            [*program, text],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done


def reader_environment(*programs: Path) -> dict[str, str]:
    """Return the variables of a reader: the project's programs come first on the PATH, `programs` before them."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEPROOF_", "PYTEST"))}
    folders = [*map(str, programs), str(Path(sys.executable).parent), environment["PATH"]]
    return environment | {"PATH": os.pathsep.join(folders)}
