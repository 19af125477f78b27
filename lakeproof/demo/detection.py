# SPDX-License-Identifier: Apache-2.0
"""
The act of detection: Spark scans what was committed, on disk and on S3, and each finding raises one alert.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Final

from lakeproof.demo import engine, foreign_catalog, personal_data
from lakeproof.demo.engine import Client
from lakeproof.demo.scene_run import SceneRun
from ledger.format.entry import Entry
from ledger.format.event import format_key

CONTACTS: Final = ("sales", "contacts")
LOOK_ALIKES: Final = ("order_number", "part_number")
LOCAL_ROWS: Final = 10_000
SURE_PERCENT: Final = 92


async def detection_finds(run: SceneRun) -> None:
    """Let Spark find what is personal, and nothing else, in a table on S3 and in one on disk."""
    remote = format_key("table", (foreign_catalog.ALIAS, *foreign_catalog.CUSTOMERS))
    local = format_key("table", (engine.ALIAS, *CONTACTS))
    await _scanned(run, remote, 3)
    first = await run.head()
    await asyncio.to_thread(_write_contacts, run.client())
    await _scanned(run, local, 1)
    entries = await run.entries()
    for key in (remote, local):
        if (sure := _sure(entries, key)) != personal_data.PERSONAL:
            raise AssertionError(f"expected {personal_data.PERSONAL} at 92 percent in {key}, found {sure}")
    scans = Counter(entry.key for entry in entries if entry.type == "scan.completed")
    run.say(f"   scanned {scans[remote]} snapshots of {remote} on S3, {scans[local]} of {local} on disk")
    for column, kind in sorted(_sure(entries, local).items()):
        run.say(f"     {column}: {kind}, 92 percent")
    run.say(f"   nothing else is at 92 percent, {' and '.join(LOOK_ALIKES)} neither")
    committed = next(e for e in entries if e.type == "commit.settled" and e.key == local and e.index >= first)
    found = next(e for e in entries if e.type == "detection.found" and e.key == local)
    waited_ms = (found.recorded_at - committed.recorded_at).total_seconds() * 1_000
    run.say(f"   from the commit of {LOCAL_ROWS:,} rows to its findings: {waited_ms:,.0f} ms")
    await _alerts_delivered(run)


def _write_contacts(client: Client) -> None:
    rows = personal_data.person_rows(0, LOCAL_ROWS)
    with client.catalog().create_table_transaction(CONTACTS, schema=rows.schema) as staged:
        staged.append(rows)


def _sure(entries: list[Entry], key: str) -> Mapping[str, str]:
    """Return the columns of a table that detection reports at 92 percent, and the kind of each."""
    return {
        str(entry.data["column"]): str(entry.data["kind"])
        for entry in entries
        if entry.type == "detection.found" and entry.key == key and entry.data["confidence_percent"] == SURE_PERCENT
    }


async def _scanned(run: SceneRun, key: str, count: int) -> None:
    """
    Wait until `count` snapshots of a table were scanned.

    Raises:
        AssertionError: if a scan failed, or detection cannot scan them; names the root cause.
    """
    done = 0

    async def poll() -> bool | None:
        nonlocal done
        entries = [entry for entry in await run.entries() if entry.key == key]
        if failed := [entry.data for entry in entries if entry.type == "scan.failed"]:
            raise AssertionError(f"expected {key} to be scanned, found {failed[0]}")
        done = sum(1 for entry in entries if entry.type == "scan.completed")
        return True if done >= count else None

    async def expected() -> str:
        return f"expected {count} scans of {key}, found {done}"

    await run.until(poll, expected=expected, scanned=True)


async def _alerts_delivered(run: SceneRun) -> None:
    """Wait until every alert was delivered, each once."""
    expected = 2 * len(personal_data.PERSONAL)
    raised: list[Entry] = []

    async def poll() -> bool | None:
        nonlocal raised
        entries = await run.entries()
        raised = [entry for entry in entries if entry.type == "alert.raised"]
        delivered = [entry for entry in entries if entry.type == "alert.delivered"]
        return True if len(delivered) == len(raised) >= expected else None

    async def missing() -> str:
        return f"expected {expected} alerts raised and delivered, found {len(raised)}; {await run.streams_progress()}"

    await run.until(poll, expected=missing)
    if len(raised) != expected or len(run.channel.messages) != expected:
        raise AssertionError(
            f"expected {expected} alerts raised and delivered once, found {len(raised)} and {len(run.channel.messages)}"
        )
    run.say(f"   {len(raised)} alerts were raised and sent once each, such as: {run.channel.messages[-1]['text']}")
