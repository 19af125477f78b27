# SPDX-License-Identifier: Apache-2.0
"""
A process of `lakeproof up` from the inside: it runs duties on services of its own until it is told to end.

SIGTERM tells it so; so does the end of its supervisor, and then it has a limited time. What ends it by itself is told
to the supervisor as one sentence.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from gateway.commit.large_requests import SWITCH_INTERVAL_S
from gateway.files.file_process import FileProcess
from gateway.http.request_context import log_fields
from lakeproof import console
from lakeproof.crash import CrashFile
from lakeproof.errors import LakeproofError, first_of_group
from lakeproof.explaining import NOT_INSTALLED, explain
from lakeproof.installation import Installation
from lakeproof.messages import Say
from lakeproof.services import open_services
from lakeproof.serving.duties.duty import Duty, run_duties, watched
from lakeproof.serving.event_loop import new_event_loop
from lakeproof.serving.garbage_collection import freeze_started
from lakeproof.serving.supervisor import STOP_TIMEOUT_S, Line, Reason
from lakeproof.setting_kinds import LogFormat
from lakeproof.tls_settings import load_clients
from lakeproof.token_settings import load_issuers
from ledger.errors import BrokenError, BusyKeyDirectoryError, FormatError, KeyDirectoryError
from ledger.format.sealing import SubjectKeysError

CORRUPT: Final = (BrokenError, FormatError)
REFUSED: Final = (LakeproofError, KeyDirectoryError, SubjectKeysError)


def work(installation: Installation, duties: Sequence[Duty], say: Say, name: str, line: Line) -> int:
    """
    Run `duties` on services of this process, called `name`, until it is told to end; return its exit code.
    """
    settings = installation.settings
    crash_file = CrashFile(lambda: settings.home, began=datetime.now(UTC), pid=os.getpid())
    console.log_to_stderr(crash_file)
    console.log_from(settings.log_level)
    if settings.log_format is LogFormat.JSON:
        console.log_as_json(process=name, context=log_fields)
        say = console.say_as(settings.log_format, process=name)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_work(installation, duties, say, line))
    except Exception as error:  # noqa: BLE001 - the top of the process
        explained = explain(error, crash_file)
        line.ended(_reason(first_of_group(error), explained.code), explained.text)
        return explained.code
    return 0


async def _work(installation: Installation, duties: Sequence[Duty], say: Say, line: Line) -> None:
    loop, stop, is_open = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    opening = asyncio.current_task()

    def end() -> None:
        stop.set()
        if not is_open.is_set() and opening is not None:
            opening.cancel()  # a database that does not answer must not hold up the end

    def end_alone() -> None:
        loop.remove_reader(line.orphaned)
        signal.alarm(int(STOP_TIMEOUT_S))  # nobody else would kill this process
        end()

    def ready() -> None:
        freeze_started()
        line.ready()

    loop.add_signal_handler(signal.SIGTERM, end)
    loop.add_reader(line.orphaned, end_alone)
    try:
        async with (
            FileProcess() as files,  # only gateways write any: others start no process
            open_services(installation, files=files, load_issuers=load_issuers, load_clients=load_clients) as services,
            watched(services),
        ):
            is_open.set()
            await run_duties(duties, services, stop, say, ready)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise


def _reason(error: Exception, code: int) -> Reason:
    if isinstance(error, CORRUPT):
        return Reason.CORRUPT
    is_refused = isinstance(error, REFUSED) and not isinstance(error, BusyKeyDirectoryError)
    return Reason.REFUSED if is_refused or code == NOT_INSTALLED else Reason.FAILED
