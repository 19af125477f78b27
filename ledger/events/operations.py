"""
What the installation itself does: signer keys, migrations, projections attested.
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
class MigrationApplied:
    """A migration ran; `sha256` is of its text. In the system log."""

    TYPE: ClassVar[str] = "migration.applied"
    VERSION: ClassVar[int] = 1

    package: str
    number: int
    name: str
    sha256: str


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
