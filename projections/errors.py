"""
The errors of the read models: one root, and the few cases that an operator acts on differently.

What the log itself does wrong is raised as `ledger.errors`; a connection that is lost stays psycopg's error where a
caller retries it (the runner), and becomes `ProjectionError` nowhere.
"""

from __future__ import annotations

from typing import Self


class ProjectionError(Exception):
    """Root of everything `projections` raises on purpose."""


class UnknownControlError(ProjectionError):
    """A control entry has a type or version that this process does not know: it is too old to project this log."""


class NotProjectedError(ProjectionError):
    """There is no live generation to read or rebuild: no runner has seen this log yet."""


class StaleGenerationError(ProjectionError):
    """The live generation was built by another version of the projection: replace it, or run that version."""


class RebuildRunningError(ProjectionError):
    """Another rebuild or prune of this projection and log is under way."""


class DigestMismatchError(ProjectionError):
    """
    The live generation is not what the log gives: nothing was switched, both generations are kept.

    `live_digest` and `built_digest` are SHA-256 (32 bytes), over the first `size` entries.
    """

    def __init__(
        self, projection: str, *, live: int, live_digest: bytes, built: int, built_digest: bytes, size: int
    ) -> None:
        super().__init__(
            f"projection {projection}, from {size} entries: expected the digest of live generation {live}, "
            f"{live_digest.hex()}, found {built_digest.hex()} in generation {built}: nothing was switched; examine "
            "both, then replace the live generation"
        )
        self.live = live
        self.live_digest = live_digest
        self.built = built
        self.built_digest = built_digest
        self.size = size


class UnknownLabelError(ProjectionError):
    """A vertex or edge does not fit the inventory of labels (`graph/labels.py`)."""


class UnknownTableError(ProjectionError):
    """
    No entry of the log names a table like that; which is not to say that there is nothing in it.

    `nameless` is how many tables the log knows by their uuid alone: the one that is meant may be among them.
    """

    def __init__(self, key: str, *, nameless: int) -> None:
        known = f"; {nameless} {'table is' if nameless == 1 else 'tables are'} known by uuid alone" if nameless else ""
        if nameless:
            known += ": load the table through the gateway, or give the poller a key, so that the log has its name"
        super().__init__(f"table {key:.200}: expected a table of the graph, found none: no entry names it{known}")
        self.key = key
        self.nameless = nameless


class InvalidLineageError(ProjectionError):
    """
    What was sent is no OpenLineage event, or is over a limit.

    `field` is the path of the first member that is wrong, `reason` what was expected of it and found.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class SecretMissingError(ProjectionError):
    """A secret that a catalog's options name is not there, or others can read it."""


class FileMissingError(ProjectionError):
    """A location names no file: it was deleted, or never written."""


class FileUnreadableError(ProjectionError):
    """A file is there and can not be read, however often it is tried."""


class StorageUnavailableError(ProjectionError):
    """The storage behind a location does not answer: another time it may."""


class EgressRulesError(ProjectionError):
    """The list of places that connections may go to is not of its form."""


class AddressRefusedError(ProjectionError):
    """A connection that somebody else has asked for would go to an address that the operator does not allow."""

    @classmethod
    def of(cls, host: str, port: int) -> Self:
        """
        Return the error for a host and port, which says what to do.

        What a name resolves to, or whether it does, is not told: whoever asks could learn the names of a network.
        """
        return cls(
            f"{host}:{port}: expected a host with an address that LAKEPROOF_UPSTREAMS_ALLOWED permits, found none: "
            "check the name, or have the operator add it to that setting"
        )


class NameUnresolvedError(AddressRefusedError):
    """The host has no address now; another time it may. What it says is no different."""
