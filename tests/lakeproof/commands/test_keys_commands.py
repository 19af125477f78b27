# SPDX-License-Identifier: Apache-2.0
"""The commands `lakeproof ledger keys …`, and what `lakeproof up` does with the keys as it starts."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import Result

from lakeproof.errors import ServerError
from lakeproof.installation import Installation
from lakeproof.provision import Provisioned, create_tenant_log
from lakeproof.services import Services, now
from lakeproof.serving.system_log import record_in_system_log
from lakeproof.settings import load_settings
from lakeproof.signing import open_signer
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.key_ring import KeyLife
from ledger.signing.keys import read_key_file
from ledger.signing.rotation import KeyRotation, new_file_key
from ledger.signing.stored_keys import KEY_FILE
from testkit.lakeproof.operator import Operator
from testkit.ledger.logs import TENANT
from testkit.ledger.signing_agents import SshAgent, ssh_agent
from testkit.servers.gateways import start_services


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCommands:
    """An installation as its operator has it."""

    installation: Installation

    def run(self, *arguments: object) -> Result:
        return Operator(installation=self.installation).run("keys", *arguments)

    def done(self, *arguments: object) -> str:
        """Return what a command says that has nothing to complain about."""
        result = self.run(*arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def complaint(self, *arguments: object) -> str:
        """Return what a command complains about that has failed."""
        result = self.run(*arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr


@pytest.fixture
def place(short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


@pytest.fixture
def agent(place: Path) -> Iterator[SshAgent]:
    with ssh_agent(place) as agent:
        yield agent


def founded(database: str, installation: Provisioned, directory: Path, **settings: str) -> KeyCommands:
    environment = {f"LAKEPROOF_{name.upper()}": value for name, value in settings.items()}
    environment["LAKEPROOF_HOME"] = str(directory / "home")
    return KeyCommands(
        installation=Installation.on(
            installation, settings=load_settings(environment, directory=directory), admin_dsn=database
        )
    )


@pytest.fixture
def commands(database: str, installation: Provisioned, tmp_path: Path) -> KeyCommands:
    commands = founded(database, installation, tmp_path)
    create_tenant_log(database, installation, TENANT)
    create_key_directory(commands.installation.keys)
    return commands


def test_a_key_is_shown_rotated_and_retired(commands: KeyCommands) -> None:
    first = commands.done("show").split()
    assert first[:2] == ["active", "file"]
    said = commands.done("rotate")
    joined, vkey = said.split()[0], said.splitlines()[1]
    assert "keys retire" in said
    shown = json.loads(commands.done("show", "--json"))["keys"]
    assert [(key["id"], key["state"]) for key in shown] == [(first[2], "overlapping"), (joined, "active")]
    assert shown[1]["verifier_key"] == vkey
    assert "retire it first" in commands.complaint("rotate")
    assert commands.done("retire").startswith(f"{first[2]} is retired: its private half is destroyed")
    assert [line.split()[0] for line in commands.done("show").splitlines()] == ["retired", "active"]
    assert "no key to retire" in commands.complaint("retire")


def test_what_becomes_of_keys_is_told_to_programs(commands: KeyCommands, tmp_path: Path) -> None:
    def told(*arguments: object) -> Any:
        return json.loads(commands.done(*arguments, "--json"))

    (first,) = told("show")["keys"]
    made = told("generate", tmp_path / "made")
    assert made["file"] == str(tmp_path / "made")
    joined = told("rotate", "--from", made["file"])
    assert joined["id"] == made["id"]
    assert joined["verifier_key"] in commands.done("show")
    assert told("retire") == {"retired": first["id"], "held_by": "file", "signing": [made["id"]]}
    added = told("add-ml-dsa")
    (shown,) = told("show")["ml_dsa_44"]
    assert added == {"id": shown["id"], "verifier_key": shown["verifier_key"]}
    assert told("retire-ml-dsa") == {"retired": added["id"], "held_by": "file", "signing": []}


def test_a_key_is_generated_in_advance_and_brought(commands: KeyCommands, tmp_path: Path) -> None:
    file = tmp_path / "made"
    made = commands.done("generate", file).split()[0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_key_file(file).key_id == made
    assert "File exists" in commands.complaint("generate", file)
    assert commands.done("rotate", "--from", file).startswith(made)
    assert commands.run("rotate", "--from", file, "--agent-key", made).exit_code == 2
    assert "nothing" in commands.complaint("rotate", "--from", tmp_path / "nothing")


def test_without_a_key_nothing_is_shown_or_rotated(database: str, installation: Provisioned, tmp_path: Path) -> None:
    commands = founded(database, installation, tmp_path)
    for command in ("show", "rotate", "retire"):
        assert "No such file" in commands.complaint(command) or "is not there" in commands.complaint(command)
    assert not commands.installation.keys.exists()


def test_a_key_of_the_agent_is_rotated_to(
    database: str, installation: Provisioned, tmp_path: Path, agent: SshAgent, commands: KeyCommands
) -> None:
    assert "name its socket in LAKEPROOF_SIGNER_AGENT" in commands.complaint("rotate", "--agent-key", agent.add("one"))
    with_agent = founded(database, installation, tmp_path, signer_agent=str(agent.path))
    assert "expected SHA256:" in with_agent.complaint("rotate", "--agent-key", "one")
    held = agent.add("two")
    assert with_agent.done("rotate", "--agent-key", held).startswith(held)
    assert with_agent.done("retire").splitlines()[1] == f"{held} signs alone"
    said = with_agent.done("rotate").split()[0]
    assert with_agent.done("retire").startswith(f"{held} is retired: remove it from the agent")
    assert said in with_agent.done("show")


# As an installation starts


class Gone(BaseException):
    """The process is gone: nothing catches this."""


async def started(services: Services) -> KeyDirectory:
    """Do with the keys what a start does."""
    signer = await open_signer(services.installation)
    await signer.sign_once()
    await record_in_system_log(services, signer.keys)
    return signer.keys


def told(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT type FROM ledger.entries WHERE type LIKE 'signer.%' ORDER BY log_id, index")
        return [kind for (kind,) in rows]


async def test_a_start_tells_of_the_first_key_once_and_takes_a_rotation_up(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with start_services(database, installation, tmp_path) as services:
        keys = await started(services)
        await started(services)
        assert told(database) == ["signer.created"]

        async def gone(group: Group) -> Appended | Stale:
            if group.then[0].type == "signer.rotated":
                raise Gone
            return await services.gateway.append(services.system.log_id, group)

        with pytest.raises(Gone):
            await KeyRotation(keys, origin=services.system.origin, append=gone, clock=now).rotate(new_file_key)
        assert keys.keys.ring.find(KeyLife.JOINING) is not None
        keys = await started(services)
        assert keys.keys.ring.find(KeyLife.OVERLAPPING) is not None
        await started(services)
        assert told(database) == ["signer.created", "signer.rotated"]


async def test_a_first_start_takes_the_key_that_the_settings_name_and_no_other_later(
    database: str, installation: Provisioned, tmp_path: Path, agent: SshAgent
) -> None:
    held, other = agent.add("one"), agent.add("another")
    async with start_services(database, installation, tmp_path, signer_agent_key=held) as services:
        with pytest.raises(ServerError, match="name its socket in LAKEPROOF_SIGNER_AGENT"):
            await started(services)
    named = {"signer_agent": str(agent.path), "signer_agent_key": held}
    async with start_services(database, installation, tmp_path, **named) as services:
        assert (await started(services)).keys.ring.active.key_id == held
        assert not (services.installation.keys / KEY_FILE).exists()
    async with start_services(database, installation, tmp_path, **named | {"signer_agent_key": other}) as services:
        with pytest.raises(ServerError, match=re.escape(f"is {other}, but what signs is {held}")):
            await started(services)


async def test_a_signed_database_without_its_keys_gets_no_new_one(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with start_services(database, installation, tmp_path) as services:
        await started(services)
        await (await open_signer(services.installation)).sign_once()
        (services.installation.keys / KEY_FILE).unlink()
        with pytest.raises(ServerError, match="restore that directory"):
            await started(services)
