"""
The ring of keys as the key directory keeps it: a note that the active key has signed.

Who can write the directory but not sign, as where an agent holds the keys, cannot slip a key in. A ring with ML-DSA-44
keys has version 2 of the text; without them it stays the version that older software reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ledger import canonical
from ledger.canonical import Json
from ledger.errors import FormatError
from ledger.events import from_data, to_data
from ledger.note import VerifierKey, format_base64, open_note, parse_base64, parse_note, sign_note
from ledger.signing.key_ring import KeyLife, KeyRecord, KeyRing, KeySource, MlDsaRecord
from ledger.signing.keys import PUBLIC_KEY_SIZE_BYTES, NoteSigner, SigningKey
from ledger.signing.ml_dsa import PUBLIC_SIZE_BYTES

_NAME: Final = "lakeproof-signer-keys"
_HEADER: Final = "lakeproof signer keys 1"
_HEADER_ML_DSA: Final = "lakeproof signer keys 2"


def sign_ring(ring: KeyRing, active: SigningKey) -> bytes:
    """
    Return the ring as a note that its active key has signed.

    Raises:
        KeyUnavailableError: if that key does not sign now.
    """
    header, content = _HEADER, _list(_stored(record) for record in ring.records)
    if ring.ml_dsa:
        header = _HEADER_ML_DSA
        content = {"ed25519": content, "ml_dsa_44": _list(_stored_ml_dsa(record) for record in ring.ml_dsa)}
    text = f"{header}\n{canonical.encode(content).decode()}\n"
    return sign_note(text, [NoteSigner(name=_NAME, key=active)])


def open_ring(note: bytes) -> KeyRing:
    """
    Return the ring in a note, if the key that it calls active has signed it.

    Whether that key is the right one is for who has its private half, or its id, to say.

    Raises:
        FormatError: if it is no such note.
        BrokenError: if that key has not signed it.
    """
    text, _ = parse_note(note)
    header, _, rest = text.partition("\n")
    ring = _ring(header, canonical.decode(rest.removesuffix("\n").encode()))
    open_note(note, [VerifierKey.ed25519(name=_NAME, public=ring.active.public)])
    return ring


def _ring(header: str, content: Json) -> KeyRing:
    keys, ml_dsa = content, None
    if header == _HEADER_ML_DSA and isinstance(content, dict) and content.keys() == {"ed25519", "ml_dsa_44"}:
        keys, ml_dsa = content["ed25519"], content["ml_dsa_44"]
    elif header != _HEADER:
        raise FormatError("signer keys", expected=f"{_HEADER!r} or {_HEADER_ML_DSA!r} with its members", found=header)
    # Version 2 is written only where there is a key of ML-DSA-44: one spelling for each ring.
    if not isinstance(keys, list) or not (ml_dsa is None or (isinstance(ml_dsa, list) and ml_dsa)):
        raise FormatError("signer keys", expected="lists of keys", found=content)
    return KeyRing(
        records=tuple(_record(from_data(_StoredRecord, key)) for key in keys),
        ml_dsa=tuple(_ml_dsa_record(from_data(_StoredMlDsaRecord, key)) for key in ml_dsa or ()),
    )


def _list(records: Iterable[object]) -> Json:
    return [to_data(record) for record in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRecord:
    """A `KeyRecord` as the file has it: bytes are base64."""

    public: str
    life: KeyLife
    source: KeySource
    rotation: str | None
    rotated_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredMlDsaRecord:
    """An `MlDsaRecord` as the file has it: bytes are base64."""

    public: str
    life: KeyLife


def _stored(record: KeyRecord) -> _StoredRecord:
    return _StoredRecord(
        public=format_base64(record.public),
        life=record.life,
        source=record.source,
        rotation=record.rotation,
        rotated_at=record.rotated_at,
    )


def _stored_ml_dsa(record: MlDsaRecord) -> _StoredMlDsaRecord:
    return _StoredMlDsaRecord(public=format_base64(record.public), life=record.life)


def _ml_dsa_record(stored: _StoredMlDsaRecord) -> MlDsaRecord:
    return MlDsaRecord(public=_public(stored.public, PUBLIC_SIZE_BYTES), life=stored.life)


def _public(text: str, size_bytes: int) -> bytes:
    public = parse_base64(text, what="public key")
    if len(public) != size_bytes:
        raise FormatError("public key", expected=f"{size_bytes} bytes", found=f"{len(public)} bytes")
    return public


def _record(stored: _StoredRecord) -> KeyRecord:
    return KeyRecord(
        public=_public(stored.public, PUBLIC_KEY_SIZE_BYTES),
        life=stored.life,
        source=stored.source,
        rotation=stored.rotation,
        rotated_at=stored.rotated_at,
    )
