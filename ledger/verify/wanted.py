"""
What somebody wants verified, and how: the options of `verify`, read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ledger.anchoring import Pinned
from ledger.directory import LogDirectory, bundle_places
from ledger.keeping.places import Kept, Place
from ledger.note import VerifierKey
from ledger.verify.effort import Effort
from ledger.verify.resuming import NoProgressFile, ProgressKeeper

Opinion: TypeAlias = Callable[[bytes, Mapping[int, bytes]], str]
"""What is asked a second time: leaf hashes, joined, and roots by size; says what it has checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    See `verify_database` and `verify_directory`; `opinion` is asked behind them.

    `kept` are checkpoints that lie outside, of whichever log: each log must go on from its own. `places` are asked for
    those of the system log before any log is read.
    """

    keys: Sequence[VerifierKey] = ()
    kept: Sequence[Kept] = ()
    places: Sequence[Place] = ()
    since: bytes | None = None
    pinned: Pinned = field(default_factory=Pinned)
    keeper: ProgressKeeper = field(default_factory=NoProgressFile)
    effort: Effort = field(default_factory=Effort)
    opinion: Opinion | None = None


def read_tile_leaves(path: Path, size: int) -> bytes:
    """
    Return the leaf hashes of the log of `size` in a directory, joined, as its tiles have them.

    Raises:
        BrokenError, UnreadableError: as `LogDirectory.read_tile`.
    """
    directory = LogDirectory(path)
    return b"".join(directory.read_tile(0, index, width).pack() for index, width in bundle_places(size))
