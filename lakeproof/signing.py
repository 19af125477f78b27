"""
The signer of this installation: its key and last notes lie in the home directory, outside the database.

A key is made on the first start alone. A database that holds signed checkpoints beside a home without a key is refused:
signing on with another key would look, to every auditor, like a forged log.
"""

from __future__ import annotations

from lakeproof.errors import ServerError
from lakeproof.services import Services
from ledger.read import QUERIES, Connection
from ledger.signing.key_directory import KEY_FILE, create_key_directory, open_key_directory
from ledger.signing.signer import Signer


async def open_signer(services: Services) -> Signer:
    """
    Return the signer, making its key on the first start.

    Raises:
        KeyDirectoryError: if the key cannot be used, or others can read it.
        ServerError: if checkpoints were signed by a key that is not here.
    """
    foundation = services.foundation
    roles = foundation.installation.roles
    if not (foundation.keys / KEY_FILE).exists():
        async with services.house.database.as_role(roles.signer) as connection:
            row = await (await connection.execute("SELECT EXISTS (SELECT FROM ledger.checkpoints)")).fetchone()
        if row is None or row[0]:
            raise ServerError(
                f"the database holds signed checkpoints, but {foundation.keys} holds no key: "
                "restore that directory from its backup"
            )
        create_key_directory(foundation.keys)
    return Signer(foundation.installation.as_role(roles.signer), open_key_directory(foundation.keys))


async def latest_checkpoint_size(connection: Connection, log_id: int) -> int:
    """
    Return the size of the newest signed checkpoint of a log, 0 if there is none.
    """
    row = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log_id})).fetchone()
    return 0 if row is None else int(row[0])
