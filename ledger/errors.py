# SPDX-License-Identifier: Apache-2.0
"""
The errors of the log: one root, and few children that a caller would handle differently.

Verification failures are `BrokenError` (the data is wrong) and never a bool; `FormatError` is what every parser raises.
The errors of the signer come last; each says what to do.
"""

from __future__ import annotations

from enum import StrEnum


class LedgerError(Exception):
    """Root of everything `ledger` raises on purpose."""


class FormatError(LedgerError):
    """Bytes are not of the format they should be; says what was expected and what was found."""

    def __init__(self, what: str, *, expected: str, found: object) -> None:
        super().__init__(f"{what}: expected {expected}, found {found!r:.200}")
        self.what = what
        self.expected = expected
        self.found = found


class NotCanonicalError(LedgerError):
    """A value lies outside the canonical JSON profile: no floats, ASCII names, |int| < 2^53, no lone surrogates."""


class LimitExceededError(LedgerError):
    """Something is larger than the stored format allows."""

    def __init__(self, what: str, *, found: int, limit: int) -> None:
        super().__init__(f"{what}: {found} is over the limit of {limit}")
        self.found = found
        self.limit = limit


class Fault(StrEnum):
    """The class of a fault that verification found."""

    ENTRY = "entry"  # an entry's bytes are not a canonical entry
    INDEX = "index"  # an entry is missing, repeated or out of place
    CHAIN = "chain"  # `previous` is not the leaf hash of the entry before
    TIME = "time"  # recorded_at falls
    ORIGIN = "origin"  # the entry belongs to another log
    GROUP = "group"  # the entries of a group are not contiguous
    TILE = "tile"  # a tile does not hold the hashes of what is below it
    DERIVED = "derived"  # a derived column is not what the entry's bytes say
    PART = "part"  # a payload part does not match its commitment
    ROOT = "root"  # the tree's root is not the checkpoint's
    HEAD = "head"  # the head row is not what the entries say
    CHECKPOINT = "checkpoint"  # a checkpoint cannot be read or has the wrong size or origin
    SIGNATURE = "signature"  # a known key's signature is bad, or no known key signed
    PROOF = "proof"  # an inclusion or consistency proof does not lead to the root
    ANCHOR = "anchor"  # a log is not what the system log has recorded of it: it is missing, shorter, or different
    STAMP = "stamp"  # a time stamp is over something else, or not by a pinned authority


class BrokenError(LedgerError):
    """
    The log, a tile, a checkpoint or a proof is not what it must be.

    `fault` is the class of the fault, `index` the first bad entry (0-based) if one can be named, `where` the file or
    table that holds it.
    """

    def __init__(self, fault: Fault, *, where: str, expected: object, found: object, index: int | None = None) -> None:
        at = f" at index {index}" if index is not None else ""
        super().__init__(f"{fault} fault{at} in {where}: expected {expected!s:.200}, found {found!s:.200}")
        self.fault = fault
        self.index = index
        self.where = where


class NoSuchLogError(LedgerError):
    """There is no log of that id or origin."""


class GroupMismatchError(LedgerError):
    """Other content was appended under the same group id; says what differs."""


class GuardError(LedgerError):
    """A guard is unknown or its SQL failed; that group alone was undone."""


class QueueFullError(LedgerError):
    """The appender's queue is full: nothing was appended, try again later."""


class LogUnavailableError(LedgerError):
    """
    The database could not be reached before the deadline: nothing was appended.

    Its children are other reasons why a log accepts nothing for now, whatever the group: try again later.
    """


class NotPreparedError(LogUnavailableError):
    """What a group was to come after was not done: nothing was appended."""


class UnconfirmedLogError(LogUnavailableError):
    """The signer has not confirmed the log's history since the server started: nothing was appended."""


class UnsafeServerError(LogUnavailableError):
    """The server would lose what it has acknowledged: nothing was appended; says which setting to change."""


class OutcomeUnknownError(LedgerError):
    """The answer to a COMMIT did not arrive before the deadline: the group may or may not be in the log."""


class KeyDirectoryError(LedgerError):
    """The signer's directory, one of its keys or its notes cannot be used."""


class BusyKeyDirectoryError(KeyDirectoryError):
    """Another process is signing with this directory right now."""


class KeyUnavailableError(LedgerError):
    """What holds a private key does not sign with it now: nothing is damaged, and it is tried again."""


class RotationError(LedgerError):
    """The state of the keys does not allow this step."""
