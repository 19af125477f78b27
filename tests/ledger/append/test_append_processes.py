# SPDX-License-Identifier: Apache-2.0
"""
Two processes take turns on one log, across the places where a tile, and a tile of tiles, becomes complete; a third one
comes when all is there, and must read what it has not seen.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg

from lakeproof.provision import Provisioned
from testkit.environment import PROJECT
from testkit.ledger.appending import appender_dsn, new_log, verify

PROCESSES = 2
SIZES = (200, 255, 256, 257, 557, 811, 812, 20_000, 40_000, 65_400, 65_500, 65_535, 65_536, 65_537, 65_837)
SIZES_AFTER = (66_437, 66_737)
"""Where the log stands after each turn: before, at and behind 256 and 65,536 entries."""
TIMEOUT_S = 60


@contextmanager
def worker(dsn: str, log_id: int) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "testkit.ledger.alternating_worker", json.dumps({"dsn": dsn, "log_id": log_id})]
    with subprocess.Popen(program, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


def take_turn(process: subprocess.Popen[str], *, before: int, after: int) -> None:
    """Let the process append until the log is of the size `after`."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{after - before}\n")
    process.stdin.flush()
    assert process.stdout.readline() == f"{after}\n"


async def test_two_processes_that_take_turns_complete_each_other_s_tiles(
    database: str, installation: Provisioned
) -> None:
    log_id = new_log(database, installation)
    dsn = appender_dsn(installation)
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(dsn, log_id)) for _ in range(PROCESSES)]
        before = 0
        for turn, size in enumerate(SIZES):
            take_turn(workers[turn % PROCESSES], before=before, after=size)
            before = size
        late = stack.enter_context(worker(dsn, log_id))
        for process, size in zip((late, workers[0]), SIZES_AFTER, strict=True):
            take_turn(process, before=before, after=size)
            before = size
    assert (await verify(installation, log_id)).size == SIZES_AFTER[-1]
    with psycopg.connect(database) as owner:
        tiles = owner.execute("SELECT level, count(*) FROM ledger.tiles WHERE log_id = %s GROUP BY 1", (log_id,))
        assert dict(tiles.fetchall()) == {0: SIZES_AFTER[-1] // 256, 1: 1}
