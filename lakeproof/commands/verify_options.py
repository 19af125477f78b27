# SPDX-License-Identifier: Apache-2.0
"""
The options of `verify`, read, and those of them that `check` has, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from lakeproof.commands.options import read_note
from ledger.anchoring import Pinned, parse_roots
from ledger.anchoring.archive import ArchivedNotes, CheckpointArchive
from ledger.files.directory import LogDirectory, bundle_addresses
from ledger.format.note import VerifierKey
from ledger.format.witness_policy import WitnessPolicy
from ledger.verify.resuming import NoProgressFile, ProgressKeeper
from ledger.verify.workers import Effort

Opinion: TypeAlias = Callable[[bytes, Mapping[int, bytes]], str]
"""A second implementation: takes leaf hashes, joined, and roots by size; returns what it has checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """
    See `verify_database` and `verify_directory`; `opinion` checks again after them.

    `kept` are checkpoints from outside, of any logs: each log must extend its own. `places` are read for checkpoints of
    the system log, before any log is read.
    """

    keys: Sequence[VerifierKey] = ()
    kept: Sequence[ArchivedNotes] = ()
    places: Sequence[CheckpointArchive] = ()
    since: bytes | None = None
    pinned: Pinned = field(default_factory=Pinned)
    keeper: ProgressKeeper = field(default_factory=NoProgressFile)
    effort: Effort = field(default_factory=Effort)
    opinion: Opinion | None = None


def pinned_anchors(policy: Path | None, tsa_root: Path | None) -> Pinned:
    """
    Return who may witness the system log: the witnesses of a policy file, the authorities of a file of roots.

    Raises:
        FormatError: if a file is not what it should be.
        LedgerError: if one cannot be read.
    """
    return Pinned(
        policy=None if policy is None else WitnessPolicy.parse(read_note(policy)),
        stamp_roots=() if tsa_root is None else parse_roots(read_note(tsa_root)),
    )


def read_tile_leaves(path: Path, size: int) -> bytes:
    """
    Return the leaf hashes of the log of `size` in a directory, joined, as its tiles have them.

    Raises:
        BrokenError, UnreadableError: as `LogDirectory.read_tile`.
    """
    directory = LogDirectory(path)
    return b"".join(directory.read_tile(0, index, width).pack() for index, width in bundle_addresses(size))
