# SPDX-License-Identifier: Apache-2.0
"""
The child process that reads metadata files: `python -m streams.metadata.reader_process`, started by `reader.py`.

It reads requests from its parent on stdin, each a length of four bytes and a pickled pair (storage, location), and
answers on stdout with a length and JSON. The parent is trusted; what the files contain is not, and nothing but JSON
goes back. A thread reads the pipe and ends the process when the pipe is closed, so that it never outlives its parent,
whatever it waits for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from projections.errors import FileMissingError, ProjectionError, StorageUnavailableError
from projections.lake.storage import Storage
from streams.errors import PoisonError
from streams.metadata.parse import METADATA_SIZE_BYTES_MAX, parse_table_snapshots
from streams.metadata.reader import LENGTH

MEMORY_BYTES_MAX: Final = 1536 * 2**20
"""In addition to what the process takes when it begins: for a file of 64 MiB, unpacked, and its parsed JSON."""

MEMORY_KEPT_BYTES_MAX: Final = 256 * 2**20
"""A process that once took more than this is ended: it would not give all of it back."""


def main() -> None:
    """Answer questions until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us when it is done
    questions, answers = _take_pipes()
    logging.disable(logging.CRITICAL)
    _limit_memory()
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(questions, inbox), daemon=True).start()
    leaves = False
    with contextlib.suppress(BrokenPipeError):  # the parent is gone: `_listen` has noticed, or is about to
        _send(answers, {"leaves": leaves})
        while not leaves:
            storage, location = pickle.loads(inbox.get())  # noqa: S301 - of our parent alone
            answer = _answer(storage, location)
            leaves = _memory_bytes("VmHWM") > MEMORY_KEPT_BYTES_MAX
            _send(answers, {**answer, "leaves": leaves})


def _answer(storage: Storage, location: str) -> dict[str, Any]:
    try:
        data = storage.read_bytes(location, size_bytes_max=METADATA_SIZE_BYTES_MAX)
        table = parse_table_snapshots(data)
    except FileMissingError as error:
        return {"missing": _text(error)}
    except StorageUnavailableError as error:
        return {"unanswered": _text(error)}
    except ProjectionError as error:
        return {"unreadable": _text(error)}
    except PoisonError as error:
        return {"poison": f"{_text(location)}: {_text(error)}"}
    except MemoryError:
        return {"poison": f"{_text(location)}: expected metadata that {MEMORY_BYTES_MAX} bytes of memory can hold"}
    snapshots = [[snapshot.id, snapshot.parent, snapshot.operation] for snapshot in table.snapshots]
    return {"table_uuid": table.table_uuid, "snapshots": snapshots}


def _text(value: object) -> str:
    """Return `value` as JSON can carry it: what a server says need not be text."""
    return str(value).encode("utf-8", "replace").decode()


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take stdin and stdout for ourselves; from here on a print goes to stderr and a read finds nothing."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return questions, answers


def _limit_memory() -> None:
    """
    Bound the address space to what it is now and `MEMORY_BYTES_MAX` more; leave no core file.

    On Linux only: elsewhere the kernel takes the limit and does not hold it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        limit = _memory_bytes("VmSize") + MEMORY_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _memory_bytes(name: str) -> int:
    """Return what the kernel says of our memory, 0 where it does not; rusage would tell of our parent's as well."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if sys.platform == "linux" else ()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _listen(questions: BinaryIO, inbox: queue.SimpleQueue[bytes]) -> None:
    try:
        while header := questions.read(LENGTH.size):
            (length,) = LENGTH.unpack(header)
            inbox.put(questions.read(length))
    finally:
        os._exit(0)  # the parent has closed the pipe or is no more, and nobody waits for an answer


def _send(answers: BinaryIO, value: dict[str, Any]) -> None:
    data = orjson.dumps(value)
    answers.write(LENGTH.pack(len(data)) + data)
    answers.flush()


if __name__ == "__main__":
    main()
