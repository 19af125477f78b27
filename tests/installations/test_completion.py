# SPDX-License-Identifier: Apache-2.0
"""
Completion as people get it: a real bash, the function that the command prints, and what a word is completed to.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from lakeproof.cli import COMPLETION
from testkit.environment import PROJECT

TIMEOUT_S: Final = 120

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None and not os.environ.get("CI"), reason="there is no bash here")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a shell that finds `lakeproof`."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "lakeproof"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m lakeproof "$@"\n')
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")}
    return {**kept, "PATH": f"{folder}:{kept['PATH']}", "PYTHONPATH": str(PROJECT), "HOME": str(folder)}


def in_bash(shell: dict[str, str], script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a bash that has read nothing else."""
    return subprocess.run(
        [BASH or "bash", "--norc", "--noprofile", "-c", script],
        cwd=directory,
        env=shell,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def completions(shell: dict[str, str], directory: Path, *lines: tuple[str, ...]) -> list[list[str]]:
    """Return what bash completes the last word of each line to, by the function that is registered for the command."""
    asks = "\n".join(
        f"COMP_WORDS=({' '.join(map(shlex.quote, ('lakeproof', *line)))}); COMP_CWORD={len(line)}; COMPREPLY=()\n"
        '"$function" lakeproof; printf "%s\\n" "${COMPREPLY[*]}"'
        for line in lines
    )
    script = (
        f'set -e\neval "$({COMPLETION}=source_bash lakeproof)"\n'
        "function=$(complete -p lakeproof | sed 's/.* -F \\([^ ]*\\) .*/\\1/')\n"
        f"{asks}"
    )
    ended = in_bash(shell, script, directory)
    assert (ended.returncode, ended.stderr) == (0, "")
    return [line.split() for line in ended.stdout.split("\n")[:-1]]


def test_bash_completes_commands_options_and_values(shell: dict[str, str], tmp_path: Path) -> None:
    found = completions(
        shell,
        tmp_path,
        ("po",),
        ("keys", ""),
        ("access-rules", "create", "--ef"),
        ("access-rules", "create", "--effect", ""),
        ("catalogs", "create", "lake", "--kind", "b"),
        ("tenants", "change", "acme", "lineage-cycles", ""),
        ("ledger", "tail", "acme", "--type", "policy."),
    )
    assert [sorted(each) for each in found] == [
        ["policies"],
        ["create", "delete", "list", "rotate", "show"],
        ["--effect"],
        ["forbid", "permit"],
        ["builtin"],
        ["keep", "refuse"],
        ["policy.changed", "policy.created", "policy.retired"],
    ]


def test_a_path_is_left_to_bash_which_completes_files(shell: dict[str, str], tmp_path: Path) -> None:
    assert completions(shell, tmp_path, ("ledger", "prove", "acme", "3", "--out", "")) == [[]]
    registered = in_bash(shell, f'eval "$({COMPLETION}=source_bash lakeproof)"; complete -p lakeproof', tmp_path).stdout
    assert " -o default " in registered


def test_what_is_no_command_is_completed_to_nothing_and_says_nothing(shell: dict[str, str], tmp_path: Path) -> None:
    assert completions(shell, tmp_path, ("nonsense", "zz"), ("keys", "forge")) == [[], []]


def test_completing_needs_no_settings_and_makes_no_home(shell: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "lakeproof.toml").write_text("port = \n")
    assert completions(shell, tmp_path, ("tenants", "cr")) == [["create"]]
    assert [file.name for file in tmp_path.iterdir()] == ["lakeproof.toml"]


def test_a_command_whose_package_is_missing_is_completed_to_nothing_and_says_nothing(
    shell: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('not installed')\n")
    without = {**shell, "PYTHONPATH": f"{tmp_path}:{shell['PYTHONPATH']}"}
    assert completions(without, tmp_path, ("ke",)) == [["keys"]]
    ended = in_bash(
        without, f"{COMPLETION}=complete_bash COMP_WORDS='lakeproof keys c' COMP_CWORD=2 lakeproof", tmp_path
    )
    assert (ended.stdout, ended.stderr) == ("", "")
    assert ended.returncode == 1


def test_a_shell_that_is_not_supported_is_refused(shell: dict[str, str], tmp_path: Path) -> None:
    ended = in_bash(shell, f"{COMPLETION}=source_tcsh lakeproof", tmp_path)
    assert ended.returncode == 1
    assert "Shell tcsh not supported" in ended.stderr


def test_installing_it_writes_it_where_the_next_bash_reads_it(shell: dict[str, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ended = in_bash({**shell, "HOME": str(home)}, "lakeproof --install-completion; true", tmp_path)
    assert "bash completion installed in" in ended.stdout, ended
    (script,) = (home / ".bash_completions").iterdir()
    assert str(script) in (home / ".bashrc").read_text()
