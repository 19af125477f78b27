"""
Which keys a checkpoint may be signed with, from the entries of the system log. Pure: for an auditor with files alone.

Guarantee: a key that `follow_keys` trusts is one that the caller has pinned, or is tied to one by statements that the
keys themselves have signed (`succession.py`), each by the key before. So who pins the first key can verify a log after
any number of rotations, and who pins the newest one can verify old checkpoints.

A checkpoint has no time, so a key's end is told in sizes: `signer.retired` carries size and root of each log as the key
has signed them last. A checkpoint of a larger size that only a retired key has signed is refused, since that key was
destroyed before; so is one of a log that the key never signed. Both keys sign during an overlap, so either will do
there. The trees at the end of a key also bind: what a log was when a key retired, it must still begin with, whoever
finds the old key later.

Keys of ML-DSA-44 (`ml_dsa.py`) are no part of this: the log does not tell of them, so they count where they are pinned.
A line of one must verify, and stands beside those of the keys above, never in their place.

The entries must be verified besides, as those of any log, with the keys found here: their statements speak for
themselves, but only the log shows that none was left out at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from ledger.checkpoint import Checkpoint, open_checkpoint, parse_checkpoint
from ledger.entry import Entry, parse_entry
from ledger.envelope import read_envelope
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.events import SignedTree, SignerCreated, SignerRetired, SignerRotated, from_data
from ledger.note import ED25519, VerifierKey, parse_note
from ledger.signature import ML_DSA_44_COSIGNATURE
from ledger.signing.ml_dsa import ml_dsa_verifier_key
from ledger.signing.succession import Retirement, check_retirement, check_rotation
from ledger.witness.cosignature import open_cosignatures

_WHERE: Final = "history of the signer's keys"
_TYPES: Final = frozenset(kind.TYPE.encode() for kind in (SignerCreated, SignerRotated, SignerRetired))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTerm:
    """One key (32 bytes), and by origin the last trees it has signed; None while it is in force."""

    public: bytes
    last: Mapping[str, SignedTree] | None = None

    def signs(self, origin: str, size: int) -> bool:
        """Tell whether this key may have signed a checkpoint of that log at that size."""
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
    The keys of one signer that are trusted, oldest first; lines of its `ml_dsa` keys must verify where there are any.
    """

    terms: tuple[KeyTerm, ...]
    ml_dsa: tuple[bytes, ...] = ()

    def keys_for(self, origin: str, size: int) -> tuple[VerifierKey, ...]:
        """
        Return the keys that a checkpoint of that log at that size may be signed with, the newest first.
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
                `Fault.CHECKPOINT` if it is another log's.
        """
        # What it says of itself chooses the keys. If it lies, none of them has signed it.
        text, lines = parse_note(note)
        claimed = parse_checkpoint(text)
        checkpoint = open_checkpoint(note, self.keys_for(claimed.origin, claimed.size), origin=origin)
        open_cosignatures(text, lines, [ml_dsa_verifier_key(claimed.origin, public) for public in self.ml_dsa])
        return checkpoint

    def last_trees(self, origin: str) -> tuple[Checkpoint, ...]:
        """
        Return what a log was when each key retired, smallest first: it must go on from each of these.
        """
        ends = (term.last.get(origin) for term in self.terms if term.last is not None)
        trees = sorted((tree for tree in ends if tree is not None), key=lambda tree: tree.size)
        return tuple(Checkpoint(origin=origin, size=tree.size, root=bytes.fromhex(tree.root)) for tree in trees)


def follow_keys(entries: Iterable[bytes], pinned: Sequence[VerifierKey], *, origin: str) -> KeyHistory:
    """
    Return the history of the keys that `pinned` vouch for; `entries` are those of the system log, `origin` its name.

    One signer speaks for all logs of an installation with one key, so a pinned key may be of any of them. Keys of
    witnesses among `pinned` are passed over: no line under the name of a log is theirs.

    Raises:
        BrokenError: at the first entry about the signer that does not follow; carries its index. `Fault.SIGNATURE` if
            no pinned key is in the history at all.
        LedgerError: if keys of ML-DSA-44 are pinned and none of Ed25519: nothing can be said.
    """
    publics = {key.public for key in pinned if key.algorithm == ED25519}
    ml_dsa = dict.fromkeys(key.public for key in pinned if key.algorithm == ML_DSA_44_COSIGNATURE)
    if ml_dsa and not publics:
        raise LedgerError(
            f"the system log {origin} tells of Ed25519 keys only: pin one of those, too, and an ML-DSA-44 key beside it"
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
    """The keys as the entries tell of them, in chains: a key is in the chain of the key that vouches for it."""

    def __init__(self, origin: str) -> None:
        # More than one begins where a home was lost before its key had signed anything, or where somebody forges.
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
