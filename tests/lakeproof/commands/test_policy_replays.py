# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof policies replay`: its exit codes, what it prints, and what it refuses to begin with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.replaying import application
from gateway.replaying.page_process import PageProcess
from gateway.replaying.pages import Wanted
from gateway.replaying.variables import ERASED
from lakeproof.commands import policy_replays
from lakeproof.commands.policy_replays import parse_since
from lakeproof.commands.rules import policies_app
from lakeproof.tenants import found_tenant
from ledger.errors import LedgerError
from testkit.gateway.log_contents import read_stored
from testkit.gateway.replays import erase_ada
from testkit.gateway.sales import ORDERS, create_orders, properties
from testkit.lakeproof.commands import services_of
from testkit.servers.gateways import Gateway

Command = Callable[..., Result]
OWNED = "commit.operation != 'table.commit' || 'owner' in result.properties"


@pytest.fixture
async def command(gateway: Gateway) -> Command:
    """Runs the commands for policies of a tenant whose last commit a policy has refused."""
    await create_orders(gateway.http)
    assert (await gateway.http.post(ORDERS, json=properties(a="1"))).status_code == 200
    await gateway.services.gateway.admin.create_policy(
        gateway.acme.log_id, OPERATOR, policy_id="owned", text=PolicyText(expression=OWNED, message="no")
    )
    assert (await gateway.http.post(ORDERS, json=properties(a="2"))).status_code == 403
    app = policies_app(services_of(gateway.services.installation))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return run


async def called(command: Command, *arguments: str) -> Result:
    return await asyncio.to_thread(command, *arguments)


def proposal(tmp_path: Path, expression: str, policy_id: str = "owned") -> str:
    path = tmp_path / f"{policy_id}.yaml"
    path.write_text(f"id: {policy_id}\nexpression: |\n  {expression}\nmessage: no\n", encoding="utf-8")
    return str(path)


async def test_no_change_ends_with_0(command: Command, tmp_path: Path) -> None:
    path = proposal(tmp_path, "!('secret' in result.properties)", "other")
    result = await called(command, "replay", path, "--tenant", "acme")
    assert result.exit_code == 0, result.output
    assert "same 4, widened 0, narrowed 0" in result.stdout


async def test_a_proposal_that_lets_more_pass_ends_with_1(command: Command, tmp_path: Path) -> None:
    result = await called(command, "replay", proposal(tmp_path, "true"), "--tenant", "acme", "--json")
    assert result.exit_code == 1, result.output
    shown: dict[str, Any] = json.loads(result.stdout)
    (change,) = shown["changes"]
    assert (change["change"], change["policy"], change["target"]) == ("widened", "owned", "lake.sales.orders")
    assert change["principal"] == "ada@acme.example"
    assert shown["attested"] is None


async def test_a_long_log_is_read_by_two_processes_and_what_is_found_is_the_same(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = proposal(tmp_path, "true")
    alone = await called(command, "replay", path, "--tenant", "acme", "--json")
    wanted = []

    class Seen(PageProcess):
        def want(self, one: Wanted) -> None:
            wanted.append(one)
            super().want(one)

    monkeypatch.setattr(application, "PageProcess", Seen)
    monkeypatch.setattr(application, "BESIDE_ENTRIES_MIN", 1)
    monkeypatch.setattr(policy_replays, "cores", lambda: 2)
    result = await called(command, "replay", path, "--tenant", "acme", "--json")
    assert len(wanted) == 1
    assert result.exit_code == 1, result.output
    members = {"digests", "counts", "changes", "end"}
    assert json.loads(result.stdout).keys() >= members
    assert all(json.loads(result.stdout)[name] == json.loads(alone.stdout)[name] for name in members)


async def test_a_proposal_that_refuses_more_ends_with_2(command: Command, tmp_path: Path) -> None:
    result = await called(command, "replay", proposal(tmp_path, OWNED), "--tenant", "acme")
    assert result.exit_code == 2, result.output
    assert "narrowed          1  lake.sales.orders by owned, of ada@acme.example; the first is entry" in result.stdout


async def test_both_directions_end_with_1(command: Command, tmp_path: Path) -> None:
    proposal(tmp_path, "true")
    proposal(tmp_path, "commit.kind != 'namespace'", "tables")
    result = await called(command, "replay", str(tmp_path), "--tenant", "acme", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["counts"]["narrowed"] == 1


async def test_what_was_found_is_recorded_where_that_is_asked_for(command: Command, tmp_path: Path) -> None:
    result = await called(command, "replay", proposal(tmp_path, "true"), "--tenant", "acme", "--attest", "--json")
    shown = json.loads(result.stdout)
    assert shown["attested"] == shown["end"]
    assert (
        "attested in entry" in (await called(command, "replay", str(tmp_path), "--tenant", "acme", "--attest")).stdout
    )


async def test_decisions_whose_inputs_were_erased_are_counted_and_attested_as_unknown(
    command: Command, gateway: Gateway, tmp_path: Path
) -> None:
    await erase_ada(gateway)
    path = proposal(tmp_path, "'data-eng' in principal.roles", "roles")
    result = await called(command, "replay", path, "--tenant", "acme", "--attest")
    assert result.exit_code == 2, "what nobody can know any more is no success"
    assert "same 0, widened 0, narrowed 0, failed 0, unknown 4, not judged 0" in result.stdout
    assert f"unknown           3  {ERASED.why}" in result.stdout
    assert "none of the decisions could be judged again" in result.stderr
    stored = await read_stored(gateway.services, gateway.acme.log_id)
    (attested,) = [one.entry.data for one in stored if one.entry.type == "proposal.replayed"]
    assert (attested["decisions"], attested["unknown"]) == (4, 4)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (("--tenant", "nobody"), "tenant 'nobody' does not exist; known: acme"),
        (("--since", "yesterday"), "as in 30d, found 'yesterday'"),
        (("--since", "0d"), "--since"),
        (("--since", "99999w"), "--since"),
        (("--since", "1m", "--tenant", "acme", "-x"), "No such option"),
    ],
)
async def test_what_cannot_be_replayed_ends_with_2_and_says_why(
    command: Command, tmp_path: Path, changed: tuple[str, ...], says: str
) -> None:
    arguments = {"--tenant": "acme", **dict(zip(changed[::2], changed[1::2], strict=False))}
    rest = changed[len(changed) // 2 * 2 :]
    given = [word for pair in arguments.items() for word in pair]
    result = await called(command, "replay", proposal(tmp_path, "true"), *given, *rest)
    assert result.exit_code == 2
    assert says in result.stderr


async def test_an_expression_that_does_not_compile_is_refused_with_its_place(command: Command, tmp_path: Path) -> None:
    path = proposal(tmp_path, "tabel.columns.size() > 0")
    result = await called(command, "replay", path, "--tenant", "acme")
    assert result.exit_code == 2
    assert f"{path}:3:3: unknown variable 'tabel'" in result.stderr


async def test_a_range_without_decisions_is_an_error(command: Command, gateway: Gateway, tmp_path: Path) -> None:
    await found_tenant(gateway.services, name="quiet", identity="eve@acme.example")
    result = await called(command, "replay", proposal(tmp_path, "true"), "--tenant", "quiet")
    assert result.exit_code == 2
    assert "no decision was recorded since" in result.stderr


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        ("8w", timedelta(weeks=8)),
    ],
)
def test_a_span_is_a_number_with_its_unit(text: str, span: timedelta) -> None:
    assert parse_since(text) == span


@pytest.mark.parametrize("text", ["", "d", "30", "-1d", "1.5d", "30D", "٣d", "1000000d", "0h"])
def test_anything_else_is_no_span(text: str) -> None:
    with pytest.raises(LedgerError):
        parse_since(text)


async def test_the_branches_that_decisions_reached_are_shown_with_their_places_in_the_file(
    command: Command, tmp_path: Path
) -> None:
    path = proposal(tmp_path, "true || commit.purge", "other")
    result = await called(command, "replay", path, "--tenant", "acme", "--coverage", "--json")
    assert result.exit_code == 0, result.output
    (covered,) = json.loads(result.stdout)["coverage"]
    assert (covered["policy"], covered["taken"], covered["directions"]) == ("other", 2, 6)
    counts = [(one["line"], one["column"], one["true"], one["false"]) for one in covered["branches"]]
    assert counts == [(3, 3, 4, 0), (3, 3, 4, 0), (3, 11, 0, 0)]
    text = await called(command, "replay", path, "--tenant", "acme", "--coverage")
    assert "other: 2 of 6 directions of branches taken by decisions\n" in text.stdout
    assert "3:11: never true: operand of || commit.purge\n" in text.stdout
    assert "coverage" not in json.loads((await called(command, "replay", path, "--tenant", "acme", "--json")).stdout)


async def test_a_proposal_that_lets_some_pass_and_refuses_others_ends_with_1_and_counts_both(
    command: Command, tmp_path: Path
) -> None:
    path = proposal(tmp_path, "!('a' in result.properties) || result.properties['a'] == '2'")
    result = await called(command, "replay", path, "--tenant", "acme", "--json")
    counts = json.loads(result.stdout)["counts"]
    assert (result.exit_code, counts["widened"], counts["narrowed"]) == (1, 1, 1)
