# SPDX-License-Identifier: Apache-2.0
"""
Every source file names its licence in its first line, or in its second after the line that names its program.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from lakeproof.schema_record import SOURCES
from testkit.environment import PROJECT

COMMENTS: Final = {".py": "#", ".sh": "#", ".sql": "--", ".cypher": "--"}
IDENTIFIER: Final = "SPDX-License-Identifier: Apache-2.0"
HASHED: Final = frozenset("/".join(source) for source in SOURCES)
"""Their bytes are part of a record in the system log: a line more would make every installation record them again."""


def source_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False).stdout
    paths = listed.split("\0") if listed else [str(path.relative_to(PROJECT)) for path in sources_without_git()]
    # Migrations are never changed: their SHA-256 is stored.
    return [PROJECT / path for path in paths if "/migrations/" not in path and path not in HASHED]


def sources_without_git() -> list[Path]:
    folders = ("bench", "gateway", "lakeproof", "ledger", "projections", "spark_detect", "streams", "testkit", "tests")
    return [path for folder in folders for path in (PROJECT / folder).rglob("*") if path.suffix in COMMENTS]


def test_every_source_file_names_its_licence() -> None:
    found = 0
    without = []
    for path in source_files():
        first = path.read_bytes()[:200].decode("utf-8", "replace").splitlines()[:2] if path.is_file() else []
        comment = COMMENTS.get(path.suffix) or ("#" if not path.suffix and first[:1] and first[0][:2] == "#!" else None)
        if comment is not None and path.is_file():
            found += 1
            if f"{comment} {IDENTIFIER}" not in first:
                without.append(str(path.relative_to(PROJECT)))
    assert found > 500
    assert without == []
