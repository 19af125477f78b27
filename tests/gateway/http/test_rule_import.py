# SPDX-License-Identifier: Apache-2.0
"""
Import of Nessie's rule files over HTTP: all of a file's rules or none, and what its author reads.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.policy.rule_files import FILE_BYTES_MAX, PREFIX
from testkit.environment import PROJECT
from testkit.gateway.log_contents import read_stored
from testkit.gateway.rules_in_force import rules_of
from testkit.gateway.sales import another_key, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

IMPORT = "/v1/access-rules/import"
AS_PRINTED = (PROJECT / "testkit/gateway/rule_files/as-printed.properties").read_text()
MENDED = AS_PRINTED.replace("`", "'").replace("'Bob')", "'Bob'").replace("'Alice')", "'Alice'")
MENDED = MENDED.replace("'DavesHiddenX' && role=='Dave')", "'DavesHiddenX' && role=='Dave'")


async def send(http: httpx.AsyncClient, file: str, **more: Any) -> httpx.Response:
    return await http.post(IMPORT, json={"file": file, **more})


async def test_the_rules_of_a_file_come_into_force_together(shared_gateway: Gateway) -> None:
    before = len(await read_stored(shared_gateway.services, shared_gateway.acme.log_id))
    answer = await send(shared_gateway.http, MENDED)
    assert answer.status_code == 200, answer.text
    imported = answer.json()
    assert (len(imported["created"]), imported["unchanged"], imported["dry_run"]) == (14, [], False)
    assert (await rules_of(shared_gateway))[1:] == imported["created"]
    assert {(rule["effect"], rule["vocabulary"]) for rule in imported["created"]} == {("permit", 3)}
    told = (await read_stored(shared_gateway.services, shared_gateway.acme.log_id))[before:]
    assert [one.entry.type for one in told] == ["access_rule.created"] * 14
    assert {one.entry.key for one in told} == {f"access_rule:{rule['id']}" for rule in imported["created"]}
    (of,) = {(one.entry.group_id, one.entry.of) for one in told}
    assert of[1] == 14, "all in one group of the log"


async def test_a_dry_run_says_what_an_import_would_do_and_does_nothing(shared_gateway: Gateway) -> None:
    trial = (await send(shared_gateway.http, MENDED, dry_run=True)).json()
    assert len(await rules_of(shared_gateway)) == 1
    assert (await send(shared_gateway.http, MENDED)).json() == {**trial, "dry_run": False}


async def test_what_cannot_be_parsed_is_refused_with_its_place_and_mended_lines(shared_gateway: Gateway) -> None:
    before = len(await read_stored(shared_gateway.services, shared_gateway.acme.log_id))
    for more in ({}, {"dry_run": True}):
        answer = await send(shared_gateway.http, AS_PRINTED, **more)
        assert (answer.status_code, error_of(answer)["type"]) == (422, "UnprocessableEntityException")
        message = error_of(answer)["message"]
        assert message.startswith("3 of 14 rules cannot be imported, and nothing was saved:\n")
        assert (
            "line 39, column 94: rule bob: 'Bob' cannot stand here; it compiles with ' in place of ` at line 39, "
            "column 82 and without the ) at line 39, column 98:\n"
            "nessie.server.authorization.rules.bob=\\\n"
            "  op in ['READ_ENTITY_VALUE', 'UPDATE_ENTITY', 'DELETE_ENTITY'] && path=='BobsBar' && role=='Bob'\n"
        ) in message
    assert len(await read_stored(shared_gateway.services, shared_gateway.acme.log_id)) == before


async def test_mended_lines_make_a_file_that_is_imported(shared_gateway: Gateway) -> None:
    message = error_of(await send(shared_gateway.http, AS_PRINTED))["message"]
    lines = message.split("\n")
    text = AS_PRINTED
    for at, line in enumerate(lines):
        if line.startswith(PREFIX):
            id_ = line.removeprefix(PREFIX).partition("=")[0]
            start = text.index(f"{PREFIX}{id_}=")
            end = text.index("\n", text.index("\n", start) + 1)
            text = text[:start] + "\n".join(lines[at : at + 2]) + text[end:]
    assert text == MENDED
    assert (await send(shared_gateway.http, text)).status_code == 200


async def test_a_file_is_imported_again_after_a_rule_was_added_to_it(shared_gateway: Gateway) -> None:
    one = f"{PREFIX}one=op == 'VIEW_REFERENCE'\n"
    assert (await send(shared_gateway.http, one)).status_code == 200
    both = (await send(shared_gateway.http, f"{one}{PREFIX}two=false\n")).json()
    assert ([rule["id"] for rule in both["created"]], [rule["id"] for rule in both["unchanged"]]) == (["two"], ["one"])


@pytest.mark.parametrize("taken", ["other expression", "other vocabulary", "retired"])
async def test_an_id_that_is_taken_refuses_the_whole_file(shared_gateway: Gateway, taken: str) -> None:
    body = {"id": "one", "effect": "permit", "expression": "1 == 2" if taken == "other expression" else "false"}
    assert (await shared_gateway.http.post("/v1/access-rules", json=body)).status_code == 201
    if taken == "retired":
        assert (await shared_gateway.http.delete("/v1/access-rules/one")).status_code == 204
    before = await rules_of(shared_gateway)
    answer = await send(shared_gateway.http, f"{PREFIX}one=false\n{PREFIX}two=false\n")
    assert (answer.status_code, error_of(answer)["type"]) == (409, "AlreadyExistsException")
    assert "one" in error_of(answer)["message"]
    assert await rules_of(shared_gateway) == before


async def test_all_that_is_wrong_with_a_file_is_said_at_once(shared_gateway: Gateway) -> None:
    file = "\n".join(
        [
            f"{PREFIX}Big=true",
            f"{PREFIX}names=opp == 'A'",
            f"{PREFIX}long={'1 == 1 && ' * 1_700}true",
            f"{PREFIX}empty=",
        ]
    )
    message = error_of(await send(shared_gateway.http, file))["message"]
    assert message.startswith("4 of 4 rules cannot be imported")
    for words in ("line 1, column 1: rule Big", "rule names: unknown variable 'opp'", "at most 16384", "rule empty"):
        assert words in message


async def test_it_takes_the_right_to_each_of_the_rules(shared_gateway: Gateway) -> None:
    await shared_gateway.services.gateway.admin.create_access_rule(
        shared_gateway.acme.log_id,
        OPERATOR,
        rule_id="stewards",
        effect="permit",
        expression="'steward' in roles && path == '.config.access_rule.one'",
    )
    steward = shared_gateway.client(await another_key(shared_gateway, "eve@acme.example", "steward"))
    one, two = f"{PREFIX}one=false\n", f"{PREFIX}two=false\n"
    for more in ({}, {"dry_run": True}):
        assert (await send(steward, one + two, **more)).status_code == 403
        assert (await send(steward, f"{PREFIX}No=false", **more)).status_code == 403
    assert (await send(steward, one)).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"file": 1}, 400),
        ({"file": "", "dry_run": False}, 400),
        ({"file": "a=b", "effect": "forbid"}, 400),
        ({"file": "#" * (FILE_BYTES_MAX + 1)}, 400),
        ({"file": "#" * (2 * FILE_BYTES_MAX)}, 413),
    ],
)
async def test_what_is_no_file_is_refused(module_gateway: Gateway, body: dict[str, Any], status: int) -> None:
    assert (await module_gateway.http.post(IMPORT, json=body)).status_code == status
