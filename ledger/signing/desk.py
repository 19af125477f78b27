"""
What operators' commands do with the signer's keys, beside a `lakeproof up` or alone.

Before something is appended and after the keys have changed, the desk's own signer does a round: beside an `up` it
stands by, alone it confirms the logs and lets the new keys sign at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledger.note import VerifierKey
from ledger.signing.errors import KeyUnavailableError
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.key_ring import KeyRecord
from ledger.signing.rotation import KeyKeeper, NewKey, agent_key
from ledger.signing.signer import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDesk:
    """The keys of one installation; `origin` is the system log's, under whose name its verifier keys are."""

    origin: str
    directory: KeyDirectory
    keeper: KeyKeeper
    signer: Signer

    def verifier_key(self, record: KeyRecord) -> VerifierKey:
        """Return a key as verifier key of the system log."""
        return VerifierKey.ed25519(name=self.origin, public=record.public)

    def agent_key(self, key_id: str) -> NewKey:
        """
        Return a key that the agent of this installation holds.

        Raises:
            KeyUnavailableError: if there is none, or no agent.
        """
        socket: Path | None = self.directory.agent
        if socket is None:
            raise KeyUnavailableError("no agent is known: name its socket in LAKEPROOF_SIGNER_AGENT")
        return agent_key(socket, key_id)

    async def rotate(self, make: Callable[[], NewKey]) -> KeyRecord:
        """
        Let a new key join, and sign with it at once; raises as `KeyKeeper.rotate`.
        """
        await self.signer.sign_once()
        joined = await self.keeper.rotate(make)
        await self.signer.sign_once()
        return joined

    async def retire(self) -> KeyRecord:
        """
        Retire the overlapping key; raises as `KeyKeeper.retire`.
        """
        await self.signer.sign_once()
        return await self.keeper.retire()
