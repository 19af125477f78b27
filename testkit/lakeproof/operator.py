# SPDX-License-Identifier: Apache-2.0
"""The commands `lakeproof ledger …` on one test's database and a home of its own, as an operator has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import ledger_app
from lakeproof.installation import Installation
from lakeproof.provision import Provisioned
from lakeproof.settings import load_settings
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.store.session import Connection


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An installation of a test, and the commands on it."""

    installation: Installation

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Installation]:
        """Yield the installation, as a command opens it."""
        yield self.installation

    @asynccontextmanager
    async def auditor(self) -> AsyncIterator[Connection]:
        """Yield a connection of the auditor."""
        async with self.installation.connect(self.installation.roles.auditor) as connection:
            yield connection

    @cached_property
    def app(self) -> typer.Typer:
        """The commands `lakeproof ledger …`."""
        return ledger_app(self.open)

    def run(self, *arguments: object) -> Result:
        """Run `lakeproof ledger` with these arguments."""
        return CliRunner().invoke(self.app, [str(argument) for argument in arguments])

    @property
    def keys(self) -> KeyDirectory:
        """The signer's directory."""
        return self.installation.open_keys()


def make_operator(database: str, installation: Provisioned, directory: Path) -> Operator:
    """Return the installation on `database` with a new home, and a new signer's key in it."""
    settings = load_settings({"LAKEPROOF_HOME": str(directory / "home")}, directory=directory)
    settings.home.mkdir()
    installation = Installation.on(installation, settings=settings, admin_dsn=database)
    create_key_directory(installation.keys)
    return Operator(installation=installation)
