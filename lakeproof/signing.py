"""
The signer of this installation: its keys and last notes lie in the home directory, outside the database.

The first key is made, or taken from an SSH agent, on the first start alone. A database that holds signed checkpoints
beside a home without a key is refused: signing on with another key would look, to every auditor, like a forged log.
"""

from __future__ import annotations

from lakeproof.erasures_first import signer_of
from lakeproof.errors import ServerError
from lakeproof.installation import Installation
from lakeproof.services import Services
from ledger.signing.key_directory import KeyDirectory, create_key_directory, enter_agent_key, holds_keys
from ledger.signing.key_ring import KeyLife
from ledger.signing.keys import parse_key_id
from ledger.signing.signer import CheckpointSigner
from ledger.signing.ssh_agent import find_key
from ledger.store.read import QUERIES
from ledger.store.session import Connection


async def open_signer(services: Services) -> CheckpointSigner:
    """
    Return the signer, making its key on the first start.

    Raises:
        KeyDirectoryError: if a key cannot be used, or others can read it.
        KeyUnavailableError: if an agent is to hold the key, and does not.
        ServerError: if checkpoints were signed by a key that is not here, or the settings name another key.
    """
    installation = services.installation
    roles = installation.roles
    if not holds_keys(installation.keys):
        async with services.gateway.database.as_role(roles.signer) as connection:
            row = await (await connection.execute("SELECT EXISTS (SELECT FROM ledger.checkpoints)")).fetchone()
        if row is None or row[0]:
            raise ServerError(
                f"the database holds signed checkpoints, but {installation.keys} holds no key: "
                "restore that directory from its backup"
            )
        _make_first_key(installation)
    keys = installation.open_keys()
    _check_named(keys, installation.settings.signer_agent_key)
    return signer_of(installation, keys)


def _make_first_key(installation: Installation) -> None:
    settings = installation.settings
    if settings.signer_agent_key is None:
        create_key_directory(installation.keys)
    elif settings.signer_agent is None:
        raise ServerError(
            "LAKEPROOF_SIGNER_AGENT_KEY names a key of an agent: name its socket in LAKEPROOF_SIGNER_AGENT"
        )
    else:
        enter_agent_key(installation.keys, find_key(settings.signer_agent, parse_key_id(settings.signer_agent_key)))


def _check_named(keys: KeyDirectory, named: str | None) -> None:
    """Check that the key which the settings name is one that signs: a setting is never silently without effect."""
    ring = keys.keys.ring
    signing = [record.key_id for record in ring.records if record.life is not KeyLife.RETIRED]
    if named is not None and named not in signing:
        raise ServerError(
            f"LAKEPROOF_SIGNER_AGENT_KEY is {named}, but what signs is {ring.active.key_id}: correct the setting, or "
            f"rotate to that key (lakeproof ledger keys rotate --agent-key {named})"
        )


async def latest_checkpoint_size(connection: Connection, log_id: int) -> int:
    """
    Return the size of the newest signed checkpoint of a log, 0 if there is none.
    """
    row = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log_id})).fetchone()
    return 0 if row is None else int(row[0])
