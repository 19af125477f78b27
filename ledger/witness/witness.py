# SPDX-License-Identifier: Apache-2.0
"""
A witness: the rules of `rules.py`, applied in the order that makes them hold on a real disk.

Guarantee: of any two cosigned trees of one log, one is a prefix of the other, whatever crashes, and however many
clients send requests at once. How, for each request (C2SP tlog-witness, "add-checkpoint"):

1. The log is known and a trusted key has signed the checkpoint.
2. One request at a time proceeds for this log, and one process for this directory.
3. The checkpoint cosigned last is read from the disk, and opened with the witness's own keys.
4. The new one extends it.
5. The cosignatures are made and stored with the checkpoint, on the disk.
6. They are sent.

A crash between 5 and 6 leaves a checkpoint that was stored and never sent: the client repeats its request from that
size. The same happens after a disk failure in 5: the next checkpoint must extend what the disk shows then, and no
monitor is shown that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from ledger.errors import BrokenError, FormatError
from ledger.files.atomic import Disk, RealDisk
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.cosignature import Cosigner, format_cosignatures
from ledger.format.note import VerifierKey, format_note, open_note
from ledger.witness.rules import check_growth, open_request
from ledger.witness.store import WitnessStore, WitnessStoreError, open_cosigners


class Witness:
    """
    One witness. `clock` gives POSIX seconds. Its methods block on the disk, and threads may call them at once.

    The caller that makes one holds the store's lock: `open_witness` does.
    """

    def __init__(self, store: WitnessStore, cosigners: Sequence[Cosigner], clock: Callable[[], int]) -> None:
        # Set once; threads call the methods at the same time.
        self._store = store
        self._cosigners = cosigners
        self._clock = clock
        self._locks: dict[str, Lock] = {}
        """By origin, of known logs: held from reading the last checkpoint until the new one is stored."""

    @property
    def verifier_keys(self) -> list[VerifierKey]:
        """The keys that verifiers of this witness need."""
        return [cosigner.verifier_key for cosigner in self._cosigners]

    def add_checkpoint(self, body: bytes) -> bytes:
        """
        Cosign the checkpoint of a request and return the signature lines, one a key.

        Raises:
            RefusedError: if it must not be cosigned.
            WitnessStoreError: if the disk fails or what it holds is damaged; nothing is cosigned.
        """
        request = open_request(body, self._store.keys_of)  # 1
        origin = request.checkpoint.origin
        with self._locks.setdefault(origin, Lock()):  # 2
            check_growth(request, self.last(origin))  # 3, 4
            time_s = self._clock()
            lines = [cosigner.cosign(request.text, time_s=time_s) for cosigner in self._cosigners]
            self._store.keep(origin, format_note(request.text, [*request.lines, *lines]))  # 5
        return format_cosignatures(lines)  # 6

    def last(self, origin: str) -> Checkpoint | None:
        """
        Return the checkpoint of a known log that was cosigned last, None if there is none yet.

        Raises:
            WitnessStoreError: if it cannot be read, or this witness has not cosigned it.
        """
        note = self._store.last(origin)
        if note is None:
            return None
        try:
            return _opened(note, self.verifier_keys, origin)
        except (FormatError, BrokenError) as error:
            raise WitnessStoreError(f"what was cosigned of {origin} is damaged ({error}): restore it") from error

    def cosigned_note(self, origin_hash: str) -> bytes | None:
        """
        Return the checkpoint cosigned last, cosignatures included, of the log whose origin has this hash; None if there
        is none.

        A request in progress is not shown, because it has not been sent (step 6). `origin_hash` is 64 lower-case hex
        digits.
        """
        return self._store.last_by_hash(origin_hash)


@contextmanager
def open_witness(path: Path, *, clock: Callable[[], int], disk: Disk | None = None) -> Iterator[Witness]:
    """
    Yield the witness whose directory is `path`; no other process serves it meanwhile.

    Raises:
        WitnessStoreError: if the directory cannot be used, or another process serves it.
    """
    store = WitnessStore(path, disk or RealDisk())
    cosigners = open_cosigners(path)
    with store.locked():
        yield Witness(store, cosigners, clock)


def _opened(note: bytes, keys: Sequence[VerifierKey], origin: str) -> Checkpoint:
    checkpoint = parse_checkpoint(open_note(note, keys).text)
    if checkpoint.origin != origin:
        raise FormatError("last checkpoint", expected=origin, found=checkpoint.origin)
    return checkpoint
