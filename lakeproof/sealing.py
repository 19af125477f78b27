"""
The keys of sealed payload parts in this installation: in the home directory, outside the database, like the signer's.

Several processes of one installation share the folder, as they share the home's other keys; a process that brings
another one is refused, since it would take everybody's parts for erased.
"""

from __future__ import annotations

from lakeproof.installation import Installation
from ledger.erasing.rerun import check_key_folder
from ledger.erasing.sealer import Sealer
from ledger.erasing.subject_keys import KeyFolder, open_key_encryption, open_key_folder
from ledger.format.sealing import LeavesPlain
from ledger.store.session import Connection


def open_subject_keys(installation: Installation) -> KeyFolder:
    """
    Return the keys of this home, made on the first start.

    Raises:
        SubjectKeysError: if they cannot be used.
        KeyDirectoryError: if others may read them.
    """
    home_keys = installation.keys
    home_keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = installation.settings.key_encryption_key or home_keys / "key-encryption-key"
    return open_key_folder(home_keys / "subjects", open_key_encryption(file))


async def open_checked_keys(installation: Installation, eraser: Connection) -> KeyFolder:
    """
    Return the keys of this home, which must be those that the database's parts were sealed with.

    `eraser` is a connection of that role.

    Raises:
        SubjectKeysError: if they are not, or cannot be used.
    """
    keys = open_subject_keys(installation)
    await check_key_folder(eraser, keys.id)
    return keys


def sealer(installation: Installation, keys: KeyFolder) -> Sealer | LeavesPlain:
    """
    Return what seals the parts that are appended, as the settings want it.
    """
    return Sealer(keys) if installation.settings.seal_parts else LeavesPlain(keys)
