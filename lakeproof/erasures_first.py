"""
What every signer of this installation does before it confirms logs: what was erased of them is erased again.

After a restart, a restore or a failover nothing is appended until a signer has confirmed the logs, whichever process it
works in. So this is the one place that no restored database gets past.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from psycopg import sql

from lakeproof.erased_copies import InstalledCopies
from lakeproof.installation import Installation
from lakeproof.sealing import open_checked_keys
from ledger.erasing.rerun import erase_before_confirming
from ledger.errors import LedgerError
from ledger.signing.consistency import BeforeConfirming
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.signer import CheckpointSigner
from ledger.store.session import Connection


def signer_of(installation: Installation, keys: KeyDirectory) -> CheckpointSigner:
    """
    Return a signer of this installation with the keys of its directory: none other is to be made.
    """
    dsn = installation.as_role(installation.roles.signer)
    return CheckpointSigner(dsn, keys, before_confirming=erasures_first(installation))


def erasures_first(installation: Installation) -> BeforeConfirming:
    """
    Return what carries erasures out again over the signer's connection, as the eraser.

    Without the right keys no log is confirmed: nobody could tell what is erased.
    """

    async def erase(connection: Connection, log_ids: Collection[int]) -> Mapping[int, LedgerError]:
        await connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(installation.roles.eraser)))
        try:
            keys = await open_checked_keys(installation, connection)
            return await erase_before_confirming(connection, keys, log_ids, InstalledCopies(installation=installation))
        except LedgerError as error:
            return dict.fromkeys(log_ids, error)
        finally:
            if not connection.closed:
                await connection.execute("RESET ROLE")  # to the one that it was opened with

    return erase
