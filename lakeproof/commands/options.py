# SPDX-License-Identifier: Apache-2.0
"""
The arguments and options that several commands have, and how what they name is read.

An option that means the same is called the same everywhere, and a file that one names is read here, bounded: of one
that is too large, only so much is read that it is refused as too large.
"""

from __future__ import annotations

from collections.abc import Sequence
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
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
OneTenant = Annotated[str, typer.Option("--tenant", help="The tenant: its name or id.", show_default=False)]
SomeTenant = Annotated[
    str | None, typer.Option("--tenant", help="Only of this tenant: its name or id.", show_default=False)
]
Identity = Annotated[str, typer.Option("--identity", help="Whom the key stands for, as in ada@acme.example.")]
RoleNames = Annotated[
    list[str] | None, typer.Option("--role", help="A role it has; repeat for several.", show_default=False)
]


def parsed_keys(keys: Sequence[str] | None) -> list[VerifierKey]:
    """
    Return the keys that `TrustedKeys` or `LogKeys` names, perhaps none. Raises FormatError if one is no key.
    """
    return [VerifierKey.parse(text) for text in keys or ()]


def pinned_keys(keys: Sequence[str] | None) -> list[VerifierKey]:
    """
    Return the keys that `TrustedKeys` names, where nothing can be verified without one.

    Raises:
        LedgerError: if there is none.
        FormatError: if one is no key.
    """
    if not keys:
        raise LedgerError(NOT_PINNED)
    return parsed_keys(keys)


def read_note(path: Path) -> bytes:
    """
    Return a proof, a note, or what else of that size stands in a file. Raises LedgerError if it cannot be read.
    """
    return read_bounded(path, size_bytes_max=PROOF_SIZE_BYTES_MAX)


def read_bounded(path: Path, *, size_bytes_max: int) -> bytes:
    """
    Return what stands in a file, of a larger one a byte more than the bound. Raises LedgerError if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(size_bytes_max + 1)
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error


def utc(time: datetime | None) -> datetime | None:
    """
    Return a time that was named in one of `TIMES`, all of which are UTC, as an aware one.
    """
    return None if time is None else time.replace(tzinfo=UTC)
