# SPDX-License-Identifier: Apache-2.0
"""A home for tests of `lakeproof status` and `lakeproof doctor`, whose database is a test's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeproof.serving.socket_folder import RUN
from testkit.databases import LOGIN_PASSWORD


def make_home(directory: Path, database: str) -> dict[str, str]:
    """
    Make `directory`/home with the password of the login role in it, unless it is there; return its environment.
    """
    home = directory / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    home.chmod(0o700)
    (home / "secrets").mkdir(mode=0o700, exist_ok=True)
    password = home / "secrets" / "login-password"
    password.write_text(LOGIN_PASSWORD, encoding="utf-8")
    password.chmod(0o600)
    return {"LAKEPROOF_HOME": str(home), "LAKEPROOF_DSN": database, "LAKEPROOF_DETECT": "0"}


@contextmanager
def process_called_lakeproof(home: Path, command: str = "up") -> Iterator[Path]:
    """Start a process that looks like a `lakeproof up` of this home; yield its folder."""
    program = "import time; print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, "lakeproof", command], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # until then the system may not show yet what it is called
            folder = home / RUN / str(process.pid)
            folder.mkdir(mode=0o700, parents=True)
            yield folder
        finally:
            process.kill()
