# SPDX-License-Identifier: Apache-2.0
"""A database that is saved and set back, as a backup is, and the rows outside the log that must come back with it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, sql
from typer.testing import CliRunner, Result

from lakeproof.commands.ledger import ledger_app
from lakeproof.services import Services
from lakeproof.signing import open_signer
from ledger.proving.export import as_reader, export_log, export_parts
from ledger.store.read import find_log

LOG_TABLES: Final = (
    "heads",
    "entries",
    "parts",
    "tiles",
    "checkpoints",
    "subjects",
    "aggregates",
    "recorded_events",
    "erased_subjects",
    "erasures_done",
)
GUARDED: Final[dict[str, tuple[str, ...]]] = {
    "ledger.aggregates": (),
    "ledger.recorded_events": (),
    "ledger.erased_subjects": (),
    "gateway.api_keys": ("log_id", "key_id", "prefix", "actor"),
    "gateway.namespaces": (),
    "gateway.tables": (),
    "gateway.catalog_places": (),
    "gateway.open_decisions": (),
    "gateway.purges": (),
    "detection.marks": (),
}
"""The guarded tables, with the columns that the log tells if it does not tell all: the hash of a key is not in it."""
SAVED: Final = tuple(dict.fromkeys([*(f"ledger.{table}" for table in LOG_TABLES), *GUARDED, "gateway.key_macs"]))


def save(database: str) -> None:
    """Save what the database holds of logs and of rows outside them."""
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DROP SCHEMA IF EXISTS saved CASCADE")
        owner.execute("CREATE SCHEMA saved")
        for table in SAVED:
            names = (sql.Identifier("saved", table.replace(".", "_")), sql.Identifier(*table.split(".")))
            owner.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(*names))


def set_back(database: str) -> None:
    """Set the database back to what was saved, as restoring a backup does."""
    with psycopg.connect(database) as owner:
        owner.execute("SET LOCAL session_replication_role = replica")
        for table in SAVED:
            names = (sql.Identifier(*table.split(".")), sql.Identifier("saved", table.replace(".", "_")))
            owner.execute(sql.SQL("DELETE FROM {}").format(names[0]))
            owner.execute(sql.SQL("INSERT INTO {} TABLE {}").format(*names))


def forget(database: str, log_id: int) -> None:
    """Make the database one of the time before a log: nothing of it is there."""
    with psycopg.connect(database) as owner:
        owner.execute("SET LOCAL session_replication_role = replica")
        for table in (*SAVED, "ledger.confirmations", "gateway.request_keys", "ledger.logs"):
            owner.execute(
                sql.SQL("DELETE FROM {} WHERE log_id = %s").format(sql.Identifier(*table.split("."))), (log_id,)
            )


def guarded_rows(database: str) -> dict[str, list[Any]]:
    """Return every guarded row, by table."""
    with psycopg.connect(database) as owner:
        return {
            table: sorted(
                owner.execute(
                    sql.SQL("SELECT {} FROM {} AS r").format(
                        sql.SQL(", ").join(map(sql.Identifier, columns)) if columns else sql.SQL("*"),
                        sql.Identifier(*table.split(".")),
                    )
                ),
                key=repr,
            )
            for table, columns in GUARDED.items()
        }


async def export(services: Services, origin: str, path: Path, *, refused: Collection[str] = ()) -> Path:
    """Sign the logs, of which the signer refuses none but these, and export one with its parts."""
    signer = await open_signer(services.installation)
    await signer.sign_once()
    assert set(signer.refused) == set(refused)
    installation = services.installation
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as auditor:
        log = await find_log(auditor, origin)
        await export_log(auditor, log, path, keys=[signer.verifier_key(origin)], policy=None)
        if log.reader is not None:
            async with as_reader(auditor, log):
                await export_parts(auditor, log, path, opener=services.opener)
    return path


async def run(services: Services, *arguments: object) -> Result:
    """Run `lakeproof ledger …` on this installation, as an operator does while a server runs."""
    app = ledger_app(lambda: nullcontext(services.installation))
    return await asyncio.to_thread(CliRunner().invoke, app, [str(one) for one in arguments])
