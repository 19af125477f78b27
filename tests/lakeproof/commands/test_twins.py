# SPDX-License-Identifier: Apache-2.0
"""
What the command line does is possible over HTTP, and the other way round, or it is said why not.

The commands and the routes are those that there are: one that is new fails here until the table names it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer
from fastapi.routing import APIRoute
from typer.testing import CliRunner

from gateway.http.app import OWN
from lakeproof.commands.api_keys import keys_app
from lakeproof.commands.catalogs import catalogs_app
from lakeproof.commands.drops import drops_app, purges_app
from lakeproof.commands.opening import OpenServices
from lakeproof.commands.rules import access_rules_app, policies_app
from lakeproof.commands.tenants import tenants_app
from lakeproof.commands.twins import ROUTES_ALONE, TWINS, Route, Why, format_twins
from testkit.environment import PROJECT
from testkit.gateway.sales import ORDERS, create_orders
from testkit.lakeproof.command_tree import every_command
from testkit.lakeproof.commands import services_of
from testkit.servers.gateways import Gateway

METHODS: Final = {"list": "GET", "show": "GET", "create": "POST", "change": "PUT", "delete": "DELETE"}
"""The method of the route that is the twin of a command with one of the five verbs."""

APPS: Final[Mapping[str, Callable[[OpenServices], typer.Typer]]] = {
    "policies": policies_app,
    "access-rules": access_rules_app,
    "catalogs": catalogs_app,
    "keys": keys_app,
    "tenants": tenants_app,
    "drops": drops_app,
    "purges": purges_app,
}


def own_routes() -> dict[Route, str]:
    """Return the gateway's own routes, each with the name of its function."""
    return {
        (method, route.path_format): route.endpoint.__name__
        for router in OWN
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


def twins() -> dict[str, tuple[Route, ...]]:
    """Return the commands that have routes, with them."""
    return {command: twin for command, twin in TWINS.items() if not isinstance(twin, Why)}


def test_every_command_has_a_route_or_a_reason_and_no_other_command_is_named() -> None:
    assert list(TWINS) == list(every_command())


def test_every_route_has_a_command_or_a_reason_and_no_other_route_is_named() -> None:
    with_commands = {route for routes in twins().values() for route in routes}
    assert with_commands | set(ROUTES_ALONE) == set(own_routes())
    assert with_commands.isdisjoint(ROUTES_ALONE)


def test_a_verb_is_one_method_and_the_name_of_its_route() -> None:
    names = own_routes()
    for command, routes in twins().items():
        verb = command.split()[-1]
        if command.startswith("ledger ") or verb not in METHODS:
            continue
        assert {method for method, _ in routes} == {METHODS[verb]}, command
        first = names[routes[0]]
        assert first.startswith(f"{verb}_"), f"{command}: {first}"


def test_every_reason_is_one_of_some_command() -> None:
    assert {twin for twin in TWINS.values() if isinstance(twin, Why)} == set(Why)


async def test_a_command_shows_a_thing_as_its_route_does(gateway: Gateway) -> None:
    await create_orders(gateway.http)
    policy = {"id": "p", "expression": "true", "message": "never"}
    assert (await gateway.http.post("/v1/policies", json=policy)).status_code == 201
    assert (await gateway.http.delete(ORDERS)).status_code == 204
    key_id = gateway.acme.key.id
    of = ("--tenant", "acme")
    on = "lake.sales.orders"
    for words, path, member in (
        (("policies", "list", *of), "policies", "policies"),
        (("policies", "show", "p", *of), "policies/p", None),
        (("access-rules", "list", *of), "access-rules", "access-rules"),
        (("access-rules", "show", "first-key", *of), "access-rules/first-key", None),
        (("access-rules", "who", "table.load", on, *of), f"access/who?operation=table.load&target={on}", None),
        (("access-rules", "what", on, "--role", "x", *of), f"access/what?role=x&target={on}", None),
        (("access-rules", "lint", *of), "access/lint", None),
        (("catalogs", "list", *of), "catalogs", "catalogs"),
        (("catalogs", "show", "lake", *of), "catalogs/lake", None),
        (("keys", "list", *of), "keys", "keys"),
        (("keys", "show", key_id, *of), f"keys/{key_id}", None),
        (("tenants", "show", "acme"), "tenant", None),
        (("drops", "list", *of), "drops", "drops"),
        (("purges", "list", *of), "purges", "purges"),
    ):
        answer = await gateway.http.get(f"/v1/{path}")
        assert answer.status_code == 200, path
        expected = answer.json() if member is None else answer.json()[member]
        assert await told(gateway, *words) == expected, words
    checked = await gateway.http.post("/v1/catalogs/lake/check")
    assert await told(gateway, "catalogs", "check", "lake", *of) == checked.json()


async def told(gateway: Gateway, *words: str) -> Any:
    """Return what a command tells programs, run as an operator would, with services of its own."""
    app = typer.Typer(rich_markup_mode=None)
    for name, made in APPS.items():
        app.add_typer(made(services_of(gateway.services.installation)), name=name)
    done = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--json"])
    assert done.exit_code == 0, done
    return json.loads(done.stdout)


def test_the_page_for_operators_has_the_table() -> None:
    assert format_twins() in (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
