# SPDX-License-Identifier: Apache-2.0
"""What commands on a log that change or write something tell programs: one JSON document each."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lakeproof.commands.ledger import ledger_app
from lakeproof.signing import open_signer
from ledger.store.read import read_head
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import create_orders
from testkit.servers.gateways import Gateway


@pytest.fixture
async def busy(gateway: Gateway) -> Gateway:
    """Ada has made a table, and what the log says of it is signed."""
    await create_orders(gateway.http)
    await (await open_signer(gateway.services.installation)).sign_once()
    return gateway


async def told(gateway: Gateway, *arguments: object, code: int = 0) -> Any:
    """Run a command with `--json` as an operator would; return its document."""
    app = ledger_app(lambda: nullcontext(gateway.services.installation))
    words = [*map(str, arguments), "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert (done.exit_code, done.stderr) == (code, ""), done
    return json.loads(done.stdout)


async def test_what_is_written_for_others_is_told_with_the_key_that_checks_it(busy: Gateway, tmp_path: Path) -> None:
    origin = busy.acme.origin
    key = await told(busy, "key", "acme")
    assert set(key) == {"log", "verifier_keys"}
    (vkey,) = key["verifier_keys"]
    async with busy.services.gateway.database.as_role(busy.services.gateway.roles.auditor) as connection:
        size = (await read_head(connection, busy.acme.log_id)).size
    exported = await told(busy, "export", "acme", tmp_path / "log", "--parts")
    assert (exported["log"], exported["size"], exported["verifier_key"]) == (origin, size, vkey)
    assert exported["disclosed_entries"] > 0
    verified = await told(busy, "verify", exported["directory"], "--key", exported["verifier_key"])
    assert (verified["status"], verified["root"]) == ("verified", exported["root"])
    proven = await told(busy, "prove", "acme", 0, "--out", tmp_path / "proof")
    assert proven == {"log": origin, "index": 0, "file": str(tmp_path / "proof"), "verifier_key": vkey}
    checked = await told(busy, "check-proof", proven["file"], "--key", vkey)
    assert checked["status"] == "verified"
    decided = next(
        one.entry for one in await read_stored(busy.services, busy.acme.log_id) if one.entry.type == "commit.decided"
    )
    written = await told(busy, "bundle", "acme", "--decision", decided.index, "--out", tmp_path / "evidence")
    assert written["size_bytes"] == (tmp_path / "evidence").stat().st_size
    keys = [part for each in written["verifier_keys"] for part in ("--key", each)]
    assert (await told(busy, "check", written["file"], *keys))["status"] != "broken"


async def test_one_entry_is_told_as_it_is_stored(busy: Gateway) -> None:
    shown = await told(busy, "show", "acme", 0)
    assert (shown["index"], shown["log"]) == (0, busy.acme.origin)
    newest = await told(busy, "show", "acme", "-n", 1)
    assert newest == await told(busy, "tail", "acme", "-n", 1)
    assert newest["index"] > 0


async def test_what_was_erased_is_told_with_the_entry_that_says_so(busy: Gateway) -> None:
    nothing = await told(busy, "retain", "acme", "--older-than", "1d")
    assert nothing == {"erased": [], "reclaimed": False, "dead_letters": 0}
    erased = await told(busy, "erase", "acme", "--subject", busy.acme.key.actor)
    (one,) = erased["erased"]
    last = (await read_stored(busy.services, busy.acme.log_id))[-1].entry
    assert (last.type, last.index) == ("payload.erased", one["entry"])
    assert (one["log"], erased["reclaimed"]) == (busy.acme.origin, False)
    assert one["parts"] > 0
    old = await told(busy, "retain", "acme", "--older-than", "0d")
    assert [each["log"] for each in old["erased"]] == [busy.acme.origin]
