# SPDX-License-Identifier: Apache-2.0
"""
The errors of the read models: one root, and the few cases that a caller or operator acts on differently.

Faults of the log itself are raised as `ledger.errors`. A lost connection stays psycopg's error where a caller retries
it (the runner), and never becomes a `ProjectionError`.
"""

from __future__ import annotations

from typing import Self


class ProjectionError(Exception):
    """Root of everything `projections` raises on purpose."""


class UnknownControlError(ProjectionError):
    """A control entry has a type or version that this process does not know: this version is too old for the log."""


class NotProjectedError(ProjectionError):
    """There is no live generation to read or rebuild: no runner has processed this log yet."""


class NotKnownNowError(ProjectionError):
    """
    What holds as of the log cannot be told: the projection is too far behind, or there is more than is read.

    The message has no number that changes with the log: a commit that is sent again gets the same one.
    """


class StaleGenerationError(ProjectionError):
    """The live generation was built by another version of the projection: replace it, or run that version."""


class RebuildRunningError(ProjectionError):
    """Another rebuild or prune of this projection and log is under way."""


class DigestMismatchError(ProjectionError):
    """
    The live generation differs from what the log gives: nothing was switched, both generations are kept.

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
    No entry of the log has a table of this name.

    `nameless` counts the tables that the log knows by uuid alone: the table in question may be one of them.
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
    """A secret that a catalog's options name is missing, or others can read its file."""


class FileMissingError(ProjectionError):
    """There is no file at a location: it was deleted, or never written."""


class FileUnreadableError(ProjectionError):
    """A file exists and cannot be read, however often it is tried."""


class StorageUnavailableError(ProjectionError):
    """The storage behind a location does not answer now; a later attempt may succeed."""


class EgressRulesError(ProjectionError):
    """The list of allowed connection targets is malformed."""


class AddressRefusedError(ProjectionError):
    """A connection requested by a tenant would go to an address that the operator does not allow."""

    @classmethod
    def of(cls, host: str, port: int) -> Self:
        """
        Return the error for a host and port, with what to do.

        It does not say what a name resolves to, or whether it does: a tenant could map an internal network that way.
        """
        return cls(
            f"{host}:{port}: expected a host with an address that LAKEPROOF_UPSTREAMS_ALLOWED permits, found none: "
            "check the name, or have the operator add it to that setting"
        )


class NameUnresolvedError(AddressRefusedError):
    """The host has no address now; it may have one later. The message is the same as that of a refused address."""
