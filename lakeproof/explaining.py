# SPDX-License-Identifier: Apache-2.0
"""
What becomes of an error that ends a command, or a process of `lakeproof up`: one sentence, and an exit code.

Whatever is raised on purpose is its own sentence. The stack trace of whatever is not goes to a file in the home's log
directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakeproof.crash import CrashFile
from lakeproof.errors import first_of_group
from lakeproof.extras import explain_missing

FAILED: Final = 1
BROKEN_DOWN: Final = 70
"""EX_SOFTWARE of sysexits.h. Not 1: where an auditor reads that as a broken log, a fault of ours must not look so."""
NOT_INSTALLED: Final = 2
"""Not 1, for the same reason: a verification that lacks a package cannot tell, and has 2 for that."""

FOR_PEOPLE: Final = frozenset(
    {
        ("lakeproof.errors", "LakeproofError"),
        ("ledger.errors", "LedgerError"),
        ("projections.errors", "ProjectionError"),
        ("gateway.errors", "GatewayError"),
        ("streams.errors", "StreamError"),
        ("spark_detect.errors", "DetectionError"),
    }
)
"""The roots of what is raised on purpose. By name: classifying errors must not import the packages."""

LOST_CONNECTION: Final = ("psycopg", "OperationalError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What to say of an error, and the exit code that it ends a process with."""

    text: str
    code: int


def explain(error: Exception, crash_file: CrashFile, *, command: str = "") -> Explained:
    """
    Return what to say of `error`, of a group the first. The stack of what was not raised on purpose goes to
    `crash_file`.
    """
    error = first_of_group(error)
    kinds = {(kind.__module__, kind.__name__) for kind in type(error).__mro__}
    if kinds & FOR_PEOPLE:
        return Explained(text=str(error) or type(error).__name__, code=FAILED)
    if isinstance(error, ModuleNotFoundError) and (advice := explain_missing(error.name or "", command=command)):
        return Explained(text=advice, code=NOT_INSTALLED)
    if LOST_CONNECTION in kinds:
        text = f"the database cannot be reached ({error}): check that it runs, then try again"
        return Explained(text=text, code=FAILED)
    kind = (
        "the system refuses" if isinstance(error, OSError) else f"an error that should not be, {type(error).__name__}"
    )
    return Explained(text=f"{kind}: {error} (details in {crash_file.add(error)})", code=BROKEN_DOWN)
