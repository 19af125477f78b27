"""
The names of the database roles of one installation.

Roles belong to a whole PostgreSQL server, so each name carries the installation's id. The login role by itself sees
nothing. It is granted the others WITH INHERIT FALSE, SET TRUE, and every connection takes the one that it works as.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Roles:
    """Role names derived from the installation's id (8 hex digits)."""

    installation: str

    @property
    def prefix(self) -> str:
        """How every name begins."""
        return f"lp_{self.installation}_"

    def _name(self, duty: str) -> str:
        return f"{self.prefix}{duty}"

    @property
    def owner(self) -> str:
        """Owns schemas and tables; runs migrations."""
        return self._name("owner")

    @property
    def login(self) -> str:
        """What services connect as; sees nothing until it takes a role."""
        return self._name("login")

    @property
    def appender(self) -> str:
        """Inserts entries and moves heads, over all logs; writes guarded rows inside guards."""
        return self._name("appender")

    @property
    def signer(self) -> str:
        """Reads heads and tiles, inserts checkpoints."""
        return self._name("signer")

    @property
    def projector(self) -> str:
        """Reads entries and parts, owns the projections' schemas and graphs."""
        return self._name("projector")

    @property
    def auditor(self) -> str:
        """Reads every log, no payload parts."""
        return self._name("auditor")

    @property
    def gateway(self) -> str:
        """Finds the tenant of an API key or alias; everything else it reads as that tenant's reader."""
        return self._name("gateway")

    @property
    def streams(self) -> str:
        """Reads every log, no payload parts; keeps the streams' cursors, outbox and dead letters."""
        return self._name("streams")

    @property
    def detector(self) -> str:
        """Reads every log, no payload parts; pins the batches that detection works on."""
        return self._name("detector")

    @property
    def eraser(self) -> str:
        """Deletes payload parts and identities, which it cannot read; changes nothing else."""
        return self._name("eraser")

    @property
    def reader(self) -> str:
        """The group of all tenants' readers: holds the grants, row-level security decides the rows."""
        return self._name("reader")

    def tenant(self, tenant: UUID) -> str:
        """Reads one tenant's rows and graph."""
        return self._name(f"t_{tenant.hex}")

    def services(self) -> tuple[str, ...]:
        """Return the roles that a connection of the login may take."""
        return (
            self.appender,
            self.signer,
            self.projector,
            self.auditor,
            self.gateway,
            self.streams,
            self.detector,
            self.eraser,
        )

    def duties(self) -> dict[str, str]:
        """Return the placeholders of the migrations: duty to role name."""
        return {
            "owner": self.owner,
            "appender": self.appender,
            "signer": self.signer,
            "projector": self.projector,
            "auditor": self.auditor,
            "gateway": self.gateway,
            "streams": self.streams,
            "detector": self.detector,
            "eraser": self.eraser,
            "reader": self.reader,
        }
