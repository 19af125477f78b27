# SPDX-License-Identifier: Apache-2.0
"""
The process that policy workers of tests are forked from: `python -m testkit.servers.worker_forks`; stdin is a socket.

It has loaded what a worker needs and made the parser, which together take most of a worker's start. For each message it
forks a process that serves as the real command would (`gateway.policy.worker.main`), on the pipes that came with the
message, and writes two lines to the third one: the process id, and later the exit status. `forked_workers.py` asks it.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import traceback
from contextlib import suppress
from typing import Final, NoReturn

from gateway.policy import worker
from projections.cel_grammar import open_parser

MESSAGE_BYTES_MAX: Final = 64


def main() -> None:
    """Fork workers until whoever started us is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests' process: we end when it does
    open_parser()
    gc.freeze()
    control = socket.socket(fileno=0)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                poll.unregister(ready)
                _reap(ready, *running.pop(ready))
                continue
            message, pipes, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 4)
            if not message:
                return
            requests, answers, status, progress = pipes
            if not (pid := os.fork()):
                _serve(message.decode(), requests, answers, progress)
            for file in (requests, answers, progress):
                os.close(file)
            _tell(status, pid)
            process = os.pidfd_open(pid)
            poll.register(process, select.POLLIN)
            running[process] = pid, status


def _serve(judging_bytes_max: str, requests: int, answers: int, progress: int) -> NoReturn:
    """Be a worker."""
    progress = os.dup(progress)  # whatever its number is, it is not replaced by the next ones
    os.dup2(requests, 0)
    os.dup2(answers, 1)
    os.closerange(3, progress)
    os.closerange(progress + 1, os.sysconf("SC_OPEN_MAX"))
    status = 0
    try:
        worker.main([judging_bytes_max, str(progress)])
    except BaseException:  # noqa: BLE001 - whatever would end a Python of its own
        traceback.print_exc()
        status = 1
    os._exit(status)


def _reap(process: int, pid: int, status: int) -> None:
    _, ended = os.waitpid(pid, 0)
    os.close(process)
    _tell(status, os.waitstatus_to_exitcode(ended))
    os.close(status)


def _tell(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # who asked for the worker has been killed; others go on asking
        os.write(status, b"%d\n" % number)


if __name__ == "__main__":
    main()
