# SPDX-License-Identifier: Apache-2.0
"""The command `ledger verifier`, and what the system log says of the page that it writes."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from typer.testing import CliRunner, Result

from gateway.console.verifier_page import verifier_page
from lakeproof.commands.ledger import ledger_app
from lakeproof.log_names import SYSTEM, find_named_log
from lakeproof.services import Services
from lakeproof.serving.system_log import record_in_system_log
from ledger.format.entry import parse_entry
from ledger.format.events import VerifierPublished, from_data
from ledger.signing.key_directory import create_key_directory


def not_opened() -> NoReturn:
    raise AssertionError("no installation is needed here")


APP = ledger_app(not_opened)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(APP, ["verifier", *map(str, arguments)])


def test_it_writes_the_page_of_the_installed_version_and_says_its_hash(tmp_path: Path) -> None:
    file = tmp_path / "verifier.html"
    done = run("--out", file)
    page = file.read_bytes()
    assert (done.exit_code, page) == (0, verifier_page(version("lakeproof")))
    assert done.stdout.splitlines()[-1] == f"sha256 {sha256(page).hexdigest()}"
    assert json.loads(run("--out", file, "--json").stdout) == {
        "file": str(file),
        "size_bytes": len(page),
        "sha256": sha256(page).hexdigest(),
        "version": version("lakeproof"),
    }


def test_a_file_that_cannot_be_written_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    done = run("--out", tmp_path / "none" / "verifier.html")
    assert done.exit_code == 1
    assert done.stderr.startswith("lakeproof: ")


async def test_a_start_records_the_hash_of_that_page_once(services: Services, tmp_path: Path) -> None:
    keys = create_key_directory(services.installation.keys)
    for _ in range(2):
        await record_in_system_log(services, keys)
    async with services.installation.connect(services.installation.roles.auditor) as auditor:
        log = await find_named_log(services.installation, auditor, SYSTEM)
        query = "SELECT entry FROM ledger.entries WHERE log_id = %s AND type = %s"
        found = await (await auditor.execute(query, (log.log_id, VerifierPublished.TYPE))).fetchall()
    (published,) = [from_data(VerifierPublished, parse_entry(bytes(entry)).data) for (entry,) in found]
    assert run("--out", tmp_path / "verifier.html").exit_code == 0
    digest = sha256((tmp_path / "verifier.html").read_bytes()).hexdigest()
    assert published == VerifierPublished(sha256=digest, version=version("lakeproof"))
