# SPDX-License-Identifier: Apache-2.0
"""
The keys of sealed payload parts in this installation: in the home directory, outside the database, like the signer's.

Several processes of one installation share the folder, as they share the home's other keys; a process that brings
another one is refused, since it would take everybody's parts for erased.
"""

from __future__ import annotations

from lakeproof.installation import Installation
from ledger.erasing.rerun import check_key_folder
from ledger.erasing.sealer import Sealer
from ledger.erasing.subject_keys import KeyFolder
from ledger.format.sealing import KeyOpener, LeavesPlain, Opener
from ledger.store.session import Connection


async def open_checked_keys(installation: Installation, eraser: Connection) -> KeyFolder:
    """
    Return the keys of this home, which must be those that the database's parts were sealed with.

    `eraser` is a connection of that role.

    Raises:
        SubjectKeysError: if they are not, or cannot be used.
    """
    keys = installation.open_subject_keys()
    await check_key_folder(eraser, keys.id)
    return keys


async def open_checked_opener(installation: Installation) -> Opener:
    """
    Return what opens sealed payload parts: the keys of this home, which the database's parts were sealed with.

    Raises:
        SubjectKeysError: if they are others, which open nothing, as if all had been erased.
    """
    async with installation.connect(installation.roles.eraser) as eraser:
        return KeyOpener(await open_checked_keys(installation, eraser))


def sealer(installation: Installation, keys: KeyFolder) -> Sealer | LeavesPlain:
    """
    Return what seals the parts that are appended, as the settings want it.
    """
    return Sealer(keys) if installation.settings.seal_parts else LeavesPlain(keys)
