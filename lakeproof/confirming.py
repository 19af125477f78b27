"""
Confirms the logs before a command appends to them: a server that has just started takes nothing until that is done.

`lakeproof up` has its signer for this. A command that is alone on the server of its home does one round of it.
"""

from __future__ import annotations

from lakeproof.erasures_first import signer_of
from lakeproof.errors import ServerError
from lakeproof.installation import Installation
from lakeproof.messages import Say
from lakeproof.services import Services
from lakeproof.signing import open_signer
from ledger.errors import KeyDirectoryError, KeyUnavailableError
from ledger.signing.key_directory import holds_keys
from ledger.signing.signer import CheckpointSigner


async def confirm_logs(services: Services, say: Say) -> None:
    """
    Let the signer of this home compare every log once; nothing if another process does that, or has the key.

    What keeps the signer from it is said with `say`: commands that append nothing go on, the others will be refused.
    """
    installation = services.installation
    if installation.settings.dsn is not None and not holds_keys(installation.keys):
        return  # a server of the user's, perhaps seen from a machine where no signer has ever run
    try:
        signer = await open_signer(services)
        await signer.sign_once()
    except (KeyDirectoryError, KeyUnavailableError, ServerError) as error:
        say(f"the logs cannot be confirmed: {error}")
        return
    _tell(signer, say)


async def confirm_known_logs(installation: Installation, say: Say) -> None:
    """
    Do the same with the key that is there, if there is one: where none was ever made, no log can be set back.
    """
    if not holds_keys(installation.keys):
        return
    try:
        signer = signer_of(installation, installation.open_keys())
        await signer.sign_once()
    except (KeyDirectoryError, KeyUnavailableError) as error:
        say(f"the logs cannot be confirmed: {error}")
        return
    _tell(signer, say)


def _tell(signer: CheckpointSigner, say: Say) -> None:
    for refusal in signer.refused.values():
        say(str(refusal))
    for origin, error in signer.unconfirmed.items():
        say(f"log {origin} takes no entries: {error}")
