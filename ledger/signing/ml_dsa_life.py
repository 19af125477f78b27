"""
The life of the signer's ML-DSA-44 keys: one is added, signs beside the one before, and is retired. Never by itself.

Adding: the private half is on the disk before the ring tells of it; from the next checkpoint on it signs. To replace a
key without a gap, add another, let those who verify pin it, and retire: the older one ends first, and without another
the only one does.

Retiring: the ring tells that the key signs no more, then its private half is destroyed. What a crash leaves between the
two, the next change of the keys destroys; to retire again takes that up.

The Ed25519 keys have another life (`rotation.py`), which this changes nothing of; the active one signs the ring. The
log does not tell of these keys: an auditor pins one as he has pinned the first key, by a way outside of the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ledger.signing.key_directory import KeyDirectory
from ledger.signing.key_ring import KeyLife, MlDsaRecord
from ledger.signing.keys import SEED_SIZE_BYTES
from ledger.signing.ml_dsa import MlDsaKey
from ledger.signing.rotation import LOCK_TIMEOUT_S
from ledger.signing.stored_keys import destroy_strays, holds_ml_dsa_key, write_ml_dsa_key


def add_ml_dsa_key(directory: KeyDirectory, *, random: Callable[[int], bytes] = os.urandom) -> MlDsaRecord:
    """
    Make an ML-DSA-44 key that signs beside all others, and return it; `random` gives that many random bytes.

    Raises:
        RotationError: if two sign already, or it was there before.
        KeyUnavailableError: if the active Ed25519 key does not sign now.
        KeyDirectoryError: if the directory is damaged, or in use for long.
        OSError: if it cannot be written; nothing has changed then, but for a file that the next change destroys.
    """
    with directory.locked(timeout_s=LOCK_TIMEOUT_S):
        seed = random(SEED_SIZE_BYTES)
        public = MlDsaKey.from_seed(seed).public
        added = directory.keys.ring.with_ml_dsa(public)  # refuses, if it does, before anything is written
        # The ring must be there before such a key is: without one, the key is a sign of a lost ring.
        directory.replace_ring(directory.keys.ring)
        destroy_strays(directory.path, directory.keys.ring)
        write_ml_dsa_key(directory.path, seed, public)
        directory.replace_ring(added)
        return added.ml_dsa[-1]


def retire_ml_dsa_key(directory: KeyDirectory) -> MlDsaRecord:
    """
    Let the older of two ML-DSA-44 keys, or the only one, sign no more; destroy its private half and return it.

    A retirement that was stopped before the private half was destroyed is taken up, and nothing else is done.

    Raises:
        RotationError: if none signs.
        KeyUnavailableError: if the active Ed25519 key does not sign now.
        KeyDirectoryError: if the directory is damaged, or in use for long.
        OSError: if it cannot be written, or the private half not destroyed; it can be done again.
    """
    with directory.locked(timeout_s=LOCK_TIMEOUT_S):
        ring = directory.keys.ring
        stopped = [
            record
            for record in ring.ml_dsa
            if record.life is KeyLife.RETIRED and holds_ml_dsa_key(directory.path, record.public)
        ]
        destroy_strays(directory.path, ring)
        if stopped:  # a retirement that is taken up: the key that signs now must not end with it
            return stopped[-1]
        ring, retired = ring.without_ml_dsa()
        directory.replace_ring(ring)
        destroy_strays(directory.path, ring)
        return retired
