"""
A witness: the rules of `rules.py`, done in the order that makes them hold on a real disk.

Guarantee: of one log no two cosignatures ever leave whose trees are not one the beginning of the other, whatever
crashes, and whoever asks at the same time. How, for each request (C2SP tlog-witness, "add-checkpoint"):

1. The log is known and a trusted key has signed the checkpoint.
2. One request at a time goes on for this log, and one process for this directory.
3. The checkpoint cosigned last is read from the disk, and opened with the witness's own keys.
4. The new one goes on from it.
5. The cosignatures are made and kept with the checkpoint, on the disk.
6. They leave.

A crash between 5 and 6 leaves a checkpoint that was kept and never seen: the client asks again from that size. So does
a disk that fails in 5: what it shows then is where the next one has to go on from, and is shown to no monitor.
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

    Whoever makes one holds the store's lock: `open_witness` does.
    """

    def __init__(self, store: WitnessStore, cosigners: Sequence[Cosigner], clock: Callable[[], int]) -> None:
        self._store = store
        self._cosigners = cosigners
        self._clock = clock
        self._locks: dict[str, Lock] = {}  # one for each known log that was asked for

    @property
    def verifier_keys(self) -> list[VerifierKey]:
        """The keys that those who trust this witness have to know."""
        return [cosigner.verifier_key for cosigner in self._cosigners]

    def add_checkpoint(self, body: bytes) -> bytes:
        """
        Cosign the checkpoint of a request and return the signature lines, one a key.

        Raises:
            RefusedError: if it must not be cosigned.
            WitnessStoreError: if the disk fails or what it holds is damaged; nothing is cosigned.
        """
        submission = open_request(body, self._store.keys_of)  # 1
        origin = submission.checkpoint.origin
        with self._locks.setdefault(origin, Lock()):  # 2
            check_growth(submission, self.last(origin))  # 3, 4
            time_s = self._clock()
            lines = [cosigner.cosign(submission.text, time_s=time_s) for cosigner in self._cosigners]
            self._store.keep(origin, format_note(submission.text, [*submission.lines, *lines]))  # 5
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
        Return the checkpoint cosigned last, cosignatures included, of the log whose origin has this hash.

        None if there is none. Of a request that is under way it shows nothing: that has not left (step 6).
        `origin_hash` is 64 lower-case hex digits.
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
