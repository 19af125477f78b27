"""
The statements by which one key of a signer succeeds another, as notes that the keys themselves have signed. Pure.

    lakeproof signer rotation 1          lakeproof signer retirement 1
    <verifier key that signed so far>    <verifier key that is retired>
    <verifier key that joins>            <verifier key that goes on>
                                         <number of logs>
                                         <SHA-256, hex, of the canonical list of the last trees, sorted by origin>

Both are under the name of the system log, whose entries carry them. A rotation is signed by both keys: the old one
vouches for the new, the new one shows that its private half is there. A retirement is signed by the key that goes on,
and by the retired one, too, unless it is lost.

Why statements, where the entries are covered by signed checkpoints anyway: a checkpoint says that an entry stands in
the log, not that it is true. Whoever may append could name a key of his own there, and the signer would sign it along.
Neither statement can be taken for a checkpoint: its first line is not the name of the key that has signed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Final

from ledger import canonical
from ledger.checkpoint import SIZE_MAX
from ledger.errors import BrokenError, Fault, FormatError
from ledger.events import SignedTree, SignerRetired, SignerRotated, to_data
from ledger.merkle import HASH_SIZE_BYTES
from ledger.note import Signer, VerifierKey, open_note, sign_note

PAGE_SIZE_BYTES_MAX: Final = 48_000
"""Trees in one entry of a retirement: with the statement they stay under the 64,512 bytes of an event."""

_ROTATION: Final = "lakeproof signer rotation 1"
_RETIREMENT: Final = "lakeproof signer retirement 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """A retirement that was checked: `trees` are the last ones that `retired` has signed, sorted by origin."""

    retired: VerifierKey
    successor: VerifierKey
    trees: tuple[SignedTree, ...]


def state_rotation(previous: Signer, successor: Signer) -> SignerRotated:
    """
    Return the rotation from one key to another, signed by both; both speak under the name of the system log.

    Raises:
        KeyUnavailableError: if what holds one of them does not sign now.
    """
    note = sign_note(_rotation_text(previous.verifier_key, successor.verifier_key), [previous, successor])
    return SignerRotated(
        vkey=successor.verifier_key.format(), previous=previous.verifier_key.format(), note=note.decode()
    )


def check_rotation(event: SignerRotated, *, origin: str) -> tuple[VerifierKey, VerifierKey]:
    """
    Return the key before and the key that joins, if both have signed that, under the name `origin`.

    Raises:
        FormatError: if it is no such statement, or speaks of keys of another log.
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
    Return what all the pages of a retirement say together, if the key that goes on has signed it.

    Raises:
        FormatError: if they are not the pages, from first to last, of one statement of that log.
        BrokenError: (`Fault.SIGNATURE`) if the key that goes on has not signed it, or the retired one something else.
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
    """Return the trees in pages that are not empty, unless there are no trees at all."""
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
