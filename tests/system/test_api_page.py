# SPDX-License-Identifier: Apache-2.0
"""The page about asking over HTTP is true: its commands and session print what it says, its bounds are the code's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.http import graphql_routes
from gateway.http.graphql import answering, limits
from lakeproof.services import Services
from testkit.environment import PROJECT
from testkit.gateway.two_views import open_two_views
from testkit.servers.gateways import app_of
from testkit.servers.loopback import serve_gateway
from testkit.system.documents import Reader, blocks_of, console_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = "docs/api.md"
ADDRESS = "127.0.0.1:8181"
_NEW_EACH_TIME = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<time>"),
    (re.compile(r'(?<="cursor":)(\s?)"[\w-]+"'), r'\1"<cursor>"'),
    (re.compile(r'(?<=person:)[0-9a-f]{32}|(?<="actor":")[0-9a-f]{32}'), "<actor>"),
)
BOUNDS = {
    "bytes of the body": graphql_routes.BODY_SIZE_BYTES_MAX,
    "characters of the query": limits.TEXT_LENGTH_MAX,
    "tokens": limits.TOKENS_MAX,
    "comments": limits.COMMENTS_MAX,
    "operations": 1,
    "fields nested in each other": limits.DEPTH_MAX,
    "the same below `__schema` and `__type`": limits.INTROSPECTION_DEPTH_MAX,
    "fields in the text": limits.FIELDS_MAX,
    "aliases": limits.ALIASES_MAX,
    "variables": limits.VARIABLES_MAX,
    "fields of the answer, those of a list counted `limit` times": limits.COST_MAX,
    "seconds": answering.TIMEOUT_S,
}


def as_anytime(text: str) -> str:
    """Return what was printed without what is new each time."""
    for pattern, name in _NEW_EACH_TIME:
        text = pattern.sub(name, text)
    return text.strip()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(module_services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Reader]:
    """Whoever follows the page, with a key that may see everything; the tests of this module change nothing."""
    app = app_of(module_services.gateway, installation=module_services.installation)
    async with open_two_views(module_services, app) as views, serve_gateway(app) as url:
        folder = tmp_path_factory.mktemp("reader")
        (folder / "acme.header").write_text(
            f"Authorization: Bearer {views.gateway.acme.key.secret}\n", encoding="utf-8"
        )
        yield Reader(folder=folder, exchanged={ADDRESS: url.removeprefix("http://")})


async def test_every_command_prints_what_the_page_says(reader: Reader) -> None:
    for language, text in blocks_of(PAGE, "sh"):
        await asyncio.to_thread(reader.call, text, language)
    steps = console_of(PAGE)
    assert len(steps) == 4
    for command, printed in steps:
        done = await asyncio.to_thread(reader.call, command)
        assert as_anytime(done.stdout) == as_anytime(printed), command


async def test_the_session_of_the_agent_is_as_it_was_recorded(reader: Reader) -> None:
    (program,) = blocks_of(PAGE, "python")
    ((_, recorded),) = blocks_of(PAGE, "text")
    done = await asyncio.to_thread(reader.call, program[1], "python")
    assert as_anytime(done.stdout) == as_anytime(recorded)


async def test_the_documented_bounds_are_those_of_the_code() -> None:
    text = (PROJECT / PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert {what: int(most.replace(",", "")) for what, most in rows} == BOUNDS
