# SPDX-License-Identifier: Apache-2.0
"""The command `lakeproof console login`: a link for who is at the machine, and a key that the log knows of."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from lakeproof.commands.console_logins import console_app, running_url
from lakeproof.errors import ServerError
from lakeproof.serving.socket_folder import RUN, write_url
from testkit.environment import PATIENCE_S
from testkit.lakeproof.commands import services_of
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

ARGUMENTS = ["--identity", "ada@acme.example", "--role", "data-eng", "--json"]


async def test_a_command_makes_a_link_that_logs_in_once_with_a_key_of_eight_hours(gateway: Gateway) -> None:
    headers = {"Sec-Fetch-Site": "same-origin"}
    async with serve_gateway(gateway.app) as url, httpx.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
        app = console_app(services_of(gateway.services.installation), find_url=lambda _home: url)
        arguments = ["login", "--tenant", gateway.acme.tenant.hex, *ARGUMENTS]
        made = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert made.exit_code == 0, made.output
        link = json.loads(made.stdout)["url"]
        place, _, once = link.partition("?once=")
        assert place == f"{url}/console/login/link"
        assert (await http.post(place, data={"once": once})).headers["location"] == "/console"
        assert (await http.get(f"{url}/console/log")).status_code == 200
        assert (await http.post(place, data={"once": once})).status_code == 401
        keys = (await gateway.http.get("/v1/keys")).json()["keys"]
        (key,) = [each for each in keys if each["expires_at"] is not None]
        assert key["roles"] == ["data-eng"]
        assert key["prefix"] not in made.output


def test_without_a_gateway_that_listens_on_loopback_no_link_is_made(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="start `lakeproof up`"):
        running_url(tmp_path)
    waiting = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "lakeproof", "up"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as up:
        assert up.stdout is not None
        up.stdout.readline()  # only now it has its own command line
        folder = tmp_path / RUN / str(up.pid)
        folder.mkdir(parents=True)
        write_url(folder, "http://10.0.0.7:8181")
        with pytest.raises(ServerError, match="log in with an API key"):
            running_url(tmp_path)
        write_url(folder, "http://0.0.0.0:8181")
        assert running_url(tmp_path) == "http://127.0.0.1:8181"
    with pytest.raises(ServerError, match="start `lakeproof up`"):
        running_url(tmp_path)
