# SPDX-License-Identifier: Apache-2.0
"""The commands `lakeproof ledger witness …`: a witness is made, shown and served without an installation."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import ledger_app
from ledger.format.note import VerifierKey
from ledger.format.witness_policy import WitnessPolicy
from testkit.environment import PROJECT
from testkit.ledger.witnesses import GENUINE, LOG, NAME, ORIGIN, key_files
from testkit.servers.java import free_ports

VKEY = LOG.verifier_key.format()
COMMAND = "import sys; from lakeproof.cli import main; main()"


class InstallationOpened(Exception):  # noqa: N818 - not an error of ours
    """No command of a witness needs an installation."""


def not_opened() -> None:
    raise InstallationOpened


APP = ledger_app(not_opened)  # type: ignore[arg-type]  # never called


def run(*arguments: object) -> Result:
    words = ["witness", *(str(argument) for argument in arguments)]
    return CliRunner().invoke(APP, words)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "witness"
    assert run("init", path, "--name", NAME).exit_code == 0
    return path


def test_init_makes_both_keys_for_nobody_else_and_shows_lines_of_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "new" / "witness"
    done = run("init", path, "--name", NAME)
    assert (done.exit_code, done.stderr) == (0, "")
    policy = WitnessPolicy.parse(f"{done.stdout}group w all {NAME}:ed25519 {NAME}:ml-dsa-44\nquorum w\n".encode())
    assert [witness.key.algorithm for witness in policy.witnesses] == [4, 6]
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for file in (*key_files(path), path / "name"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("show", path).stdout == done.stdout
    shown = json.loads(run("show", path, "--json").stdout)
    assert [f"witness {key['name']}:{key['type']} {key['verifier_key']}" for key in shown["keys"]] == (
        done.stdout.splitlines()
    )
    assert shown["logs"] == []
    added = json.loads(run("add-log", path, VKEY, "--json").stdout)
    assert added == {"log": ORIGIN, "verifier_key": VKEY}
    assert json.loads(run("show", path, "--json").stdout)["logs"] == [{"log": ORIGIN, "size": None, "root": None}]
    other = json.loads(
        run("init", tmp_path / "new" / "other", "--name", NAME, "--key-type", "ed25519", "--json").stdout
    )
    assert [key["type"] for key in other["keys"]] == ["ed25519"]
    assert {file.name for file in path.parent.iterdir()} == {"witness", "other"}


def test_a_witness_may_have_one_kind_of_key(tmp_path: Path) -> None:
    done = run("init", tmp_path / "w", "--name", NAME, "--key-type", "ed25519")
    assert VerifierKey.parse(done.stdout.split()[2]).algorithm == 4
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--name", "a b"], ["--name", ""], ["--name", NAME, "--key-type", "rsa"]])
def test_a_witness_that_cannot_be_is_not_made(tmp_path: Path, arguments: list[str]) -> None:
    done = run("init", tmp_path / "w", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert list(tmp_path.iterdir()) == []


def test_a_witness_is_not_made_over_another(path: Path) -> None:
    before = [file.read_bytes() for file in key_files(path)]
    done = run("init", path, "--name", NAME)
    assert done.exit_code == 1
    assert "name a new directory" in done.stderr
    assert [file.read_bytes() for file in key_files(path)] == before
    assert [file.name for file in path.parent.iterdir()] == ["witness"]


def test_a_log_is_added_and_shown(path: Path) -> None:
    assert run("add-log", path, VKEY).stdout == f"log {ORIGIN} is cosigned from now on\n"
    assert run("add-log", path, VKEY, "--origin", "another").exit_code == 0
    assert run("show", path).stdout.splitlines()[2:] == [
        "log another: nothing cosigned yet",
        f"log {ORIGIN}: nothing cosigned yet",
    ]
    assert run("add-log", path, "no key").exit_code == 1
    assert run("add-log", path.parent / "nowhere", VKEY).exit_code == 1


def test_a_key_that_others_may_read_is_not_used(path: Path) -> None:
    for file, mode in [(path, 0o755), *((file, 0o640) for file in key_files(path))]:
        before = file.stat().st_mode
        file.chmod(mode)
        done = run("show", path)
        assert done.exit_code == 1
        assert "chmod" in done.stderr
        file.chmod(before)
    assert run("show", path).exit_code == 0


@pytest.mark.parametrize("text", ["", "x\n", "AAAA\n", "\xff\n"])
def test_a_damaged_key_is_refused_and_not_shown(path: Path, text: str) -> None:
    for file in key_files(path):
        secret = file.read_text().strip()
        file.write_text(text + secret[:20])
        done = run("show", path)
        assert done.exit_code == 1
        assert "damaged" in done.stderr
        assert secret[:20] not in done.stderr
        file.write_text(secret + "\n")


def test_a_served_witness_cosigns_loads_no_database_driver_and_ends_when_told(path: Path) -> None:
    assert run("add-log", path, VKEY).exit_code == 0
    (port,) = free_ports(1)
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-c",
        COMMAND,
        "ledger",
        "witness",
        "serve",
        str(path),
        "--port",
        str(port),
    ]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        loaded = []
        for line in serving.stderr:  # until it says where it listens
            if line.startswith("witness "):
                break
            loaded.append(line.rpartition("|")[2].strip())
        assert f"http://127.0.0.1:{port}/add-checkpoint" in line
        transport = httpx.HTTPTransport(retries=5)
        with httpx.Client(transport=transport, trust_env=False) as client:
            answer = client.post(f"http://127.0.0.1:{port}/add-checkpoint", content=GENUINE.request(0, 8))
            assert (answer.status_code, answer.text.count("\n")) == (200, 2)
        assert "in use" in run("serve", str(path), "--port", port).stderr
        serving.send_signal(signal.SIGTERM)
        serving.communicate()
    assert "starlette" in loaded
    assert not [name for name in loaded if name.split(".")[0] in {"psycopg", "gateway", "projections", "fastapi"}]
    assert run("show", path).stdout.splitlines()[-1].startswith(f"log {ORIGIN}: size 8, root ")
