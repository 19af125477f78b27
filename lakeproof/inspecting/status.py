# SPDX-License-Identifier: Apache-2.0
"""
What runs on an installation and how it is, in one look: processes, gateway, database, logs, disks.

Guarantee: it changes nothing and starts nothing, and whatever of it cannot be found out is a problem with a sentence,
never an error that hides the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import psycopg

from gateway.errors import GatewayError
from lakeproof.errors import LakeproofError, SettingsError
from lakeproof.inspecting.database import FoundDatabase, NotThereError, find_database, find_owner
from lakeproof.inspecting.disks import FREE_BYTES_MIN, Disk, find_disks
from lakeproof.inspecting.processes import DEMO, Readiness, Up, ask_readiness, find_ups
from lakeproof.log_status import Follower, FoundLog, read_found_logs
from lakeproof.serving.processes import process_names
from lakeproof.settings import Settings
from lakeproof.tls_settings import gateway_trust
from ledger.errors import LedgerError
from projections.errors import ProjectionError
from spark_detect.status import Waiting, read_status

BEHIND_S_MAX: Final = 60.0
"""What follows the log and misses an entry for longer is not well; it is usually less than a second behind."""
NOTHING_RUNS: Final = "nothing runs on {home}: start `lakeproof up`"
_FAILED: Final = (LakeproofError, LedgerError, GatewayError, ProjectionError, psycopg.Error, OSError)


@dataclass(slots=True, kw_only=True)
class Status:
    """
    What was found of the installation of `home`. What could not be found is missing, and `problems` say why.

    `readiness` has each gateway's answer by its URL, None if it gave none; `database_where` is where the database is.
    """

    home: str
    ups: Sequence[Up] = ()
    readiness: dict[str, Readiness | None] = field(default_factory=dict)
    database: FoundDatabase | None = None
    database_where: str = ""
    logs: Sequence[FoundLog] = ()
    disks: Sequence[Disk] = ()
    problems: list[str] = field(default_factory=list)


def read_installation_status(settings: Settings, *, now: datetime) -> Status:
    """
    Return what runs and how it is; `now` is the time to which ages are counted.
    """
    status = Status(home=str(settings.home))
    _look_at_processes(status, settings)
    _look_at_database(status, settings, now=now)
    try:
        status.disks = find_disks(settings)
    except OSError as error:
        status.problems.append(f"the free space cannot be found ({error})")
    status.problems += [
        f"expected at least {FREE_BYTES_MIN // 1024**3} GiB of free space, found that {disk.free_text}: free some"
        for disk in status.disks
        if disk.free_bytes < FREE_BYTES_MIN
    ]
    return status


def _look_at_processes(status: Status, settings: Settings) -> None:
    try:
        status.ups = find_ups(settings.home)
    except OSError as error:
        status.problems.append(f"the processes cannot be found ({error}): run this as the owner of {settings.home}")
        return
    if not status.ups:
        status.problems.append(NOTHING_RUNS.format(home=settings.home))
        return
    names = {name.partition("-")[0] for up in status.ups for name in up.names}
    missing = _duties(settings) - names
    if missing and DEMO not in names:
        status.problems.append(f"no process has the duty {', '.join(sorted(missing))}: see what `lakeproof up` says")
    for up in status.ups:
        if up.url is not None:
            _look_at_gateway(status, up.url, settings)


def _duties(settings: Settings) -> set[str]:
    return {name.partition("-")[0] for name in process_names(settings)}


def _look_at_gateway(status: Status, url: str, settings: Settings) -> None:
    try:
        status.readiness[url] = found = ask_readiness(url, gateway_trust(settings))
    except SettingsError as error:
        status.readiness[url] = None
        status.problems.append(f"the gateway at {url} cannot be asked: {error}")
        return
    except OSError as error:
        status.readiness[url] = None
        status.problems.append(f"the gateway at {url} does not answer ({error}): see what `lakeproof up` says")
        return
    status.problems += [f"the gateway at {url} is not ready: {reason}" for reason in found.reasons]


def _look_at_database(status: Status, settings: Settings, *, now: datetime) -> None:
    try:
        status.database_where = find_owner(settings).where
        status.database = found = find_database(settings)
        if found.pending:
            status.problems.append(
                f"the schema is not up to date, {len(found.pending)} migrations have not run "
                f"({', '.join(found.pending[:3])}, …): start `lakeproof up` anew, which runs them"
            )
            return
        status.logs = asyncio.run(_read_logs(found, now=now))
    except NotThereError as error:
        status.problems.append(str(error))
    except _FAILED as error:
        status.problems.append(_said(error))
    for log in status.logs:
        status.problems += _of_log(log)


async def _read_logs(found: FoundDatabase, *, now: datetime) -> list[FoundLog]:
    installation = found.installation
    detected = await asyncio.to_thread(read_status, installation.as_role(installation.roles.detector))
    waiting = {each.log.log_id: Waiting(entries=each.waiting, put_off=each.put_off) for each in detected}
    async with installation.connect(installation.roles.auditor) as auditor:
        return await read_found_logs(auditor, installation, waiting, now=now)


def _of_log(log: FoundLog) -> list[str]:
    problems = []
    if not log.takes_entries:
        problems.append(
            f"log {log.name} takes no entries, since the signer has not confirmed it: see what `lakeproof up` says"
        )
    if log.not_judged:
        problems.append(f"log {log.name}: {log.not_judged}")
    if log.checkpoint_size > log.size:
        problems.append(
            f"log {log.name} has {log.size:,} entries and a checkpoint of {log.checkpoint_size:,}: entries are "
            "missing; run `lakeproof ledger verify`"
        )
    problems += _of_followers(log, [log.checkpoint], "the signer", "see what `lakeproof up` says")
    problems += _of_followers(log, log.projections, "the projection", "`lakeproof projections status` has more")
    problems += _of_followers(log, log.streams, "the stream", "`lakeproof streams status` has more")
    if log.put_off:
        problems.append(
            f"log {log.name}: detection has put off {log.put_off} ranges, whose storage does not answer: "
            "`lakeproof detect status` has more"
        )
    return problems


def _of_followers(log: FoundLog, followers: Sequence[Follower], what: str, advice: str) -> list[str]:
    problems = []
    for each in followers:
        named = what if each.name == "signer" else f"{what} {each.name}"
        if each.trouble:
            problems.append(f"log {log.name}: {named}: {each.trouble}: {advice}")
        elif each.behind_s > BEHIND_S_MAX:
            problems.append(
                f"log {log.name}: {named} is {each.lag_entries:,} entries and {each.behind_s:,.0f} s behind: {advice}"
            )
    return problems


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
