# SPDX-License-Identifier: Apache-2.0
"""
Three processes append to a few logs while they are killed, stopped, rolled back and cut off, for eight seconds,
or for as long as a busy machine takes until every kind of trouble has been made and enough answers were given.

Afterwards every answer that anyone was given is true, the logs verify, the guarded rows are those that they tell, and a
reader that has followed each log has missed nothing and seen nothing twice. `bench/writers.py` does it at length.
What matters is that much happens, not what.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned
from ledger.format.entry import parse_entry
from testkit.ledger.appending import appender_dsn, new_log, read_log, verify
from testkit.ledger.cutting_proxy import CuttingProxy
from testkit.ledger.guard_replay import AGGREGATES
from testkit.ledger.stress import Workers, check_answers, count_answers, make_trouble, until_nothing_is_under_way
from testkit.ledger.tailing import Tail

_log = logging.getLogger(__name__)

SECONDS = 8
PROCESSES = 3
LOGS = 2
ENOUGH = {"in": 51, "not in": 1}
"""Answers that the workers are to be given at least."""


def is_enough(done: Counter[str], reports: Path) -> bool:
    """Return whether every kind of trouble was made, and enough was answered meanwhile."""
    return min(done.values()) > 0 and count_answers(reports) >= Counter(ENOUGH)


async def test_every_answer_is_true_whatever_was_killed_or_cut(
    database: str,
    installation: Provisioned,
    postgres_server: EmbeddedServer,
    short_directory: Callable[[], AbstractContextManager[Path]],
    tmp_path: Path,
) -> None:
    logs = [new_log(database, installation) for _ in range(LOGS)]
    seed = int.from_bytes(os.urandom(4), "big")
    _log.warning("seed %d", seed)
    with short_directory() as directory:
        async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
            dsn = appender_dsn(installation, host=str(directory))
            workers = Workers(dsn, logs, tmp_path, random.Random(seed))  # noqa: S311 - to be repeatable
            tails = [Tail(appender_dsn(installation), log_id) for log_id in logs]
            ended = asyncio.Event()
            reading = [asyncio.create_task(tail.follow(ended)) for tail in tails]
            try:
                for _ in range(PROCESSES):
                    await workers.start()
                done = await make_trouble(
                    workers, proxy, database, SECONDS, is_enough=lambda done: is_enough(done, tmp_path)
                )
                await workers.stop()
                await until_nothing_is_under_way(database)
            finally:
                await workers.kill_all()
                ended.set()
            entries = [await read_log(database, log_id) for log_id in logs]
            await asyncio.gather(*reading)
    told = check_answers(entries, logs, tmp_path)
    for tail, held in zip(tails, entries, strict=True):
        assert [parse_entry(entry) for entry in tail.seen] == held
    _log.warning("trouble %s, answers %s", dict(done), dict(told))
    for log_id in logs:
        await verify(installation, log_id)
        assert AGGREGATES.live(database, log_id) == AGGREGATES.replayed(await read_log(database, log_id))
    assert min(done.values()) > 0
    assert told >= Counter(ENOUGH)
