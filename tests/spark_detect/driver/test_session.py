# SPDX-License-Identifier: Apache-2.0
"""
With which Python Spark starts its processes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spark_detect.driver.session import local_python

SHOW = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])"


def test_the_local_python_is_this_one_without_what_spark_puts_on_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $HOME"
    folder.mkdir()
    program = local_python(folder, f"{folder}:/other")
    command = [program, "-S", "-c", SHOW, "one two"]
    shown = subprocess.run(command, env={"PYTHONPATH": "/pyspark.zip"}, capture_output=True, text=True, check=True)
    assert shown.stdout == f"{folder}:/other ['one two']\n"
    assert Path(program).stat().st_mode & 0o777 == 0o700


def test_where_no_program_may_run_it_is_python_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert not local_python(tmp_path, "/other").startswith(str(tmp_path))
