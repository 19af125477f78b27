# SPDX-License-Identifier: Apache-2.0
"""
The keys of one signer and the life of each, as the key directory stores them.

    joining       made, but not in the system log yet: it signs nothing
    active        signs every checkpoint; there is always exactly one
    overlapping   the previous one: signs every checkpoint together with the active one, until it is retired
    retiring      signs nothing any more, but the system log does not say so yet
    retired       its private half is destroyed; it verifies what it has signed

A key passes through them in this order (the first one of an installation begins as active). No other key begins while
one is joining, overlapping or retiring, so at most two keys sign.

ML-DSA-44 keys, if there are any, have a lifecycle of their own: active, overlapping, retired.

A ring is stored as a note that the active key has signed. So somebody who can write the directory but not sign, for
example because an agent holds the keys, cannot add a key. A ring with ML-DSA-44 keys has version 2 of the text. Without
them it keeps the version that older software reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import dropwhile
from typing import Final

from ledger.errors import FormatError, RotationError
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.cosignature import PUBLIC_SIZE_BYTES, ml_dsa_key_id
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.events import from_data, to_data
from ledger.format.note import VerifierKey, open_note, parse_note, sign_note
from ledger.signing.keys import PUBLIC_KEY_SIZE_BYTES, NoteSigner, SigningKey, key_id

KEYS_MAX: Final = 1_000
"""Keys in the life of one installation: enough for a daily rotation over almost three years."""
ML_DSA_KEYS_MAX: Final = 100
"""The same for ML-DSA-44, whose public keys are forty times as large."""

_NAME: Final = "lakeproof-signer-keys"
_HEADER: Final = "lakeproof signer keys 1"
_HEADER_ML_DSA: Final = "lakeproof signer keys 2"


class KeyLife(StrEnum):
    """Where a key is in its life."""

    JOINING = "joining"
    ACTIVE = "active"
    OVERLAPPING = "overlapping"
    RETIRING = "retiring"
    RETIRED = "retired"


class KeySource(StrEnum):
    """What holds the private half of a key."""

    FILE = "file"
    AGENT = "agent"


_ENDS: Final = (
    (KeyLife.ACTIVE,),
    (KeyLife.ACTIVE, KeyLife.JOINING),
    (KeyLife.OVERLAPPING, KeyLife.ACTIVE),
    (KeyLife.RETIRING, KeyLife.ACTIVE),
)
"""The allowed lives of the keys that are not retired, oldest key first."""

_ML_DSA_ENDS: Final = ((), (KeyLife.ACTIVE,), (KeyLife.OVERLAPPING, KeyLife.ACTIVE))
"""The same for ML-DSA-44 keys: there need not be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """
    One key: its public half, its life, and what holds the private half.

    While it joins, `rotation` is the statement by which it succeeds the previous key. After that, `rotated_at` is the
    index of that entry in the system log. The first key has neither.
    """

    public: bytes
    life: KeyLife
    source: KeySource
    rotation: str | None = None
    rotated_at: int | None = None

    @property
    def key_id(self) -> str:
        """The id by which people and tools name the key."""
        return key_id(self.public)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlDsaRecord:
    """One ML-DSA-44 key: its public half, and its life."""

    public: bytes
    life: KeyLife

    @property
    def key_id(self) -> str:
        """The id by which people name the key."""
        return ml_dsa_key_id(self.public)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRing:
    """All keys of a signer, oldest first: those of Ed25519, and in `ml_dsa` those of ML-DSA-44, if there are any."""

    records: tuple[KeyRecord, ...]
    ml_dsa: tuple[MlDsaRecord, ...] = ()

    def __post_init__(self) -> None:
        if (lives := _lasting(self.records)) not in _ENDS:
            expected = "retired keys, then an active one with at most one key on its way"
            raise FormatError("signer keys", expected=expected, found=[life.value for life in lives])
        if (lives := _lasting(self.ml_dsa)) not in _ML_DSA_ENDS:
            expected = "retired keys, then perhaps an active one with at most one before it"
            raise FormatError("ML-DSA-44 keys", expected=expected, found=[life.value for life in lives])
        if len({record.public for record in self.records}) != len(self.records) or len(self.records) > KEYS_MAX:
            expected = f"at most {KEYS_MAX} keys, all different"
            raise FormatError("signer keys", expected=expected, found=len(self.records))
        if len({record.public for record in self.ml_dsa}) != len(self.ml_dsa) or len(self.ml_dsa) > ML_DSA_KEYS_MAX:
            expected = f"at most {ML_DSA_KEYS_MAX} keys, all different"
            raise FormatError("ML-DSA-44 keys", expected=expected, found=len(self.ml_dsa))

    @classmethod
    def of_first(cls, public: bytes, source: KeySource) -> KeyRing:
        """Return the ring of a signer with its first key."""
        return cls(records=(KeyRecord(public=public, life=KeyLife.ACTIVE, source=source),))

    @property
    def active(self) -> KeyRecord:
        """The key that signs every checkpoint."""
        return self._of(KeyLife.ACTIVE)[0]

    @property
    def signing(self) -> tuple[KeyRecord, ...]:
        """The keys that sign, the active one first."""
        return (*self._of(KeyLife.ACTIVE), *self._of(KeyLife.OVERLAPPING))

    @property
    def ml_dsa_signing(self) -> tuple[MlDsaRecord, ...]:
        """The ML-DSA-44 keys that sign, the newest first."""
        return tuple(record for record in reversed(self.ml_dsa) if record.life is not KeyLife.RETIRED)

    def find(self, life: KeyLife) -> KeyRecord | None:
        """Return the key that is in this life, if there is one."""
        return next(iter(self._of(life)), None)

    def joined(self, record: KeyRecord) -> KeyRing:
        """
        Return the ring with one more key.

        Raises:
            RotationError: if another key is joining, overlapping or retiring, this one was used before, or there are
                too many.
        """
        for other in self.records:
            if other.public == record.public:
                raise RotationError(f"the key {record.key_id} is {other.life} here: a key is never used twice")
            if other.life is KeyLife.JOINING:
                raise RotationError(f"the key {other.key_id} is joining just now: wait for that")
            if other.life not in {KeyLife.ACTIVE, KeyLife.RETIRED}:
                raise RotationError(
                    f"the key {other.key_id} is {other.life}: retire it first (lakeproof ledger keys retire)"
                )
        if len(self.records) >= KEYS_MAX:
            raise RotationError(f"this signer has had {KEYS_MAX} keys, which is the limit: start a new installation")
        return replace(self, records=(*self.records, replace(record, life=KeyLife.JOINING)))

    def activated(self, *, rotated_at: int) -> KeyRing:
        """Return the ring in which the joining key is the active one, and the previous one overlaps."""
        records = []
        for record in self.records:
            match record.life:
                case KeyLife.ACTIVE:
                    records.append(replace(record, life=KeyLife.OVERLAPPING))
                case KeyLife.JOINING:
                    records.append(replace(record, life=KeyLife.ACTIVE, rotation=None, rotated_at=rotated_at))
                case _:
                    records.append(record)
        return replace(self, records=tuple(records))

    def silenced(self) -> KeyRing:
        """Return the ring in which the overlapping key signs nothing any more."""
        return self._moved(KeyLife.OVERLAPPING, KeyLife.RETIRING)

    def retired(self) -> KeyRing:
        """Return the ring in which the retiring key is retired."""
        return self._moved(KeyLife.RETIRING, KeyLife.RETIRED)

    def with_ml_dsa(self, public: bytes) -> KeyRing:
        """
        Return the ring in which one more ML-DSA-44 key is the active one, and the one before, if any, overlaps.

        Raises:
            RotationError: if two sign already, this one was there before, or there are too many.
        """
        if len(self.ml_dsa_signing) > 1:
            raise RotationError("two ML-DSA-44 keys sign: retire one first (lakeproof ledger keys retire-ml-dsa)")
        if any(record.public == public for record in self.ml_dsa):
            raise RotationError(f"the ML-DSA-44 key {ml_dsa_key_id(public)} was here before: a key is never used twice")
        if len(self.ml_dsa) >= ML_DSA_KEYS_MAX:
            raise RotationError(f"this signer has had {ML_DSA_KEYS_MAX} ML-DSA-44 keys, which is the limit")
        before = (
            replace(record, life=KeyLife.OVERLAPPING) if record.life is KeyLife.ACTIVE else record
            for record in self.ml_dsa
        )
        return replace(self, ml_dsa=(*before, MlDsaRecord(public=public, life=KeyLife.ACTIVE)))

    def without_ml_dsa(self) -> tuple[KeyRing, MlDsaRecord]:
        """
        Return the ring in which the older of two signing ML-DSA-44 keys, or the only one, is retired; and that key.

        Raises:
            RotationError: if none signs.
        """
        if not (signing := self.ml_dsa_signing):
            raise RotationError("no ML-DSA-44 key signs: there is none to retire")
        oldest = replace(signing[-1], life=KeyLife.RETIRED)
        records = (oldest if record.public == oldest.public else record for record in self.ml_dsa)
        return replace(self, ml_dsa=tuple(records)), oldest

    def _moved(self, one: KeyLife, other: KeyLife) -> KeyRing:
        records = (replace(record, life=other) if record.life is one else record for record in self.records)
        return replace(self, records=tuple(records))

    def _of(self, life: KeyLife) -> tuple[KeyRecord, ...]:
        return tuple(record for record in self.records if record.life is life)


def _lasting(records: Sequence[KeyRecord] | Sequence[MlDsaRecord]) -> tuple[KeyLife, ...]:
    """Return the lives from the first one on that is not retired."""
    return tuple(dropwhile(lambda life: life is KeyLife.RETIRED, (record.life for record in records)))


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

    Whether that is the right key is checked by whoever has its private half, or knows its id.

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
