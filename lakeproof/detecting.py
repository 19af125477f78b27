# SPDX-License-Identifier: Apache-2.0
"""
Detection in this installation: what its process is given, how it is kept running, how a scan is requested.

`keep_detecting` runs it next to the gateway in `lakeproof up`, `detect_until_signal` alone in `lakeproof detect run`.
Several may run at once: one works, the others wait for its turn to end.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.errors import NotFoundError
from lakeproof.ending import stop_on_signals
from lakeproof.extras import missing_of
from lakeproof.installation import Installation
from lakeproof.messages import Say
from lakeproof.services import Services, new_group_id, now, open_services, storage_properties
from lakeproof.settings import Settings
from lakeproof.tenants import find_tenant
from ledger.format.event import SYSTEM_ACTOR
from ledger.format.events import CommitDecision, ScanRequested, prepare_event
from ledger.format.sequence import Appended, Group, Stale
from projections.relational.commits import read_commits
from projections.relational.table_names import read_live_names
from spark_detect.classify import RULESET
from spark_detect.driver.java import find_java
from spark_detect.driver.supervise import DetectionState, supervise
from spark_detect.errors import DetectionError, JavaError, PackageMissingError
from spark_detect.job_folder import Driver, JobFolder, Lake

FOLDER: Final = "detect"
LOG: Final = Path("log") / "detect.log"

_SNAPSHOT = re.compile(r"[0-9]{1,19}")


async def keep_detecting(services: Services, stop: asyncio.Event, say: Say, condition: DetectionState) -> None:
    """
    Run detection until `stop` is set. Without Spark, or a Java that it runs on, say so and return: other parts keep on.

    Raises:
        DetectionError: if the home cannot be written.
    """
    log = services.installation.settings.home / LOG
    try:
        find_spark(services.installation.settings)
        with open_job_folder(services.installation) as job:
            await supervise(job, log=log, stop=stop, say=say, condition=condition)
    except (PackageMissingError, JavaError) as error:
        condition.absent = str(error)
        say(f"detection does not run: {error}")


def find_spark(settings: Settings) -> Path:
    """
    Check that Spark is installed, and return the home of the Java that it runs on; nothing is started or written.

    Raises:
        PackageMissingError: if Spark or numba is not installed.
        JavaError: if there is no Java that it runs on.
    """
    if (advice := missing_of("detect") or missing_of("kernel")) is not None:
        raise PackageMissingError(advice)
    return find_java(settings.java_home, os.environ)


async def detect_until_signal(installation: Installation, say: Say) -> None:
    """
    Run detection until SIGINT or SIGTERM.

    Raises:
        JavaError: if there is no Java that Spark runs on.
        DetectionError: if the home cannot be written.
    """
    stop = asyncio.Event()
    with stop_on_signals(stop), open_job_folder(installation) as job:
        await supervise(job, log=installation.settings.home / LOG, stop=stop, say=say)


async def request_scan(installation: Installation, tenant: str, table: str, snapshot: str | None) -> int:
    """
    Append a request to scan a table, or one snapshot of it; return the index of the entry.

    Raises:
        NotFoundError: if there is no such tenant, or the log knows no table of that key.
        DetectionError: if `snapshot` is no snapshot's id.
        LedgerError: if it cannot be appended.
    """
    if snapshot is not None and not _SNAPSHOT.fullmatch(snapshot):
        raise DetectionError(f"expected the id of a snapshot, a decimal number, found {snapshot!r:.40}")
    async with open_services(installation) as services:
        owner, log_id = await find_tenant(services, tenant)
        reader = installation.roles.tenant(owner)
        async with services.gateway.database.as_role(reader) as connection:
            names = await read_live_names(connection, log_id, keys=[table])
            commits = await read_commits(connection, key=table, decision=CommitDecision.APPROVED)
        known = [*(name.table_uuid for name in names), *(commit.table_uuid for commit in commits)]
        table_uuid = next((each for each in known if each is not None), None)
        if table_uuid is None:
            raise NotFoundError(f"no entry names a table {table!r:.200}", kind="NoSuchTableException")
        event = prepare_event(
            ScanRequested(ruleset=RULESET, snapshot=snapshot, table_uuid=table_uuid),
            key=table,
            actor=SYSTEM_ACTOR,
            occurred_at=now(),
        )
        group = Group(id=new_group_id(), then=(event,))
        match await services.gateway.append(log_id, group):
            case Appended(indices=indices):
                return indices.start
            case Stale():
                raise AssertionError("a group without as_of is never stale")


@contextmanager
def open_job_folder(installation: Installation) -> Iterator[JobFolder]:
    """
    Yield a folder with the files of a job of this process, which is removed afterwards.

    Raises:
        JavaError: if there is no Java that Spark runs on.
        DetectionError: if the home cannot be written.
    """
    settings = installation.settings
    java_home = find_java(settings.java_home, os.environ)
    jobs = settings.home / FOLDER
    _remove_abandoned(jobs)
    job = JobFolder(jobs / str(os.getpid()))
    driver = Driver(
        detector_dsn=installation.as_role(installation.roles.detector),
        appender_dsn=installation.as_role(installation.roles.appender),
        batch_bytes_max=settings.detect_batch_max_bytes,
        master=settings.spark_master,
        java_home=str(java_home),
    )
    lake = Lake(
        warehouse=settings.warehouse,
        properties=storage_properties(settings),
        secrets=str(installation.secrets.directory),
        upstreams_allowed=settings.upstreams_allowed.text,
    )
    try:
        job.write(driver, lake)
        yield job
    finally:
        shutil.rmtree(job.folder, ignore_errors=True)


def _remove_abandoned(jobs: Path) -> None:
    """Remove the folders of processes that are gone without having done so."""
    for folder in jobs.glob("[0-9]*"):
        if not Path("/proc", folder.name).exists() and Path("/proc").exists():
            shutil.rmtree(folder, ignore_errors=True)
