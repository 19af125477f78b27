# SPDX-License-Identifier: Apache-2.0
"""
The arguments and options that several commands share, and how their values are read.

An option with one meaning has one name in all commands. Files that options name are read here with a limit: of a file
that is too large, only as much is read as it takes to refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from ledger.errors import LedgerError
from ledger.format.note import VerifierKey
from ledger.format.proof import PROOF_SIZE_BYTES_MAX

NOT_PINNED: Final = (
    "KEY NOT PINNED: name the log's verifier key with --key, and take it from those who run the log (`lakeproof ledger "
    "key`), not from where the log came from: whoever changed the log could have put a key there"
)
TIMES: Final = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%fZ")
LogName = Annotated[str, typer.Argument(help="Origin, tenant's name or id, or 'system'.", show_default=False)]
LogKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="VKEY",
        help="A verifier key of the log, if not this installation's. May be repeated.",
        show_default=False,
    ),
]
TrustedKeys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="VKEY", help="A verifier key you trust. May be repeated.", show_default=False),
]
OutFile = Annotated[Path, typer.Option("--out", help="The file to write.", show_default=False)]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="Witnesses you trust (C2SP tlog-policy).", show_default=False),
]
StampRoots = Annotated[
    Path | None,
    typer.Option("--tsa-root", metavar="PEM", help="Roots of time-stamping authorities you trust.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
OneTenant = Annotated[str, typer.Option("--tenant", help="The tenant: its name or id.", show_default=False)]
SomeTenant = Annotated[
    str | None, typer.Option("--tenant", help="Only of this tenant: its name or id.", show_default=False)
]
Identity = Annotated[str, typer.Option("--identity", help="Whom the key stands for, as in ada@acme.example.")]
RoleNames = Annotated[
    list[str] | None, typer.Option("--role", help="A role it has; repeat for several.", show_default=False)
]


def one_of(values: Iterable[str]) -> Callable[[str], list[str]]:
    """
    Return what completes a word on the command line to one of a few values.
    """
    known = sorted(values)
    return lambda incomplete: [value for value in known if value.startswith(incomplete)]


def parsed_keys(keys: Sequence[str] | None) -> list[VerifierKey]:
    """
    Return the keys that `TrustedKeys` or `LogKeys` names, perhaps none.

    Raises:
        FormatError: if one is not a verifier key.
    """
    return [VerifierKey.parse(text) for text in keys or ()]


def pinned_keys(keys: Sequence[str] | None) -> list[VerifierKey]:
    """
    Return the keys that `TrustedKeys` names, for commands that verify nothing without a key.

    Raises:
        LedgerError: if there is none.
        FormatError: if one is not a verifier key.
    """
    if not keys:
        raise LedgerError(NOT_PINNED)
    return parsed_keys(keys)


def read_note(path: Path) -> bytes:
    """
    Return the content of a file of the size of a proof or a note.

    Raises:
        LedgerError: if it cannot be read.
    """
    return read_bounded(path, size_bytes_max=PROOF_SIZE_BYTES_MAX)


def read_bounded(path: Path, *, size_bytes_max: int) -> bytes:
    """
    Return the content of a file; of a larger one, the first `size_bytes_max` + 1 bytes.

    Raises:
        LedgerError: if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(size_bytes_max + 1)
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error


def utc(time: datetime | None) -> datetime | None:
    """
    Return a time that was parsed by one of `TIMES`, which are all in UTC, as an aware time.
    """
    return None if time is None else time.replace(tzinfo=UTC)
