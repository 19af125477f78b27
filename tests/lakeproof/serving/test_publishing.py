# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that `lakeproof up` publishes outside: what arrives, what is refused, and that nothing waits for it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from lakeproof.anchor_settings import is_published_outside, load_places
from lakeproof.errors import SettingsError
from lakeproof.provision import Provisioned
from lakeproof.services import Services
from lakeproof.serving.publishing import PAUSE_MAX_S, Publisher, open_publisher, pause_s
from lakeproof.settings import Settings, load_settings
from lakeproof.signing import open_signer
from lakeproof.tenants import found_tenant
from ledger.anchoring.archives import FileArchive
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.note import parse_note, sign_note
from testkit.lakeproof.operator import Operator
from testkit.ledger.logs import rows_of, signed
from testkit.servers.gateways import start_services


def settings(directory: Path, **given: str) -> Settings:
    environment = {f"LAKEPROOF_{name.upper()}": value for name, value in given.items()}
    return load_settings(environment, directory=directory)


async def grown(services: Services) -> None:
    """Let the system log grow, and sign it."""
    signer = await open_signer(services.installation)
    await signer.sign_once()
    await found_tenant(services, name=f"tenant-{len(await services.logs())}", identity="ada@acme.example")
    await signer.sign_once()


async def test_a_published_checkpoint_is_what_verify_holds_the_logs_against(
    database: str, installation: Provisioned, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lakeproof.serving.publishing")
    file = tmp_path / "collected" / "checkpoint"
    async with start_services(database, installation, tmp_path, publish_to=f"file:{file}") as services:
        publisher, place = open_publisher(services), FileArchive(path=file)
        await open_signer(services.installation)
        assert not await publisher.publish_due(place), "nothing is signed yet"
        assert caplog.messages == []
        await grown(services)
        for _ in range(2):  # its folder is not there: told once, and everything else goes on
            assert not await publisher.publish_due(place)
        assert len(caplog.messages) == 1
        assert "cannot be written" in caplog.text
        file.parent.mkdir()
        assert await publisher.publish_due(place)
        first = file.read_bytes()
        assert parse_note(first)[0].startswith(f"{services.system.origin}\n")
        await grown(services)
        assert await publisher.publish_due(place)
        assert file.read_bytes() != first

        operator = Operator(installation=services.installation)
        verified = await asyncio.to_thread(operator.run, "verify")
        assert verified.exit_code == 0, verified.output
        assert f"1 checkpoints kept in file:{file}" in verified.output
        assert f"kept outside; file:{file}" in verified.output
        assert "OK: 3 logs" in verified.output
        # A place of this installation's that is away is named, and nobody is witness to anything then.
        file.unlink()
        file.mkdir()
        verified = await asyncio.to_thread(operator.run, "verify", "--log", "system")
        assert verified.exit_code == 0, verified.output
        assert "NOT CHECKED: checkpoints that are kept outside: " in verified.output
        assert "NOT WITNESSED: " in verified.output


async def test_a_place_that_knows_a_larger_or_another_log_is_never_written_over(
    database: str, installation: Provisioned, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = FileArchive(path=tmp_path / "published")
    async with start_services(database, installation, tmp_path) as services:
        await grown(services)
        system, own = services.system.origin, services.installation.open_keys()
        ahead, other = (
            sign_note(format_checkpoint(Checkpoint(origin=system, size=size, root=bytes(32))), own.signers(system))
            for size in (100_000, 1)
        )
        for note in (ahead, other, signed([row.entry for row in rows_of(3)])):
            place.path.write_bytes(note)
            caplog.clear()
            assert not await Publisher(services, [place], policy=None).publish_due(place)
            assert place.path.read_bytes() == note
            assert "is not consistent with what is kept there" in caplog.text


def test_pauses_grow_with_every_failure_up_to_an_hour() -> None:
    pauses = [pause_s(failures, interval_s=60) for failures in range(1, 40)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[1], pauses[-1]) == (5, 10, PAUSE_MAX_S)
    assert pause_s(0, interval_s=60) == 60


def test_what_names_no_place_is_refused_and_nobody_outside_is_noticed(tmp_path: Path) -> None:
    for named in ("/srv/checkpoint", "file:/a,file:/a", ",".join(f"file:/{n}" for n in range(17)), "ftp:/a"):
        with pytest.raises(SettingsError, match="LAKEPROOF_PUBLISH_TO"):
            load_places(settings(tmp_path, publish_to=named))
    places = load_places(settings(tmp_path, publish_to="file:/a, git:/b, s3://c"))
    assert [place.where for place in places] == ["file:/a", "git:/b", "s3://c"]
    assert not is_published_outside(settings(tmp_path))
    for given in ({"publish_to": "file:/a"}, {"witness_policy": "p"}, {"time_stamp_url": "https://tsa.example"}):
        assert is_published_outside(settings(tmp_path, **given))
