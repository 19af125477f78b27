# SPDX-License-Identifier: Apache-2.0
"""
The duty of the signer: confirm every log, then sign, anchor, publish and erase.

A server that has just started accepts no entries before the signer has confirmed the logs. So this duty begins before
the others, and is ready when the logs are confirmed and the system log has what this start has changed.
"""

from __future__ import annotations

import asyncio

from lakeproof.erasing import erase_again, keep_erasing
from lakeproof.messages import Say
from lakeproof.services import Services
from lakeproof.serving.anchoring import open_anchoring
from lakeproof.serving.duties.duty import Ready
from lakeproof.serving.publishing import open_publisher
from lakeproof.serving.system_log import record_in_system_log
from lakeproof.signing import open_signer
from ledger.signing.signer import CheckpointSigner


async def sign(services: Services, stop: asyncio.Event, say: Say, ready: Ready) -> None:
    """
    Confirm the logs; then sign what grows, anchor and publish checkpoints, and finish erasures that were interrupted.

    Raises:
        ServerError, KeyDirectoryError, KeyUnavailableError: if the signer's key cannot be used.
        SettingsError: if the witness policy, the roots of the time-stamping authority or a place to publish to cannot
            be used.
        LedgerError: if a log is corrupt, or accepts no entries.
    """
    signer = await _confirm(services, say)
    interval_s = services.installation.settings.checkpoint_interval_s
    async with open_anchoring(services) as anchoring, asyncio.TaskGroup() as tasks:
        tasks.create_task(signer.run(stop, interval_s=interval_s), name="signer")
        tasks.create_task(keep_erasing(services, stop), name="erasures")
        tasks.create_task(anchoring.run(stop), name="anchoring")
        tasks.create_task(open_publisher(services).run(stop), name="publishing")
        ready()


async def _confirm(services: Services, say: Say) -> CheckpointSigner:
    """Sign once, repeat erasures, record in the system log what is not there yet; return the signer."""
    signer = await open_signer(services.installation)
    await signer.sign_once()  # first: the appender accepts nothing before the logs are confirmed
    again = await erase_again(services)
    if again.erasures:
        say(f"{again.erasures} erasures were repeated: this database did not have them")
    for origin, error in {**again.failed, **signer.unconfirmed}.items():
        effect = "accepts no entries until they are" if origin in signer.unconfirmed else "accepts entries all the same"
        say(f"erasures of {origin} could not be repeated, and the log {effect}: {error}")
    await record_in_system_log(services, signer.keys)
    return signer
