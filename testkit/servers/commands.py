# SPDX-License-Identifier: Apache-2.0
"""
The command `lakeproof` for tests that call it often: every call is a process of its own, forked from one that has the
packages imported, so that it costs what the command does and not a second of imports.

What is on the PATH is a small program that hands its arguments, variables, directory and file descriptors over a socket
and ends with the command's exit code. What loads which package is not seen here, but in
`tests/installations/test_cli.py`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any, Final

from testkit.environment import PROJECT

OURS: Final = ("ledger", "projections", "gateway", "streams", "lakeproof")
HEAVY: Final = ("faust", "moto", "numba", "numpy", "pyarrow", "pyspark")
"""What few commands use; each takes long to import, and some start threads, which a fork leaves behind."""
REQUEST_BYTES_MAX: Final = 1 << 20
BROKEN_DOWN: Final = 70
READY: Final = "ready"
CLIENT: Final = """\
#!{python} -IS
import json, os, signal, socket, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    umask = os.umask(0o077)
    request = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), umask]).encode()
    socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(request)
    code = server.recv(1)
sys.exit(code[0] if code else {broken_down})
"""


@contextmanager
def forked_commands(folder: Path) -> Iterator[Path]:
    """
    Yield a folder for the PATH whose program `lakeproof` runs commands as described above; `folder` is a short path.
    """
    address, programs = folder / "commands.sock", folder / "programs"
    programs.mkdir()
    program = programs / "lakeproof"
    text = CLIENT.format(python=sys.executable, address=str(address), broken_down=BROKEN_DOWN)
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "testkit.servers.commands", str(address)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline().strip() == READY
        yield programs
    finally:
        server.terminate()
        server.communicate()


def serve(address: str) -> None:
    """Fork a process for each request, until the process that started this one ends."""
    gc.disable()  # imports make many objects, and no garbage
    _import_all()
    gc.enable()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        # The end of stdin is the end of the process that started this one.
        while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _answer(connection)
            with suppress(ChildProcessError):  # the children answer by themselves; here they are only counted
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _import_all() -> None:
    blocked: dict[str, Any] = dict.fromkeys(HEAVY)
    sys.modules.update(blocked)  # whatever needs one of these is imported by the command that needs it
    for package in OURS:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(found.name)
    for name in HEAVY:
        del sys.modules[name]
    importlib.import_module("anyio._backends._asyncio")  # by the first client that speaks HTTP
    from projections.egress.client import _certificates

    _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def _answer(connection: socket.socket) -> None:
    """Run one command in this process, and end it."""
    from lakeproof import cli

    code = BROKEN_DOWN
    try:
        length, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as requests:
            arguments, environment, directory, umask = json.loads(
                requests.read(min(int.from_bytes(length, "big"), REQUEST_BYTES_MAX))
            )
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(directory)
        os.umask(umask)
        os.environ.clear()
        os.environ.update(environment)
        code = cli.run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        connection.sendall(bytes([code]))
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
