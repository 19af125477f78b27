# SPDX-License-Identifier: Apache-2.0
"""
Which keys a checkpoint may be signed with: pinned keys, or the history of a signer's keys. Pure.

Pinned keys never expire: what one of them has signed is signed. A history is read from the entries of the system log.
Guarantee: a key that `follow_keys` trusts is pinned by the caller, or linked to a pinned one by statements that the
keys themselves have signed, each by the key before. So a verifier that pins the first key can verify a log after any
number of rotations, and one that pins the newest key can verify old checkpoints.

    lakeproof signer rotation 1          lakeproof signer retirement 1
    <verifier key that signed so far>    <verifier key that is retired>
    <verifier key that joins>            <verifier key that continues>
                                         <number of logs>
                                         <SHA-256, hex, of the canonical list of the last trees, sorted by origin>

Both statements are signed under the name of the system log, whose entries carry them. A rotation is signed by both
keys: the old one authorises the new one, and the new one proves that its private half exists. A retirement is signed by
the key that continues and, unless it is lost, by the retired one.

Why statements, although signed checkpoints cover the entries: a checkpoint says that an entry is in the log, not that
it is true. Anyone who may append could name a key of their own there, and the signer would sign the tree with it.
Neither statement can be mistaken for a checkpoint: its first line is not the name of the key that has signed it.

A checkpoint has no time, so the end of a key is given in sizes: `signer.retired` carries size and root of each log as
the key has signed them last. A checkpoint of a larger size that only a retired key has signed is refused, because that
key was destroyed before. So is one of a log that the key never signed. Both keys sign during an overlap, so either is
accepted there. The trees at the end of a key also bind the log: it must extend them, even if the old key is found
later.

Keys of ML-DSA-44 (`cosignature.py`) are not part of this: the log does not record them, so only pinned ones count. A
line of one must verify, and is checked in addition to the keys above, never instead of them.

The entries must be verified, too, like those of any log, with the keys found here. Their statements are self-contained,
but only the log shows that none was left out at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from types import MappingProxyType
from typing import Final, TypeAlias

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format import canonical
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.cosignature import ml_dsa_verifier_key, open_cosignatures
from ledger.format.encoding import SIZE_MAX
from ledger.format.entry import Entry, parse_entry, read_envelope
from ledger.format.events import SignedTree, SignerCreated, SignerRetired, SignerRotated, from_data, to_data
from ledger.format.merkle import HASH_SIZE_BYTES
from ledger.format.note import Signer, VerifierKey, open_checkpoint, open_note, parse_note, sign_note
from ledger.format.signature import ED25519, ML_DSA_44_COSIGNATURE

PAGE_SIZE_BYTES_MAX: Final = 48_000
"""Trees in one entry of a retirement: with the statement they stay under the 64,512 bytes of an event."""
_ROTATION: Final = "lakeproof signer rotation 1"
_RETIREMENT: Final = "lakeproof signer retirement 1"

_WHERE: Final = "history of the signer's keys"
_TYPES: Final = frozenset(kind.TYPE.encode() for kind in (SignerCreated, SignerRotated, SignerRetired))

_TELLING: Final = b'"type":"signer.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """A verified retirement: `trees` are the last ones that `retired` has signed, sorted by origin."""

    retired: VerifierKey
    successor: VerifierKey
    trees: tuple[SignedTree, ...]


def state_rotation(previous: Signer, successor: Signer) -> SignerRotated:
    """
    Return the rotation from one key to another, signed by both under the name of the system log.

    Raises:
        KeyUnavailableError: if what holds one of them does not sign now.
    """
    note = sign_note(_rotation_text(previous.verifier_key, successor.verifier_key), [previous, successor])
    return SignerRotated(
        vkey=successor.verifier_key.format(), previous=previous.verifier_key.format(), note=note.decode()
    )


def check_rotation(event: SignerRotated, *, origin: str) -> tuple[VerifierKey, VerifierKey]:
    """
    Return the previous key and the joining one, if both have signed the statement under the name `origin`.

    Raises:
        FormatError: if it is no such statement, or names keys of another log.
        BrokenError: (`Fault.SIGNATURE`) if one of them has not signed it.
    """
    previous, successor = _key(event.previous, origin), _key(event.vkey, origin)
    _open(event.note, _rotation_text(previous, successor), [previous, successor], all_of=[previous, successor])
    return previous, successor


def state_retirement(
    signers: Sequence[Signer], *, retired: VerifierKey, successor: VerifierKey, trees: Sequence[SignedTree]
) -> list[SignerRetired]:
    """
    Return the pages of the retirement of a key that has signed `trees` last; `signers` sign it.

    Raises:
        FormatError: if a tree is none, or two are of one log.
        KeyUnavailableError: if what holds one of the keys does not sign now.
    """
    ordered = sorted(trees, key=lambda tree: tree.origin)
    _check_trees(ordered)
    note = sign_note(_retirement_text(retired, successor, ordered), signers).decode()
    split = _split(ordered)
    return [
        SignerRetired(
            vkey=retired.format(), successor=successor.format(), note=note, page=page, pages=len(split), trees=some
        )
        for page, some in enumerate(split)
    ]


def check_retirement(pages: Sequence[SignerRetired], *, origin: str) -> Retirement:
    """
    Return the content of all pages of a retirement, if the key that continues has signed it.

    Raises:
        FormatError: if they are not the pages, from first to last, of one statement of that log.
        BrokenError: (`Fault.SIGNATURE`) if the key that continues has not signed it, or the retired one has signed
            something else.
    """
    if not pages or [page.page for page in pages] != list(range(pages[0].pages)):
        found = [page.page for page in pages[:10]]
        raise FormatError("retirement", expected="its pages from the first to the last", found=found)
    if len({(page.vkey, page.successor, page.note, page.pages) for page in pages}) != 1:
        raise FormatError("retirement", expected="pages of one statement", found="pages of several")
    retired, successor = _key(pages[0].vkey, origin), _key(pages[0].successor, origin)
    trees = tuple(tree for page in pages for tree in page.trees)
    _check_trees(trees)
    _open(pages[0].note, _retirement_text(retired, successor, trees), [retired, successor], all_of=[successor])
    return Retirement(retired=retired, successor=successor, trees=trees)


def _rotation_text(previous: VerifierKey, successor: VerifierKey) -> str:
    return f"{_ROTATION}\n{previous.format()}\n{successor.format()}\n"


def _retirement_text(retired: VerifierKey, successor: VerifierKey, trees: Sequence[SignedTree]) -> str:
    digest = sha256(canonical.encode([to_data(tree) for tree in trees])).hexdigest()
    return f"{_RETIREMENT}\n{retired.format()}\n{successor.format()}\n{len(trees)}\n{digest}\n"


def _open(note: str, text: str, keys: Sequence[VerifierKey], *, all_of: Sequence[VerifierKey]) -> None:
    """Check that a note has this text, and that at least `all_of` the keys have signed it."""
    opened = open_note(note.encode(), keys)
    if opened.text != text:
        raise FormatError("statement", expected=f"the text {text!r:.150}", found=opened.text)
    for key in all_of:
        if key not in opened.verified:
            found = ", ".join(known.key_id.hex() for known in opened.verified)
            raise BrokenError(Fault.SIGNATURE, where="statement", expected=f"one by {key.key_id.hex()}", found=found)


def _key(vkey: str, origin: str) -> VerifierKey:
    key = VerifierKey.parse(vkey)
    if key.name != origin:
        raise FormatError("verifier key", expected=f"one of {origin}", found=key.name)
    return key


def _check_trees(trees: Sequence[SignedTree]) -> None:
    for one, other in pairwise(trees):
        if one.origin >= other.origin:
            raise FormatError("signed trees", expected="each log once, sorted by origin", found=other.origin)
    for tree in trees:
        digits = tree.root if len(tree.root) == 2 * HASH_SIZE_BYTES else ""
        if not digits or digits.strip("0123456789abcdef") or not 0 <= tree.size <= SIZE_MAX:
            raise FormatError("signed tree", expected="a size and a root hash of 32 bytes in hex", found=tree)


def _split(trees: Sequence[SignedTree]) -> list[tuple[SignedTree, ...]]:
    """Return the trees in pages, none of which is empty unless there are no trees at all."""
    pages: list[list[SignedTree]] = [[]]
    left_bytes = PAGE_SIZE_BYTES_MAX
    for tree in trees:
        size_bytes = len(canonical.encode(to_data(tree))) + 1
        if pages[-1] and size_bytes > left_bytes:
            pages.append([])
            left_bytes = PAGE_SIZE_BYTES_MAX
        pages[-1].append(tree)
        left_bytes -= size_bytes
    return [tuple(page) for page in pages]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTerm:
    """One key (32 bytes), and by origin the last trees it has signed; None while it is in use."""

    public: bytes
    last: Mapping[str, SignedTree] | None = None

    def signs(self, origin: str, size: int) -> bool:
        """Return whether this key may have signed a checkpoint of that log at that size."""
        if self.last is None:
            return True
        tree = self.last.get(origin)
        return tree is not None and size <= tree.size

    def ended(self, trees: Iterable[SignedTree]) -> KeyTerm:
        """Return the key as retired, after `trees`."""
        return replace(self, last=MappingProxyType({tree.origin: tree for tree in trees}))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHistory:
    """
    The trusted keys of one signer, oldest first. Every line of one of its `ml_dsa` keys must verify.
    """

    terms: tuple[KeyTerm, ...]
    ml_dsa: tuple[bytes, ...] = ()

    def keys_for(self, origin: str, size: int) -> tuple[VerifierKey, ...]:
        """
        Return the keys that may have signed a checkpoint of that log at that size, the newest first.
        """
        return tuple(
            VerifierKey.ed25519(name=origin, public=term.public)
            for term in reversed(self.terms)
            if term.signs(origin, size)
        )

    def open(self, note: bytes, *, origin: str | None = None) -> Checkpoint:
        """
        Return the checkpoint in `note`, if a key that may have signed it has; with `origin`, one of that log.

        Raises:
            FormatError: if it is not a checkpoint.
            BrokenError: `Fault.SIGNATURE` if none of them has signed it, or a line of an ML-DSA-44 key is bad,
                `Fault.CHECKPOINT` if it is of another log.
        """
        # Its own claims select the keys. If they are false, none of those keys has signed it.
        text, lines = parse_note(note)
        claimed = parse_checkpoint(text)
        checkpoint = open_checkpoint(note, self.keys_for(claimed.origin, claimed.size), origin=origin)
        open_cosignatures(text, lines, [ml_dsa_verifier_key(claimed.origin, public) for public in self.ml_dsa])
        return checkpoint

    def last_trees(self, origin: str) -> tuple[Checkpoint, ...]:
        """
        Return the trees of a log when each key retired, smallest first: the log must extend each of these.
        """
        ends = (term.last.get(origin) for term in self.terms if term.last is not None)
        trees = sorted((tree for tree in ends if tree is not None), key=lambda tree: tree.size)
        return tuple(Checkpoint(origin=origin, size=tree.size, root=bytes.fromhex(tree.root)) for tree in trees)


def follow_keys(entries: Iterable[bytes], pinned: Sequence[VerifierKey], *, origin: str) -> KeyHistory:
    """
    Return the history of the keys that are linked to `pinned`; `entries` are those of the system log, `origin` its
    name.

    One signer signs all logs of an installation with one key, so a pinned key may be of any of them. Keys of witnesses
    among `pinned` are skipped: no line under the name of a log is theirs.

    Raises:
        BrokenError: at the first entry about the signer that does not follow; carries its index. `Fault.SIGNATURE` if
            no pinned key is in the history at all.
        LedgerError: if keys of ML-DSA-44 are pinned and none of Ed25519: then nothing can be verified.
    """
    publics = {key.public for key in pinned if key.algorithm == ED25519}
    ml_dsa = dict.fromkeys(key.public for key in pinned if key.algorithm == ML_DSA_44_COSIGNATURE)
    if ml_dsa and not publics:
        raise LedgerError(
            f"the system log {origin} records Ed25519 keys only: pin one of those, too, not an ML-DSA-44 key alone"
        )
    chains = _Chains(origin)
    for data in entries:
        if b'"type":"signer.' in data and read_envelope(data).type in _TYPES:
            chains.add(parse_entry(data))
    trusted = [chain for chain in chains.chains if any(term.public in publics for term in chain)]
    if not trusted:
        expected = "one of the keys that are trusted"
        found = ", ".join(term.public.hex() for chain in chains.chains for term in chain) or "no key"
        raise BrokenError(Fault.SIGNATURE, where=_WHERE, expected=expected, found=found)
    return KeyHistory(terms=tuple(term for chain in trusted for term in chain), ml_dsa=tuple(ml_dsa))


class _Chains:
    """The keys of the entries, in chains: a key is in the chain of the key that authorised it."""

    def __init__(self, origin: str) -> None:
        # There is more than one if a home was lost before its key had signed anything, or if entries are forged.
        self.chains: list[list[KeyTerm]] = []
        self._origin = origin
        self._pages: dict[str, list[SignerRetired]] = {}

    def add(self, entry: Entry) -> None:
        try:
            self._add(entry)
        except (BrokenError, FormatError) as error:
            fault = error.fault if isinstance(error, BrokenError) else Fault.ENTRY
            raise BrokenError(
                fault, where=_WHERE, expected="what follows from the keys before", found=error, index=entry.index
            ) from error

    def _add(self, entry: Entry) -> None:
        if (entry.log, entry.version) != (self._origin, 1):
            expected = f"version 1 in {self._origin}"
            raise FormatError("entry", expected=expected, found=f"{entry.version} in {entry.log}")
        match entry.type:
            case SignerCreated.TYPE:
                self._create(from_data(SignerCreated, entry.data))
            case SignerRotated.TYPE:
                self._rotate(from_data(SignerRotated, entry.data))
            case SignerRetired.TYPE:
                self._retire(from_data(SignerRetired, entry.data))

    def _create(self, event: SignerCreated) -> None:
        key = VerifierKey.parse(event.vkey)
        if key.name != self._origin or key.algorithm != ED25519:
            raise FormatError("verifier key", expected=f"an Ed25519 key of {self._origin}", found=event.vkey)
        if self._chain_of(key) is None:
            self.chains.append([KeyTerm(public=key.public)])

    def _rotate(self, event: SignerRotated) -> None:
        previous, successor = check_rotation(event, origin=self._origin)
        chain = self._chain_of(previous)
        if chain is None or chain[-1].public != previous.public or any(term.last is None for term in chain[:-1]):
            expected = "a rotation from the one key that is in force"
            raise FormatError("rotation", expected=expected, found=f"one from {event.previous}")
        if self._chain_of(successor) is not None:
            raise FormatError("rotation", expected="a key that is new", found=event.vkey)
        chain.append(KeyTerm(public=successor.public))

    def _retire(self, event: SignerRetired) -> None:
        pages = self._pages.setdefault(event.vkey, [])
        pages.append(event)
        if event.page != len(pages) - 1:
            raise FormatError("retirement", expected=f"page {len(pages) - 1}", found=f"page {event.page}")
        if len(pages) == event.pages:
            self._end(check_retirement(pages, origin=self._origin))

    def _end(self, retirement: Retirement) -> None:
        chain = self._chain_of(retirement.retired)
        overlap = [] if chain is None else [term.public for term in chain[-2:] if term.last is None]
        if chain is None or overlap != [retirement.retired.public, retirement.successor.public]:
            expected = "the key before the one that is in force"
            raise FormatError("retirement", expected=expected, found=retirement.retired.format())
        chain[-2] = chain[-2].ended(retirement.trees)

    def _chain_of(self, key: VerifierKey) -> list[KeyTerm] | None:
        return next((chain for chain in self.chains if any(term.public == key.public for term in chain)), None)


Trusted: TypeAlias = Sequence[VerifierKey] | KeyHistory


def is_key_event(entry: bytes) -> bool:
    """Return whether an entry of the system log may be about the signer's keys; False is certain."""
    return _TELLING in entry


def follow_recorded_keys(entries: Iterable[bytes], pinned: Sequence[VerifierKey], *, origin: str) -> Trusted:
    """
    Return the history of the keys that are linked to `pinned`, or `pinned` if the system log `origin` records no keys.

    `entries` are those of the system log, or only those about keys. The log must be verified, too, with the result.

    Raises:
        BrokenError: as `follow_keys`; `Fault.ENTRY` if one of the entries is none.
    """
    recorded = [entry for entry in entries if is_key_event(entry)]
    if not recorded:
        return pinned
    try:
        return follow_keys(recorded, pinned, origin=origin)
    except FormatError as error:
        where = f"entries of {origin}"
        raise BrokenError(Fault.ENTRY, where=where, expected="entries about the signer's keys", found=error) from error


def open_signed(note: bytes, trusted: Trusted, *, origin: str | None = None) -> Checkpoint:
    """
    Return the checkpoint in `note`, if its log has signed it with a trusted key.

    Raises:
        FormatError, BrokenError: as `open_checkpoint` and `KeyHistory.open`.
    """
    if isinstance(trusted, KeyHistory):
        return trusted.open(note, origin=origin)
    return open_checkpoint(note, trusted, origin=origin)


def last_trees(trusted: Trusted, origin: str) -> Sequence[Checkpoint]:
    """
    Return the trees of the log when each key retired, smallest first: the log must extend each of these.
    """
    return trusted.last_trees(origin) if isinstance(trusted, KeyHistory) else ()


def every_key(trusted: Trusted, origin: str) -> Sequence[VerifierKey]:
    """
    Return all trusted keys of that log, for checkpoints of any size: for notes that were verified with them before.
    """
    if isinstance(trusted, KeyHistory):
        return [VerifierKey.ed25519(name=origin, public=term.public) for term in trusted.terms]
    return trusted
