# SPDX-License-Identifier: Apache-2.0
"""
A newer process builds read models of older versions again; what is as new as itself, or newer, it leaves alone.
"""

from __future__ import annotations

from lakeproof.services import Services
from lakeproof.serving.upgrading import replace_older
from lakeproof.tenants import Founded, found_tenant
from ledger.format.entry import parse_entry
from ledger.store.read import read_entries, read_head
from projections.processing.runner import ProjectionRunner
from projections.relational.catalogs import CatalogsProjection, read_catalogs


class NewerCatalogs(CatalogsProjection):
    """The same read model, as a later version would name it."""

    version = 2


async def projected(services: Services, *projections: CatalogsProjection) -> tuple[Founded, ProjectionRunner]:
    """A tenant whose catalogs were projected by each of those, one after the other."""
    tenant = await found_tenant(services, name="acme", identity="ada@acme.example", alias="lake")
    installation = services.installation
    for projection in projections:
        runner = ProjectionRunner(installation.as_role(installation.roles.projector), [projection])
        await runner.catch_up(tenant.log_id, await size_of(services, tenant))
    return tenant, runner


async def size_of(services: Services, tenant: Founded) -> int:
    roles = services.installation.roles
    async with services.gateway.database.as_role(roles.auditor) as connection:
        return (await read_head(connection, tenant.log_id)).size


async def versions(runner: ProjectionRunner) -> list[tuple[int | None, int | None]]:
    return [(each.generation, each.version) for each in await runner.progress()]


async def test_a_generation_of_an_older_version_is_replaced_and_attested(services: Services) -> None:
    tenant, older = await projected(services, CatalogsProjection())
    assert await versions(older) == [(1, 1)]
    installation = services.installation
    newer = ProjectionRunner(installation.as_role(installation.roles.projector), [NewerCatalogs()])
    await replace_older(services, newer, [NewerCatalogs()])
    assert await versions(newer) == [(2, 2)]
    size = await size_of(services, tenant)
    async with services.gateway.database.as_role(installation.roles.auditor) as connection:
        (last,) = await read_entries(connection, tenant.log_id, from_index=size - 1, to_index=size)
    assert parse_entry(last).data["projection_version"] == 2
    async with services.gateway.database.as_role(installation.roles.tenant(tenant.tenant)) as connection:
        assert [row.alias for row in await read_catalogs(connection)] == ["lake"]


async def test_what_is_as_new_or_newer_is_left_alone(services: Services) -> None:
    tenant, runner = await projected(services, NewerCatalogs())
    size = await size_of(services, tenant)
    for projection in (NewerCatalogs(), CatalogsProjection()):
        await replace_older(services, runner, [projection])
        assert await versions(runner) == [(1, 2)]
    assert await size_of(services, tenant) == size
