# SPDX-License-Identifier: Apache-2.0
"""
A second gateway of the scene's installation, which is killed as soon as a foreign catalog has taken a commit from it.

Run as `python -m lakeproof.demo.killed_gateway`; prints its URL. It dies by SIGKILL between forwarding and settling,
in `gateway/commit/commit_flow.py`: the commit has happened, and its outcome is not recorded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.commit.metrics import Done, Measures, MutationStage
from gateway.mutations import Operation
from lakeproof.demo.helper_process import end_with_input, say_ready
from lakeproof.installation import open_installation
from lakeproof.services import open_services
from lakeproof.serving.in_process import serving
from lakeproof.settings import load_settings


class KillingMeasures(Measures):
    """Measures that end the process once a commit to a table was forwarded."""

    @contextmanager
    def commit(self, operation: Operation) -> Iterator[Done]:
        """Measure one mutation, which may be the last."""
        with super().commit(operation) as done:

            def done_and_die(stage: MutationStage) -> None:
                done(stage)
                if operation is Operation.TABLE_COMMIT and stage is MutationStage.CHANGE:
                    os.kill(os.getpid(), signal.SIGKILL)

            yield done_and_die


async def main() -> None:
    """Serve until the kill, or until standard input ends."""
    settings = load_settings(os.environ, directory=Path.cwd())
    with open_installation(settings, lambda _: None) as installation:
        async with open_services(installation) as services, serving(services, measures=KillingMeasures()) as served:
            end_with_input(served.stop.set)
            say_ready(url=served.url)
            await served.stop.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    asyncio.run(main())
