# SPDX-License-Identifier: Apache-2.0
"""
The catalogs in force, and how the files of each are opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ledger.format.events import CatalogCreated, CatalogRetired
from ledger.store.read import Log
from projections.errors import ProjectionError
from projections.lake.secrets import SecretDirectory
from projections.processing.generations import rebuild
from projections.processing.runner import ProjectionRunner
from projections.relational.catalogs import CatalogRow, CatalogsProjection, read_catalogs, storage_of
from testkit.servers.loopback import LOOPBACK

if TYPE_CHECKING:
    from testkit.projections.story import Story, World

ELSEWHERE = {"uri": "http://127.0.0.1:9", "location": "s3://theirs/lake"}


def created(story: Story, alias: str, kind: str, options: dict[str, str]) -> None:
    event = CatalogCreated(id=alias, version=1, kind=kind, options=options)
    story.add(story.event(event, key=f"catalog:{alias}"))


async def project(world: World, log: Log, story: Story) -> None:
    await world.append(log, story)
    await ProjectionRunner(world.dsn, [CatalogsProjection()], batch_max=2).catch_up(log.log_id, story.size)


async def test_catalogs_are_there_until_they_are_retired(world: World, story: Story) -> None:
    created(story, "lake", "builtin", {})
    created(story, "gone", "rest", ELSEWHERE)
    created(story, "foreign", "rest", ELSEWHERE)
    story.add(story.event(CatalogRetired(id="gone", version=2), key="catalog:gone"))
    log = await world.new_log()
    await project(world, log, story)
    for role in (world.roles.streams, world.roles.detector):
        async with world.as_role(role) as connection:
            found = await read_catalogs(connection)
        assert [(row.alias, row.kind, dict(row.options)) for row in found] == [
            ("foreign", "rest", ELSEWHERE),
            ("lake", "builtin", {}),
        ]
        assert {row.log for row in found} == {log}


async def test_a_tenant_sees_its_own_catalogs_alone(world: World, story: Story) -> None:
    created(story, "lake", "builtin", {})
    log, other = await world.new_log(), await world.new_log()
    await project(world, log, story)
    async with world.as_reader(log) as connection:
        assert len(await read_catalogs(connection)) == 1
    async with world.as_reader(other) as connection:
        assert await read_catalogs(connection) == []
        assert await read_catalogs(connection, log_id=log.log_id) == []


async def test_rebuilt_catalogs_equal_the_live_ones(world: World, story: Story) -> None:
    created(story, "lake", "builtin", {})
    created(story, "gone", "rest", ELSEWHERE)
    story.add(story.event(CatalogRetired(id="gone", version=2), key="catalog:gone"))
    log = await world.new_log()
    await project(world, log, story)
    rebuilt = await rebuild(world.dsn, CatalogsProjection(), log, append=world.attest)
    assert rebuilt.attested.size == story.size


ACME = UUID(int=1)


def row(kind: str, options: dict[str, str], *, tenant: UUID | None = ACME) -> CatalogRow:
    log = Log(log_id=1, origin="example.com/log", tenant=tenant, reader=None)
    return CatalogRow(log=log, alias="lake", kind=kind, options=options)


def test_a_built_in_catalog_is_opened_with_our_properties_in_its_own_folder(tmp_path: Path) -> None:
    ours = {"s3.access-key-id": "ours"}
    found = storage_of(
        row("builtin", {}), warehouse="s3://ours/w/", ours=ours, secrets=SecretDirectory(tmp_path), egress=LOOPBACK
    )
    assert (found.properties, found.within, found.egress) == (ours, (f"s3://ours/w/{ACME.hex}/lake",), None)
    given = row("builtin", {"location": "s3://ours/more"})
    found = storage_of(given, warehouse="s3://ours/w", ours=ours, secrets=SecretDirectory(tmp_path), egress=LOOPBACK)
    assert found.within == (f"s3://ours/w/{ACME.hex}/lake", "s3://ours/more")


@pytest.mark.parametrize(
    ("options", "within"),
    [
        ({}, "s3://nowhere/"),
        (ELSEWHERE, "s3://theirs/lake"),
        ({"location": "s3://ours/w"}, "s3://ours/w"),
        ({"location": "file:///ours"}, "s3://nowhere/"),
        ({"location": "/ours"}, "s3://nowhere/"),
    ],
)
def test_a_catalog_elsewhere_is_never_opened_with_our_properties_or_on_our_disk(
    tmp_path: Path, options: dict[str, str], within: str
) -> None:
    ours = {"s3.access-key-id": "ours"}
    found = storage_of(
        row("rest", options), warehouse="s3://ours/w", ours=ours, secrets=SecretDirectory(tmp_path), egress=LOOPBACK
    )
    assert found.properties == {"s3.anonymous": "true", "s3.region": "us-east-1"}
    assert found.within == (within,)


def test_a_log_without_a_tenant_has_no_catalogs(tmp_path: Path) -> None:
    with pytest.raises(ProjectionError, match="expected a tenant's log"):
        storage_of(
            row("builtin", {}, tenant=None),
            warehouse="s3://w",
            ours={},
            secrets=SecretDirectory(tmp_path),
            egress=LOOPBACK,
        )
