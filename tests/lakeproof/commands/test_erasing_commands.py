# SPDX-License-Identifier: Apache-2.0
"""The commands `lakeproof ledger erase` and `retain`, on an installation with one tenant."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import ledger_app
from lakeproof.signing import open_signer
from ledger.format.event import SYSTEM_ACTOR
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import create_orders
from testkit.servers.gateways import Gateway

IDENTITY = "ada@acme.example"


@pytest.fixture
async def busy(gateway: Gateway) -> Gateway:
    """Ada has made a table, and what the log says of it is signed."""
    await create_orders(gateway.http)
    await (await open_signer(gateway.services.installation)).sign_once()
    return gateway


async def run(gateway: Gateway, *arguments: object) -> Result:
    """Run a command as an operator would, beside the gateway."""
    app = ledger_app(lambda: nullcontext(gateway.services.installation))
    return await asyncio.to_thread(CliRunner().invoke, app, [str(each) for each in arguments])


async def parts(gateway: Gateway) -> dict[int, set[str]]:
    """The parts that are there, by index."""
    told = await read_stored(gateway.services, gateway.acme.log_id)
    return {one.entry.index: set(one.parts) for one in told if one.parts}


async def test_a_person_is_erased_by_the_name_they_log_in_with(busy: Gateway) -> None:
    done = await run(busy, "erase", "acme", "--subject", IDENTITY, "--reason", "order")
    assert done.exit_code == 0, done.stderr
    assert "payload parts deleted; entry" in done.stdout
    assert "WAL" in done.stdout, "what remains, and until when, is said"
    assert not any({"principal", "inputs"} & names for names in (await parts(busy)).values())
    erased = (await read_stored(busy.services, busy.acme.log_id))[-1].entry
    assert (erased.data["reason"], erased.actor) == ("order", SYSTEM_ACTOR)
    again = await run(busy, "erase", "acme", "--subject", busy.acme.key.actor)
    assert (again.exit_code, again.stdout.split()[0]) == (0, "0")
    verified = await run(busy, "verify", "--log", "acme")
    assert (verified.exit_code, verified.stdout.splitlines()[-1]) == (0, "OK"), verified.stdout
    assert "NOT CHECKED" not in verified.stdout
    stranger = await run(busy, "erase", "acme", "--subject", IDENTITY)
    assert stranger.exit_code == 1
    assert "identity" in stranger.stderr


async def test_one_part_is_erased_and_what_is_old_and_nothing_else(busy: Gateway) -> None:
    before = await parts(busy)
    index = max(index for index, names in before.items() if "inputs" in names)
    done = await run(busy, "erase", "acme", "--part", f"{index}/inputs", "--reclaim")
    assert done.exit_code == 0, done.stderr
    assert await parts(busy) == before | {index: before[index] - {"inputs"}}
    young = await run(busy, "retain", "acme", "--older-than", "1d")
    assert young.stdout.startswith("nothing was erased")
    old = await run(busy, "retain", "acme", "--older-than", "0d", "--name", "principal")
    assert old.exit_code == 0, old.stderr
    assert not any("principal" in names for names in (await parts(busy)).values())
    assert any("inputs" in names for names in (await parts(busy)).values())


async def test_an_export_that_says_nothing_new_or_is_broken_erases_nothing(busy: Gateway, tmp_path: Path) -> None:
    exported = tmp_path / "export"
    assert (await run(busy, "export", "acme", exported, "--parts")).exit_code == 0
    nothing = await run(busy, "erase", "acme", "--replay", exported)
    assert (nothing.exit_code, nothing.stdout[:18]) == (0, "nothing was erased"), nothing.stderr
    await run(busy, "erase", "acme", "--subject", IDENTITY)
    await (await open_signer(busy.services.installation)).sign_once()
    assert (await run(busy, "export", "acme", exported, "--parts")).exit_code == 0
    assert not list((exported / "parts").rglob("*inputs*"))
    again = await run(busy, "erase", "acme", "--replay", exported)
    assert (again.exit_code, again.stdout.split()[0]) == (0, "0"), again.stderr
    bundle = next(file for file in (exported / "tile" / "entries").rglob("*") if file.is_file())
    bundle.write_bytes(bundle.read_bytes().replace(b'"request"', b'"mistake"'))
    broken = await run(busy, "erase", "acme", "--replay", exported)
    assert broken.exit_code == 1
    assert "fault" in broken.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("erase", "acme"),
        ("erase", "acme", "--subject", "x", "--part", "1/inputs"),
        ("erase", "acme", "--part", "inputs"),
        ("erase", "acme", "--subject", "x", "--reason", "because"),
        ("retain", "acme"),
        ("retain", "acme", "--older-than", "a while"),
        ("retain", "acme", "--older-than", "999999d"),
    ],
)
async def test_what_is_called_wrongly_does_nothing(gateway: Gateway, arguments: tuple[str, ...]) -> None:
    assert (await run(gateway, *arguments)).exit_code == 2
