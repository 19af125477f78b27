# SPDX-License-Identifier: Apache-2.0
"""
Anchoring as tasks of `lakeproof up`: anchors into the system log, its checkpoints to witnesses and to an authority.

Witnesses and the authority are other servers and may not answer: requests are repeated, and meanwhile nothing newer
than what the quorum has cosigned is published (`ledger.anchoring.published`). Neither holds up the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Final

import httpx

from gateway.errors import UnavailableError
from lakeproof.anchor_settings import load_authority, load_policy
from lakeproof.services import Services, now
from lakeproof.serving.problems import ProblemLog
from ledger.anchoring.anchor_log import Anchored, anchor_logs
from ledger.anchoring.anchors import stamped_note
from ledger.anchoring.published import (
    read_cosigned_note,
    read_newest_signed,
    read_newest_stamp,
    store_cosignatures,
    store_stamp,
)
from ledger.anchoring.stamping import NONCE_SIZE_BYTES, Authority, request_stamp
from ledger.anchoring.witness_health import WitnessAnswer, WitnessState, store_answers
from ledger.errors import BrokenError, LedgerError
from ledger.format.checkpoint import Checkpoint
from ledger.format.merkle import prove_consistency
from ledger.format.note import VerifierKey
from ledger.format.witness_policy import WitnessPolicy
from ledger.signing.key_directory import KeyDirectory
from ledger.store.stored_tree import compute_on_subtrees
from ledger.witness.client import QuorumNotMetError, WitnessResponse, cosign

WITNESS_INTERVAL_S: Final = 5.0
"""How often the newest checkpoint is read; no second request goes to witnesses that have cosigned it."""
WITNESS_TIMEOUT_S: Final = 10.0
STAMP_RETRY_S: Final = 60.0
STAMP_TIMEOUT_S: Final = 20.0

_log = logging.getLogger(__name__)


class AnchoringTasks:
    """
    The tasks that anchor the system log. `policy` and `authority` are None where none is configured.

    A process runs one round of each at a time; several processes may run them at the same time.
    """

    def __init__(
        self,
        services: Services,
        *,
        policy: WitnessPolicy | None,
        authority: Authority | None,
        client: httpx.AsyncClient,
    ) -> None:
        self._services = services
        self._settings = services.installation.settings
        self._roles = services.installation.roles
        self._policy = policy
        self._authority = authority
        self._client = client
        # Owned by the task of `cosign_due`: the size each witness cosigned last, and the size that has its quorum.
        self._witness_sizes: Mapping[str, int] = {}
        self._cosigned_size = 0
        self._problems = ProblemLog(_log)

    async def run(self, stop: asyncio.Event) -> None:
        """
        Anchor, request cosignatures and request stamps, each at its interval, until `stop` is set.

        Raises:
            ExceptionGroup: of a BrokenError, if an anchor in the system log is not as it must be.
        """
        interval_s = self._settings.time_stamp_interval_s
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep(stop, self.anchor_due, interval_s=self._settings.anchor_interval_s))
            if self._policy is not None:
                tasks.create_task(_keep(stop, self.cosign_due, interval_s=WITNESS_INTERVAL_S))
            if self._authority is not None:
                tasks.create_task(_keep(stop, self.stamp_due, interval_s=min(interval_s, STAMP_RETRY_S)))

    async def anchor_due(self) -> Anchored | None:
        """
        Anchor what was signed since the last round; None if the database cannot be reached or written now.

        Raises:
            BrokenError: if an anchor in the system log is not as it must be.
        """
        services = self._services
        try:
            async with services.gateway.database.as_role(self._roles.auditor) as connection:
                anchored = await anchor_logs(
                    connection, services.system, services.gateway.append, open_note=self._keys().open, clock=now
                )
        except BrokenError:
            raise
        except (LedgerError, UnavailableError) as error:
            self._problems.report("anchors", str(error))
            return None
        self._problems.report("anchors", "; ".join(f"{origin}: {error}" for origin, error in anchored.refused.items()))
        return anchored

    async def cosign_due(self) -> bool:
        """
        Have witnesses cosign the newest checkpoint of the system log; True if the quorum has done so by now.
        """
        policy = self._policy
        if policy is None:
            return False
        try:
            keys = self._keys().verifier_keys(self._services.system.origin)
            newest = await self._newest(keys)
            if newest is None or newest[0].size == self._cosigned_size:
                return newest is not None
            return await self._cosign(policy, keys, *newest)
        except (LedgerError, UnavailableError) as error:
            self._problems.report("witnesses", str(error))
            return False

    async def stamp_due(self) -> bool:
        """
        Have the newest checkpoint of the system log stamped if the last stamp is old enough; True if it was.
        """
        if self._authority is None:
            return False
        system = self._services.system
        try:
            newest = await self._newest(self._keys().verifier_keys(system.origin))
            async with self._services.gateway.database.as_role(self._roles.auditor) as connection:
                last = await read_newest_stamp(connection, system.log_id)
            if newest is None or (last is not None and not self._is_due(newest[0], last.size, now() - last.gen_time)):
                return False
            checkpoint, note = newest
            token, stamp = await request_stamp(
                self._client,
                self._authority,
                stamped_note(note),
                random=self._services.gateway.random(NONCE_SIZE_BYTES),
                now=now(),
                timeout_s=STAMP_TIMEOUT_S,
            )
            async with self._services.gateway.database.as_role(self._roles.signer) as connection:
                await store_stamp(connection, system.log_id, size=checkpoint.size, token=token, stamp=stamp)
        except (LedgerError, UnavailableError) as error:
            self._problems.report("time stamps", str(error))
            return False
        self._problems.report("time stamps", "")
        return True

    async def _cosign(
        self, policy: WitnessPolicy, keys: Sequence[VerifierKey], checkpoint: Checkpoint, note: bytes
    ) -> bool:
        """Ask the witnesses that have not cosigned the checkpoint yet, and store their cosignatures, enough or not."""
        system = self._services.system
        async with self._services.gateway.database.as_role(self._roles.auditor) as connection:
            note = await read_cosigned_note(connection, system, size=checkpoint.size, note=note)
        try:
            cosigned = await cosign(
                note,
                policy,
                prove=self._prove,
                client=self._client,
                timeout_s=WITNESS_TIMEOUT_S,
                known_sizes=self._witness_sizes,
                logs=keys,
            )
            met, note, self._witness_sizes, answers = True, cosigned.note, cosigned.sizes, cosigned.answers
            self._problems.report("witnesses", "")
        except QuorumNotMetError as error:
            met, note, self._witness_sizes, answers = False, error.note, error.sizes, error.answers
            self._problems.report("witnesses", str(error))
        async with self._services.gateway.database.as_role(self._roles.signer) as connection:
            await store_cosignatures(connection, system.log_id, size=checkpoint.size, note=note, policy=policy)
            told = [each for answer in answers for each in _answers_of(answer)]
            await store_answers(connection, system.log_id, told, size=checkpoint.size, asked_at=now())
        if met:
            self._cosigned_size = checkpoint.size
        return met

    async def _prove(self, from_size: int, to_size: int) -> list[bytes]:
        """Return the consistency proof between two sizes of the system log."""
        async with self._services.gateway.database.as_role(self._roles.auditor) as connection:
            return await compute_on_subtrees(
                connection,
                self._services.system.log_id,
                to_size,
                lambda read: prove_consistency(size1=from_size, size2=to_size, read=read),
            )

    async def _newest(self, keys: Sequence[VerifierKey]) -> tuple[Checkpoint, bytes] | None:
        async with self._services.gateway.database.as_role(self._roles.auditor) as connection:
            return await read_newest_signed(connection, self._services.system, keys=keys)

    def _is_due(self, newest: Checkpoint, stamped_size: int, age: timedelta) -> bool:
        return newest.size > stamped_size and age >= timedelta(seconds=self._settings.time_stamp_interval_s)

    def _keys(self) -> KeyDirectory:
        """Return the signer's keys as they are now: they may have been rotated."""
        return self._services.installation.open_keys()


@asynccontextmanager
async def open_anchoring(services: Services) -> AsyncIterator[AnchoringTasks]:
    """
    Yield the tasks as the settings want them.

    Raises:
        SettingsError: if the witness policy or the authority's roots cannot be used.
    """
    settings = services.installation.settings
    policy, authority = load_policy(settings), load_authority(settings)
    async with httpx.AsyncClient(timeout=max(WITNESS_TIMEOUT_S, STAMP_TIMEOUT_S)) as client:
        yield AnchoringTasks(services, policy=policy, authority=authority, client=client)


def _answers_of(response: WitnessResponse) -> Iterator[WitnessAnswer]:
    """Yield what each of the witnesses at one URL has answered."""
    for witness in response.witnesses:
        if witness in response.cosigned:
            state = WitnessState.COSIGNED
        elif not response.url:
            state = WitnessState.NOT_ASKED
        else:
            state = WitnessState.AWAY if response.size is None else WitnessState.REFUSED
        yield WitnessAnswer(witness=witness, state=state, message=response.message)


async def _keep(stop: asyncio.Event, work: Callable[[], Awaitable[object]], *, interval_s: float) -> None:
    """Do `work` every `interval_s` seconds until `stop` is set, and then no more; what it raises ends this, too."""
    while not stop.is_set():
        await work()
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), timeout=interval_s)
