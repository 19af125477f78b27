# SPDX-License-Identifier: Apache-2.0
"""
What an installation records in the system log about itself: migrations, the verifier for auditors, the schema of the
database, the signer's keys.

It does so at every start, under group ids derived from the content, so each fact is in the log once, whichever start
was interrupted. An interrupted rotation of the signer's keys is finished.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from gateway.console.verifier_page import verifier_page
from gateway.version import installed_version
from lakeproof.provision import migrations
from lakeproof.schema_record import pages_of, read_record, read_schema
from lakeproof.services import Services, now
from ledger.format.event import SYSTEM_ACTOR, derived_group_id, format_key
from ledger.format.events import MigrationApplied, SchemaRecorded, VerifierPublished, prepare_event, to_data
from ledger.format.sequence import Group
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.rotation import KeyRotation, operation_group

SCHEMA_KEY: Final = format_key("schema", ("database",))
VERIFIER_KEY: Final = format_key("verifier", ("page",))


async def record_in_system_log(services: Services, keys: KeyDirectory) -> None:
    """
    Append what is not in the system log yet.

    Raises:
        LedgerError: if it cannot be appended.
    """
    for migration in migrations():
        applied = MigrationApplied(
            package=migration.package, number=migration.number, name=migration.name, sha256=migration.sha256
        )
        key = format_key("migration", (migration.package, str(migration.number)))
        await services.gateway.append(services.system.log_id, operation_group(applied, key, occurred_at=now()))
    await services.gateway.append(services.system.log_id, _verifier_published())
    await _record_schema(services)
    keeper = KeyRotation(
        keys,
        origin=services.system.origin,
        append=lambda group: services.gateway.append(services.system.log_id, group),
        clock=now,
    )
    await keeper.record_first_key()
    await keeper.finish()


def _verifier_published() -> Group:
    """Return the group that names the hash of the page that `lakeproof ledger verifier` writes, with this version."""
    version = installed_version()
    published = VerifierPublished(sha256=sha256(verifier_page(version)).hexdigest(), version=version)
    return operation_group(published, VERIFIER_KEY, occurred_at=now())


async def _record_schema(services: Services) -> None:
    """
    Record the schema, unless the newest record has it. It was checked before that nobody else has changed it.
    """
    roles = services.installation.roles
    async with services.gateway.database.as_role(roles.auditor) as connection:
        found = await read_schema(connection, roles)
        record = await read_record(connection, services.system.origin)
    if record is not None and (record.schema.basis, record.schema.fingerprint) == (found.basis, found.fingerprint):
        return
    accepted = record is not None and record.schema.basis == found.basis
    pages = pages_of(found, replaces=None if record is None else record.index, accepted=accepted)
    events = tuple(prepare_event(page, key=SCHEMA_KEY, actor=SYSTEM_ACTOR, occurred_at=now()) for page in pages)
    content = {"basis": to_data(found.basis), "fingerprint": found.fingerprint, "replaces": pages[0].replaces}
    group = Group(id=derived_group_id(SchemaRecorded.TYPE, content), then=events)
    await services.gateway.append(services.system.log_id, group)
