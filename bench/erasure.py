# SPDX-License-Identifier: Apache-2.0
"""
How long it takes to erase one person among many: 10,000 payload parts of a million.

Claim: an erasure is done within a second, whatever else the log holds.

Run: `python -m bench.erasure`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection

from bench.append_sides import new_id
from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import create_tenant_log, provision
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.erase import Eraser, ErasureRequest
from ledger.erasing.sealer import Sealer
from ledger.erasing.subject_keys import open_key_encryption, open_key_folder
from ledger.format.events import ErasureReason
from ledger.format.guards import GuardRegistry
from ledger.store.read import read_logs

PARTS, OF_ONE, PEOPLE = 1_000_000, 10_000, 1_000
ONE = "ad" * 16

FILL = """
INSERT INTO ledger.parts (log_id, index, name, subject, key_id, sealed)
SELECT %(log_id)s, n / 4, 'part' || n %% 4,
       CASE WHEN n %% (%(parts)s / %(of_one)s) = 0 THEN %(one)s ELSE md5((n %% %(people)s)::text) END,
       gen_random_uuid(), decode(repeat(md5(n::text), 12), 'hex')
FROM generate_series(0, %(parts)s - 1) AS n
"""


def main() -> None:
    """Fill a log's parts, erase one person, and print how long that took."""
    arguments = options("erasure", __doc__).parse_args()
    with embedded_server() as admin_dsn, tempfile.TemporaryDirectory() as directory:
        measured = asyncio.run(measure(admin_dsn, Path(directory) / "keys"))
        found = {"bench": "erasure", **measured, **circumstances_on(admin_dsn)}
    publish(found, arguments.results)


async def measure(admin_dsn: str, keys_directory: Path) -> dict[str, float]:
    """Return the seconds of each of the steps."""
    installation = provision(admin_dsn, login_password=uuid4().hex)
    log_id = create_tenant_log(admin_dsn, installation, uuid4())
    with psycopg.connect(admin_dsn, autocommit=True) as owner:
        owner.execute(FILL, {"log_id": log_id, "parts": PARTS, "of_one": OF_ONE, "people": PEOPLE, "one": ONE})
        owner.execute("INSERT INTO ledger.subjects VALUES (%s, %s, 'ada')", (log_id, ONE))
        owner.execute("VACUUM ANALYZE ledger.parts")
    keys = open_key_folder(keys_directory / "subjects", open_key_encryption(keys_directory / "kek"))
    keys.find_or_create(ONE)
    roles = installation.roles
    async with (
        Appender(installation.as_role(roles.appender), GuardRegistry(CORE_GUARDS), sealer=Sealer(keys)) as appender,
        await AsyncConnection.connect(installation.as_role(roles.eraser), autocommit=True) as connection,
    ):
        log = next(log for log in await read_logs(connection) if log.log_id == log_id)
        eraser = Eraser(connection, appender, keys, new_group_id=new_id)
        started = time.perf_counter()
        request = ErasureRequest(reason=ErasureReason.REQUEST, at=datetime.now(UTC))
        erased = await eraser.erase_subject(log, ONE, request)
        elapsed_s = time.perf_counter() - started
    return {"parts": PARTS, "erased": erased.parts, "elapsed_s": round(elapsed_s, 3)}


if __name__ == "__main__":
    main()
