# SPDX-License-Identifier: Apache-2.0
"""
Operations of the installation: signer keys, migrations, schema, attested projections, successors of logs, places.

A place is a URI below which a tenant may register catalogs. The first `catalog.created` with a location takes it. The
two events here are for the operator, who takes a place from one tenant and gives it to another. Each is in the log of
the tenant it concerns, and names no other tenant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerCreated:
    """The signer's key exists: `vkey` is the verifier key of the system log (C2SP signed-note). In the system log."""

    TYPE: ClassVar[str] = "signer.created"
    VERSION: ClassVar[int] = 1

    vkey: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerRotated:
    """
    The signer has a new key, which signs together with `previous` until that one is retired. In the system log.

    Both are verifier keys of the system log; `note` is the statement that both have signed (`format/key_history.py`).
    """

    TYPE: ClassVar[str] = "signer.rotated"
    VERSION: ClassVar[int] = 1

    vkey: str
    previous: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTree:
    """What was signed last for one log: its size and, in hex, its root hash."""

    origin: str
    size: int
    root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerRetired:
    """
    One page of the retirement of a key: it signs nothing after `trees`, the last ones it has signed. In the system log.

    Pages `page` from 0 to `pages` - 1 stand in that order, their trees sorted by origin; `note` is the statement over
    all of them that `successor` has signed, and `vkey` too if it still could (`format/key_history.py`).
    """

    TYPE: ClassVar[str] = "signer.retired"
    VERSION: ClassVar[int] = 1

    vkey: str
    successor: str
    note: str
    page: int
    pages: int
    trees: tuple[SignedTree, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationApplied:
    """A migration ran; `sha256` is of its text. In the system log."""

    TYPE: ClassVar[str] = "migration.applied"
    VERSION: ClassVar[int] = 1

    package: str
    number: int
    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierPublished:
    """
    The page with which auditors check evidence in their own browsers; `sha256` is of its bytes. In the system log.
    """

    TYPE: ClassVar[str] = "verifier.published"
    VERSION: ClassVar[int] = 1

    sha256: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaObject:
    """One object of the database: a table, a column, a policy, a role, a grant, a setting. It contains no oid."""

    kind: str
    name: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecorded:
    """
    One page of what the database's schema, roles, grants and settings are from here on. In the system log.

    Pages `page` from 0 to `pages` - 1 stand in one group; `fingerprint` is the hex SHA-256 of the canonical list of
    [kind, name, definition] of all their objects, sorted by kind and name. They rest on `migrations` (hex SHA-256 of
    the lines "<package> <number> <sha256>"), on the `provisioning` that made them (a hex SHA-256 of its sources), and
    on the versions of PostgreSQL and AGE. `replaces` is the index of the first page of the record before, null of the
    first; `accepted` tells that an operator has accepted what differs from that one.
    """

    TYPE: ClassVar[str] = "schema.recorded"
    VERSION: ClassVar[int] = 1

    accepted: bool
    age: str
    fingerprint: str
    migrations: str
    objects: tuple[SchemaObject, ...]
    page: int
    pages: int
    postgresql: int
    provisioning: str
    replaces: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionAttested:
    """Generation `generation` of a projection, built from the first `size` entries, has this digest (hex SHA-256)."""

    TYPE: ClassVar[str] = "projection.attested"
    VERSION: ClassVar[int] = 1

    projection: str
    projection_version: int
    generation: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalReplayed:
    """
    The decisions of entries `first` … `end` - 1 were judged again with a proposal: what would be decided otherwise.

    `proposal`, `inputs` and `verdicts` are hex SHA-256 (docs/formats.md, "Hashes"); the others count decisions. Part:
    perhaps `proposal`. It puts nothing in force.
    """

    TYPE: ClassVar[str] = "proposal.replayed"
    VERSION: ClassVar[int] = 1

    first: int
    end: int
    proposal: str
    inputs: str
    verdicts: str
    decisions: int
    same: int
    widened: int
    narrowed: int
    failed: int
    unknown: int
    not_judged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContinued:
    """
    This log continues the closed log `origin`, whose database was set back behind what had been signed.

    `note` is the last note that the closed log's signer had kept, whole; `size` and `root` (hex) are of what the
    database still held. It is the first entry of its log, and occurs nowhere else (`ledger.format.continuation`).
    """

    TYPE: ClassVar[str] = "log.continued"
    VERSION: ClassVar[int] = 1

    origin: str
    note: str
    size: int
    root: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsAnchored:
    """
    The log `origin` was signed with this root (hex) at `size`. One entry for each log that has grown, in the system
    log.
    """

    TYPE: ClassVar[str] = "logs.anchored"
    VERSION: ClassVar[int] = 1

    origin: str
    root: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceReleased:
    """The tenant no longer holds the places at and below this one (a URI); its catalogs for them were retired."""

    TYPE: ClassVar[str] = "place.released"
    VERSION: ClassVar[int] = 1

    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceGranted:
    """The tenant holds this place (a URI) from here on: no other may register a catalog that overlaps it."""

    TYPE: ClassVar[str] = "place.granted"
    VERSION: ClassVar[int] = 1

    place: str
