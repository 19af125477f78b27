# SPDX-License-Identifier: Apache-2.0
"""SSH agents to test with: OpenSSH's own, and one that answers whatever a test says."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testkit.environment import missing


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAgent:
    """A running ssh-agent."""

    path: Path
    directory: Path
    pid: int

    def add(self, name: str, *, kind: str = "ed25519") -> str:
        """Make a key, let the agent hold it, and return its id."""
        file = self.directory / name
        _run("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", str(file))
        _run("ssh-add", "-q", str(file), agent=self.path)
        return _run("ssh-keygen", "-lf", f"{file}.pub").split()[1]

    def forget(self) -> None:
        """Let the agent hold no keys."""
        _run("ssh-add", "-q", "-D", agent=self.path)


@contextmanager
def ssh_agent(directory: Path) -> Iterator[SshAgent]:
    """Run OpenSSH's agent on a socket in `directory`, which must have a short path."""
    for tool in ("ssh-agent", "ssh-add", "ssh-keygen"):
        if shutil.which(tool) is None:
            missing(f"{tool} of OpenSSH is not here")
    path = directory / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it says where it listens once it does
        yield SshAgent(path=path, directory=directory, pid=process.pid)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.communicate()


@contextmanager
def scripted_agent(directory: Path, answers: Sequence[bytes]) -> Iterator[Path]:
    """Answer one connection after another with these bytes, whatever the request; then no more."""
    path = directory / "scripted"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        thread.join()


def _run(*arguments: str, agent: Path | None = None) -> str:
    environment = {**os.environ, **({"SSH_AUTH_SOCK": str(agent)} if agent else {})}
    return subprocess.run(arguments, check=True, capture_output=True, text=True, env=environment).stdout
