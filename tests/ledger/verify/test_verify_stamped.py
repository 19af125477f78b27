# SPDX-License-Identifier: Apache-2.0
"""`verify DIR --stamp FILE --tsa-root PEM`: the export of a system log that a real authority has stamped."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from psycopg import AsyncConnection
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import ledger_app
from lakeproof.provision import Provisioned
from ledger.anchoring import parse_roots
from ledger.anchoring.anchors import stamped_note
from ledger.anchoring.published import store_stamp
from ledger.anchoring.stamping import Authority, format_request, open_response
from ledger.signing.signer import CheckpointSigner
from testkit.lakeproof.operator import Operator, make_operator
from testkit.ledger.logs import put, rows_of
from testkit.servers import time_stamps

NONCE = 1 << 120

APP = ledger_app(None)  # type: ignore[arg-type]


@pytest.fixture
def authority(tmp_path: Path) -> time_stamps.Authority:
    return time_stamps.make_authority(tmp_path / "authority")


@pytest.fixture
def operator(database: str, installation: Provisioned, tmp_path: Path, authority: time_stamps.Authority) -> Operator:
    """Return the operator of an installation whose system log is signed, and stamped by the authority."""
    operator = make_operator(database, installation, tmp_path)

    async def stamp() -> None:
        await put(database, 1, rows_of(300, log=installation.system_origin))
        dsn = installation.as_role(installation.roles.signer)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            (signed,) = await CheckpointSigner(dsn, operator.keys).sign_due(connection)
            note = stamped_note(signed.note)
            answer = authority.answer(format_request(note, nonce=NONCE, policy=None))
            asked = Authority(url="http://127.0.0.1:1", roots=parse_roots(authority.root))
            token, said = open_response(answer, note, asked, nonce=NONCE, now=datetime.now(UTC))
            await store_stamp(connection, 1, size=signed.checkpoint.size, token=token, stamp=said)

    asyncio.run(stamp())
    return operator


def offline(*arguments: object) -> Result:
    """Run `lakeproof ledger verify` where there is no installation."""
    return CliRunner().invoke(APP, ["verify", *map(str, arguments)])


def test_a_stamped_export_is_witnessed_by_a_pinned_authority_and_by_no_other(
    operator: Operator, tmp_path: Path, authority: time_stamps.Authority
) -> None:
    exported = tmp_path / "exported"
    done = operator.run("export", "system", exported, "--stamped")
    assert (done.exit_code, done.stderr) == (0, "")
    # What the export says is to be run, the roots put in.
    command = done.stdout.splitlines()[-1].removeprefix("lakeproof ledger verify ")
    arguments = command.replace("<PEM>", str(authority.directory / "root.pem")).split()
    verified = offline(*arguments)
    assert (verified.exit_code, verified.stderr) == (0, "")
    witnessed, ok = verified.stdout.splitlines()[-2:]
    assert witnessed.startswith("WITNESSED: stamped, ")
    assert (witnessed.split("; ")[1], ok) == ("CN=test tsa", "OK")

    unstamped = offline(*arguments[:3])
    assert (unstamped.exit_code, "NOT WITNESSED" in unstamped.stdout) == (0, True)

    stranger = time_stamps.make_authority(tmp_path / "stranger").directory / "root.pem"
    refused = offline(*arguments[:-1], stranger)
    assert (refused.exit_code, refused.stdout.splitlines()[-1]) == (1, "BROKEN")
    assert refused.stdout.startswith("stamp fault")

    unknown = offline(*arguments[:3], "--stamp", tmp_path / "nowhere", *arguments[-2:])
    assert (unknown.exit_code, unknown.stdout) == (2, "")
