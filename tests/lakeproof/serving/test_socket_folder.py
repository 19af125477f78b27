# SPDX-License-Identifier: Apache-2.0
"""The folder of the sockets between gateway processes: private, new, and gone afterwards or at the next start."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lakeproof.errors import ServerError
from lakeproof.serving.socket_folder import RUN, socket_folder


def test_the_folder_is_new_private_and_gone_afterwards(tmp_path: Path) -> None:
    with socket_folder(tmp_path) as own:
        assert own == tmp_path / RUN / str(os.getpid())
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        (own / "gateway-1").touch()
    assert list((tmp_path / RUN).iterdir()) == []
    (tmp_path / RUN / str(os.getpid())).mkdir()
    (tmp_path / RUN / str(os.getpid()) / "left").touch()
    with socket_folder(tmp_path) as own:
        assert list(own.iterdir()) == []


def test_what_was_left_by_a_process_that_has_ended_is_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    running = os.getppid()
    for name in (ended.stdout.decode().strip(), str(running), "notes", "9" * 30):
        (tmp_path / RUN / name).mkdir(parents=True)
    with socket_folder(tmp_path) as own:
        left = {each.name for each in (tmp_path / RUN).iterdir()}
    assert left == {str(running), "notes", "9" * 30, own.name}


def test_a_folder_that_cannot_be_made_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / RUN).touch()
    with pytest.raises(ServerError, match="LAKEPROOF_HOME"), socket_folder(tmp_path):
        pass
