# SPDX-License-Identifier: Apache-2.0
"""
The keys in a key directory: read, checked against each other, and changed so that a crash leaves a usable state.

A private key is on the disk before the ring lists it, and is destroyed before the ring says that it is gone. So a crash
leaves a file that the ring does not list, which the next change destroys, or a retiring key without one. ML-DSA-44 keys
retire at once: the ring changes first, so a crash leaves such a file, too.

Whoever changes the keys holds the directory's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from ledger.errors import BrokenError, FormatError, KeyDirectoryError, KeyUnavailableError
from ledger.files.atomic import replace_file
from ledger.files.private_files import check_private, destroy
from ledger.format import canonical
from ledger.format.cosignature import MlDsaKey, ml_dsa_key_id
from ledger.format.events import SignerRetired, from_data, to_data
from ledger.format.key_history import KeyHistory, KeyTerm, Retirement, check_retirement
from ledger.format.note import VerifierKey
from ledger.signing.key_ring import KeyLife, KeyRecord, KeyRing, KeySource, MlDsaRecord, open_ring, sign_ring
from ledger.signing.keys import SigningKey, format_seed, key_id, read_key_file, read_seed
from ledger.signing.ssh_agent import AgentKey

KEY_FILE: Final = "signing-key"
RING_FILE: Final = "keys"

ML_DSA_KEY_FILE: Final = "ml-dsa-44-key"

_LATER_KEYS: Final = "signing-key-*"
_ML_DSA_KEYS: Final = f"{ML_DSA_KEY_FILE}-*"
_HELD: Final = frozenset({KeyLife.JOINING, KeyLife.ACTIVE, KeyLife.OVERLAPPING})
"""Lives in which the private key exists."""

RingVersion = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKeys:
    """
    The keys of a directory as they were at one moment.

    `held` are those whose private key is available, by public key. `ml_dsa` are those of ML-DSA-44 that sign, the
    newest first. `history` says which key verifies what.
    """

    path: Path
    ring: KeyRing
    held: Mapping[bytes, SigningKey]
    ml_dsa: tuple[MlDsaKey, ...]
    history: KeyHistory
    version: RingVersion

    @property
    def signing(self) -> tuple[SigningKey, ...]:
        """The keys that sign, the active one first."""
        return tuple(self.held[record.public] for record in self.ring.signing)


def ring_version(path: Path) -> RingVersion:
    """
    Return a value that differs after every change of the keys in a directory: a change renames a new file over the old
    one.
    """
    try:
        found = (path / RING_FILE).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_stored_keys(path: Path, *, agent: Path | None) -> StoredKeys:
    """
    Return the keys in a directory; `agent` is the socket of the agent, for those that it holds.

    Raises:
        KeyDirectoryError: if there is no key, one is damaged or missing, or others may read one.
        KeyUnavailableError: if an agent holds a key and `agent` is None.
        OSError: if a file cannot be read.
    """
    check_private(path, mode=0o700)
    version = ring_version(path)
    if version is None:
        if later := sorted(file.name for pattern in (_LATER_KEYS, _ML_DSA_KEYS) for file in path.glob(pattern)):
            raise KeyDirectoryError(
                f"{path / RING_FILE} is not there, but {later[0]} is: restore the whole directory from its backup"
            )
        first = read_key_file(path / KEY_FILE)
        ring = KeyRing.of_first(first.public_key, KeySource.FILE)
        held: dict[bytes, SigningKey] = {first.public_key: first}
    else:
        ring = _read_ring(path / RING_FILE)
        held = {record.public: _hold(path, ring, record, agent) for record in ring.records if record.life in _HELD}
    terms = [_term(path, record) for record in ring.records if record.life is not KeyLife.JOINING]
    history = KeyHistory(terms=tuple(terms), ml_dsa=tuple(record.public for record in ring.ml_dsa))
    ml_dsa = tuple(_hold_ml_dsa(path, record) for record in ring.ml_dsa_signing)
    return StoredKeys(path=path, ring=ring, held=held, ml_dsa=ml_dsa, history=history, version=version)


def write_ring(path: Path, ring: KeyRing, held: Mapping[bytes, SigningKey]) -> None:
    """
    Replace the ring of a directory, signed by the key that is active in it.

    Raises:
        KeyUnavailableError: if that key does not sign now.
        OSError: if it cannot be written; the old ring or the new one is there then.
    """
    replace_file(path / RING_FILE, sign_ring(ring, held[ring.active.public]))


def write_later_key(path: Path, seed: bytes, public: bytes) -> None:
    """
    Write the private half of a later key, which the ring does not list yet.

    Raises:
        OSError: if it cannot be written.
    """
    replace_file(path / _later_name(public), format_seed(seed))


def write_ml_dsa_key(path: Path, seed: bytes, public: bytes) -> None:
    """
    Write the private half of an ML-DSA-44 key, which the ring does not list yet.

    Raises:
        OSError: if it cannot be written.
    """
    replace_file(path / _ml_dsa_name(public), format_seed(seed))


def holds_ml_dsa_key(path: Path, public: bytes) -> bool:
    """
    Return whether the private half of an ML-DSA-44 key exists, whatever the ring says of it.
    """
    return (path / _ml_dsa_name(public)).exists()


def destroy_strays(path: Path, ring: KeyRing) -> None:
    """
    Destroy private halves that the ring does not list: leftovers of a crash, and retired ML-DSA-44 keys.

    Raises:
        OSError: if that fails.
    """
    known = {_file(path, ring, record) for record in ring.records if record.source is KeySource.FILE}
    known |= {path / _ml_dsa_name(record.public) for record in ring.ml_dsa_signing}
    for pattern in (_LATER_KEYS, _ML_DSA_KEYS):
        for file in path.glob(pattern):
            if file not in known:
                destroy(file)


def destroy_key(path: Path, ring: KeyRing, record: KeyRecord) -> None:
    """
    Destroy the private half of a key. One that an agent holds stays there, for an operator to remove.

    Raises:
        OSError: if that fails; it can be done again.
    """
    if record.source is KeySource.FILE:
        destroy(_file(path, ring, record))


def write_retirement(path: Path, public: bytes, pages: Sequence[SignerRetired]) -> None:
    """
    Keep the pages of the retirement of a key.

    Raises:
        OSError: if they cannot be written.
    """
    replace_file(_retirement_file(path, public), canonical.encode([to_data(page) for page in pages]))


def read_retirement(path: Path, public: bytes) -> tuple[list[SignerRetired], Retirement]:
    """
    Return the pages of the retirement of a key, and what they say together.

    Raises:
        KeyDirectoryError: if they are damaged.
        OSError: if they cannot be read.
    """
    file = _retirement_file(path, public)
    try:
        stored = canonical.decode(file.read_bytes())
        if not isinstance(stored, list):
            raise _damaged(file, "expected a list of pages")
        pages = [from_data(SignerRetired, page) for page in stored]
        retirement = check_retirement(pages, origin=VerifierKey.parse(pages[0].vkey).name if pages else "")
    except FileNotFoundError as error:
        raise _damaged(file, "it is not there") from error
    except (FormatError, BrokenError) as error:
        raise _damaged(file, str(error)) from error
    if retirement.retired.public != public:
        raise _damaged(file, f"expected the key {key_id(public)}")
    return pages, retirement


def _read_ring(file: Path) -> KeyRing:
    check_private(file, mode=0o600)
    try:
        return open_ring(file.read_bytes())
    except (FormatError, BrokenError) as error:
        raise _damaged(file, str(error)) from error


def _hold(path: Path, ring: KeyRing, record: KeyRecord, agent: Path | None) -> SigningKey:
    if record.source is KeySource.AGENT:
        if agent is None:
            raise KeyUnavailableError(
                f"the key {record.key_id} is held by an agent: name its socket in LAKEPROOF_SIGNER_AGENT"
            )
        return AgentKey(socket=agent, public_key=record.public)
    file = _file(path, ring, record)
    try:
        key = read_key_file(file)
    except FileNotFoundError as error:
        raise _damaged(file, "it is not there") from error
    if key.public_key != record.public:
        raise _damaged(file, f"expected the key {record.key_id}, found {key.key_id}")
    return key


def _hold_ml_dsa(path: Path, record: MlDsaRecord) -> MlDsaKey:
    file = path / _ml_dsa_name(record.public)
    try:
        key = MlDsaKey.from_seed(read_seed(file))
    except FileNotFoundError as error:
        raise _damaged(file, "it is not there") from error
    if key.public != record.public:
        raise _damaged(file, f"expected the key {record.key_id}, found {ml_dsa_key_id(key.public)}")
    return key


def _term(path: Path, record: KeyRecord) -> KeyTerm:
    term = KeyTerm(public=record.public)
    if record.life in {KeyLife.ACTIVE, KeyLife.OVERLAPPING}:
        return term
    return term.ended(read_retirement(path, record.public)[1].trees)


def _file(path: Path, ring: KeyRing, record: KeyRecord) -> Path:
    return path / (KEY_FILE if record == ring.records[0] else _later_name(record.public))


def _later_name(public: bytes) -> str:
    return f"{KEY_FILE}-{_short(public)}"


def _ml_dsa_name(public: bytes) -> str:
    return f"{ML_DSA_KEY_FILE}-{ml_dsa_key_id(public)}"


def _retirement_file(path: Path, public: bytes) -> Path:
    return path / f"retirement-{_short(public)}"


def _short(public: bytes) -> str:
    return sha256(public).hexdigest()[:16]


def _damaged(file: Path, found: str) -> KeyDirectoryError:
    return KeyDirectoryError(f"{file} is damaged ({found}): restore the whole directory from its backup")
