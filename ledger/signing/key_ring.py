"""
The keys of one signer and where each is in its life, as the key directory keeps them.

    joining       made, but the system log does not tell of it yet: it signs nothing
    active        signs every checkpoint; there is one, always
    overlapping   the one before: signs every checkpoint beside the active one, until it is retired
    retiring      signs nothing any more, but the system log does not tell of that yet
    retired       its private half is destroyed; it verifies what it has signed

A key goes through them in this order (the first one of an installation begins as active), and while one key is on its
way, between two lasting states or beside the active one, no other begins: at most two keys sign.

The ring is kept as a note that the active key has signed: who can write the directory but not sign, as where an agent
holds the keys, cannot slip a key in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ledger import canonical
from ledger.canonical import Json
from ledger.errors import FormatError
from ledger.events import from_data, to_data
from ledger.note import VerifierKey, format_base64, open_note, parse_base64, parse_note, sign_note
from ledger.signing.errors import RotationError
from ledger.signing.keys import PUBLIC_KEY_SIZE_BYTES, NoteSigner, SigningKey, key_id

KEYS_MAX: Final = 1_000
"""Keys in the life of one installation: one a day for almost three years, one a year for ever."""

_NAME: Final = "lakeproof-signer-keys"
_HEADER: Final = "lakeproof signer keys 1"


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
"""How the lives of the keys that are not retired may follow one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """
    One key: its public half, where it is in its life, and what holds the private half.

    While it joins, `rotation` is the statement by which it succeeds the key before; then `rotated_at` is the index of
    that entry in the system log. The first key has neither.
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
class KeyRing:
    """All keys of a signer, oldest first."""

    records: tuple[KeyRecord, ...]

    def __post_init__(self) -> None:
        lives = tuple(record.life for record in self.records)
        retired = next((at for at, life in enumerate(lives) if life is not KeyLife.RETIRED), len(lives))
        if lives[retired:] not in _ENDS:
            expected = "retired keys, then an active one with at most one key on its way"
            raise FormatError("signer keys", expected=expected, found=[life.value for life in lives])
        if len({record.public for record in self.records}) != len(self.records) or len(self.records) > KEYS_MAX:
            raise FormatError("signer keys", expected=f"at most {KEYS_MAX} keys, all different", found=len(lives))

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

    def find(self, life: KeyLife) -> KeyRecord | None:
        """Return the key on its way that is there in its life, if there is one."""
        return next(iter(self._of(life)), None)

    def joined(self, record: KeyRecord) -> KeyRing:
        """
        Return the ring with one more key.

        Raises:
            RotationError: if another key is on its way, this one was there before, or there are too many.
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
        return KeyRing(records=(*self.records, replace(record, life=KeyLife.JOINING)))

    def activated(self, *, rotated_at: int) -> KeyRing:
        """Return the ring in which the key that joined is the active one, and the one before overlaps."""
        records = []
        for record in self.records:
            match record.life:
                case KeyLife.ACTIVE:
                    records.append(replace(record, life=KeyLife.OVERLAPPING))
                case KeyLife.JOINING:
                    records.append(replace(record, life=KeyLife.ACTIVE, rotation=None, rotated_at=rotated_at))
                case _:
                    records.append(record)
        return KeyRing(records=tuple(records))

    def silenced(self) -> KeyRing:
        """Return the ring in which the overlapping key signs nothing any more."""
        return self._moved(KeyLife.OVERLAPPING, KeyLife.RETIRING)

    def retired(self) -> KeyRing:
        """Return the ring in which the retiring key is retired."""
        return self._moved(KeyLife.RETIRING, KeyLife.RETIRED)

    def _moved(self, one: KeyLife, other: KeyLife) -> KeyRing:
        records = (replace(record, life=other) if record.life is one else record for record in self.records)
        return KeyRing(records=tuple(records))

    def _of(self, life: KeyLife) -> tuple[KeyRecord, ...]:
        return tuple(record for record in self.records if record.life is life)


def sign_ring(ring: KeyRing, active: SigningKey) -> bytes:
    """
    Return the ring as a note that its active key has signed.

    Raises:
        KeyUnavailableError: if that key does not sign now.
    """
    keys: list[Json] = [to_data(_stored(record)) for record in ring.records]
    text = f"{_HEADER}\n{canonical.encode(keys).decode()}\n"
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
    keys = canonical.decode(rest.removesuffix("\n").encode())
    if header != _HEADER or not isinstance(keys, list):
        raise FormatError("signer keys", expected=f"{_HEADER!r} and a list", found=text)
    ring = KeyRing(records=tuple(_record(from_data(_StoredRecord, key)) for key in keys))
    open_note(note, [VerifierKey.ed25519(name=_NAME, public=ring.active.public)])
    return ring


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRecord:
    """A `KeyRecord` as the file has it: bytes are base64."""

    public: str
    life: KeyLife
    source: KeySource
    rotation: str | None
    rotated_at: int | None


def _stored(record: KeyRecord) -> _StoredRecord:
    return _StoredRecord(
        public=format_base64(record.public),
        life=record.life,
        source=record.source,
        rotation=record.rotation,
        rotated_at=record.rotated_at,
    )


def _record(stored: _StoredRecord) -> KeyRecord:
    public = parse_base64(stored.public, what="public key")
    if len(public) != PUBLIC_KEY_SIZE_BYTES:
        raise FormatError("public key", expected=f"{PUBLIC_KEY_SIZE_BYTES} bytes", found=f"{len(public)} bytes")
    return KeyRecord(
        public=public,
        life=stored.life,
        source=stored.source,
        rotation=stored.rotation,
        rotated_at=stored.rotated_at,
    )
