# SPDX-License-Identifier: Apache-2.0
"""A witness on a disk that fails: after every crash, and whoever asks at once, it has cosigned one history only."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from threading import Barrier

import pytest

from ledger.errors import LedgerError
from ledger.files.atomic import Forced, Owner, RealDisk
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.cosignature import open_cosignatures, parse_cosignatures
from ledger.format.note import open_note
from ledger.witness.rules import Refusal, RefusedError
from ledger.witness.store import WitnessStore, WitnessStoreError, origin_hash
from ledger.witness.witness import Witness
from testkit.ledger.witnesses import (
    GENUINE,
    LOG,
    ORIGIN,
    OTHER_LOG,
    SIZE,
    TIME_S,
    History,
    forked,
    make_witness,
    opened,
)

FORK = forked(GENUINE, 2)


class Crash(BaseException):
    """The machine has stopped: nothing that would handle an error runs."""


class FaultyDisk(RealDisk):
    """
    A disk on which one point of a replacement fails with an error: a crash, or one that the witness survives.

    Nothing outlives a loss of power but what was synced: a file that was not is cut, and `lose_power` undoes a rename.
    At every point `watch` is called, as one who asks at that very moment.
    """

    def __init__(self, point: str, error: BaseException) -> None:
        self.point = point
        self.error = error
        self.watch: Callable[[], None] = lambda: None
        self.synced: list[Path] = []
        self._undo: Callable[[], None] | None = None

    def lose_power(self) -> None:
        if self._undo is not None:
            self._undo()

    def _reach(self, point: str) -> None:
        self.watch()
        if self.point == point:
            raise self.error

    def write(self, path: Path, data: bytes, *, mode: int, owner: Owner | None, forced: Forced) -> None:
        self._reach("before write")
        if self.point == "within write":
            path.write_bytes(data[: len(data) // 2])
        self._reach("within write")
        super().write(path, data, mode=mode, owner=owner, forced=forced)
        self._reach("after write")

    def replace(self, path: Path, target: Path) -> None:
        self._reach("before rename")
        old, new = target.read_bytes(), path.read_bytes()
        super().replace(path, target)

        def undo() -> None:
            path.write_bytes(new)
            target.write_bytes(old)

        self._undo = self._undo or undo  # what the last sync has left, however often it failed since
        self._reach("after rename")

    def sync_directory(self, path: Path) -> None:
        renamed = self._undo is not None  # at the start of a witness nothing is replaced
        if renamed:
            self._reach("before sync")
        super().sync_directory(path)
        self.synced.append(path)
        self._undo = None
        if renamed:
            self._reach("before answer")


POINTS = [
    "before write",
    "within write",
    "after write",
    "before rename",
    "after rename",
    "before sync",
    "before answer",
]


class Client:
    """Asks a witness as a log would, or two that disagree, and keeps every cosignature that has left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[Checkpoint] = []

    def ask(self, witness: Witness, history: History, size: int) -> None:
        last = witness.last(ORIGIN)
        answer = witness.add_checkpoint(history.request(last.size if last else 0, size))
        text = history.text(size)
        times = open_cosignatures(text, parse_cosignatures(answer), witness.verifier_keys)
        assert times == dict.fromkeys(witness.verifier_keys, TIME_S)
        self.seen.append(parse_checkpoint(text))

    def look(self, witness: Witness) -> None:
        """Keep the cosignatures that a monitor is shown."""
        note = witness.cosigned_note(origin_hash(ORIGIN))
        if note is not None:
            opened = open_note(note, [LOG.verifier_key, *witness.verifier_keys])
            assert opened.verified == (LOG.verifier_key, *witness.verifier_keys)
            self.seen.append(parse_checkpoint(opened.text))

    def assert_one_history(self) -> None:
        for history in (GENUINE, FORK):
            if all(checkpoint == history.checkpoint(checkpoint.size) for checkpoint in self.seen):
                return
        raise AssertionError(self.seen)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_witness(tmp_path / "witness")


CRASHES = [(point, first, number % 2 == 0) for number, (point, first) in enumerate(product(POINTS, (None, 2, 5)))]
"""At each point, with each beginning; the rename survives at every other."""


@pytest.mark.parametrize(("point", "first", "rename_survives"), CRASHES)
def test_a_crash_at_any_step_leaves_a_witness_of_one_history(
    path: Path, point: str, rename_survives: bool, first: int | None
) -> None:
    client = Client(path)
    if first is not None:
        with opened(path) as witness:
            client.ask(witness, GENUINE, first)
    disk = FaultyDisk(point, Crash())
    with suppress(Crash), opened(path, disk) as witness:
        disk.watch = partial(client.look, witness)
        client.ask(witness, GENUINE, 7)
    if not rename_survives:
        disk.lose_power()
    for history, size in [(FORK, 7), (FORK, 9), (GENUINE, 7), (GENUINE, 8), (FORK, SIZE)]:
        with opened(path) as witness, suppress(RefusedError):
            client.look(witness)
            client.ask(witness, history, size)
        client.assert_one_history()
    assert len(client.seen) >= 2
    with opened(path) as witness:
        assert witness.last(ORIGIN) == client.seen[-1]


FAILURES = [
    (*place, (None, 2, 5)[number % 3])
    for number, place in enumerate(product(POINTS, ("GENUINE", "FORK"), (True, False)))
]
"""At each point, with each history behind it, with power and without; the beginnings in turn."""


@pytest.mark.parametrize(("point", "then_told", "power_is_lost", "first"), FAILURES)
def test_a_disk_that_fails_at_any_step_leaves_a_witness_of_one_history(
    path: Path, point: str, then_told: str, power_is_lost: bool, first: int | None
) -> None:
    client, then = Client(path), {"GENUINE": GENUINE, "FORK": FORK}[then_told]
    disk = FaultyDisk("", OSError(5, "Input/output error"))
    with opened(path, disk) as witness:
        disk.watch = partial(client.look, witness)
        if first is not None:
            client.ask(witness, GENUINE, first)
        for history, size in [(GENUINE, 7), (then, 7), (then, 8)]:
            disk.point = point
            with suppress(RefusedError), pytest.raises(WitnessStoreError, match="nothing is cosigned"):
                client.ask(witness, history, size)
        if not power_is_lost:
            disk.point = ""
            with suppress(RefusedError):
                client.ask(witness, then, 9)
        client.look(witness)
    disk.lose_power()
    for history, size in [(FORK, 7), (FORK, 9), (GENUINE, 7), (GENUINE, 9), (FORK, SIZE)]:
        with opened(path) as witness, suppress(RefusedError):
            client.look(witness)
            client.ask(witness, history, size)
    client.assert_one_history()


@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_cosigned_before_it_is_on_the_disk(path: Path, point: str) -> None:
    with pytest.raises(Crash), opened(path, FaultyDisk(point, Crash())) as witness:
        witness.add_checkpoint(GENUINE.request(0, 7))


def test_a_monitor_is_shown_what_was_cosigned_before_until_the_new_one_is_on_the_disk(path: Path) -> None:
    shown: list[bytes | None] = []
    disk = FaultyDisk("", Crash())
    with opened(path, disk) as witness:
        witness.add_checkpoint(GENUINE.request(0, 7))
        before = witness.cosigned_note(origin_hash(ORIGIN))
        disk.watch = lambda: shown.append(witness.cosigned_note(origin_hash(ORIGIN)))
        witness.add_checkpoint(GENUINE.request(7, 9))
        after = witness.cosigned_note(origin_hash(ORIGIN))
    assert shown == [before] * (len(POINTS) - 1) + [shown[-1]]
    assert shown[-1] in {before, after}
    assert after is not None
    assert open_note(after, [LOG.verifier_key]).text == GENUINE.text(9)


def test_what_a_killed_witness_has_left_is_forced_to_the_disk_before_it_is_shown(path: Path) -> None:
    with suppress(Crash), opened(path, FaultyDisk("after rename", Crash())) as witness:
        witness.add_checkpoint(GENUINE.request(0, 7))
    disk = FaultyDisk("", Crash())
    with opened(path, disk) as witness:
        assert disk.synced == [path / "logs"]
        assert witness.cosigned_note(origin_hash(ORIGIN)) is not None

    class DeadDisk(RealDisk):
        def sync_directory(self, path: Path) -> None:
            raise OSError(5, "Input/output error", str(path))

    with pytest.raises(WitnessStoreError, match="Input/output error"), opened(path, DeadDisk()):
        pass


class FullDisk(RealDisk):
    """A disk without room for another byte."""

    def write(self, path: Path, data: bytes, *, mode: int, owner: Owner | None, forced: Forced) -> None:
        raise OSError(28, "No space left on device", f"{path}, {len(data)} bytes: {mode:o}, {owner}, {forced}")


def test_a_full_disk_cosigns_nothing_and_the_next_try_does(path: Path) -> None:
    with opened(path, FullDisk()) as witness, pytest.raises(WitnessStoreError, match="No space left"):
        witness.add_checkpoint(GENUINE.request(0, 7))
    with opened(path) as witness:
        assert witness.last(ORIGIN) is None
        Client(path).ask(witness, GENUINE, 7)


def test_of_two_histories_at_once_one_is_cosigned(path: Path) -> None:
    for size in range(3, 11):
        client = Client(path)
        histories = (GENUINE, FORK) if size % 2 else (FORK, GENUINE)
        with opened(make_witness(path.with_name(f"witness{size}"))) as witness:
            start = Barrier(2)

            def ask(history: History, witness: Witness = witness, start: Barrier = start, size: int = size) -> bytes:
                start.wait()
                return witness.add_checkpoint(history.request(0, size))

            with ThreadPoolExecutor(2) as pool:
                asked = [pool.submit(ask, history) for history in histories]
            refusals = [error for one in asked if (error := one.exception()) is not None]
            assert [error.refusal for error in refusals if isinstance(error, RefusedError)] == [Refusal.CONFLICT]
            client.seen.append(witness.last(ORIGIN))  # type: ignore[arg-type]  # one of them is kept
        client.assert_one_history()


def test_many_requests_at_once_never_roll_a_log_back(path: Path) -> None:
    with opened(path) as witness:

        def grow(size: int) -> int | None:
            last = witness.last(ORIGIN)
            old = last.size if last else 0
            with suppress(RefusedError):
                witness.add_checkpoint(GENUINE.request(min(old, size), size))
                return size
            return None

        with ThreadPoolExecutor(8) as pool:
            cosigned = [size for size in pool.map(grow, [n % SIZE + 1 for n in range(80)]) if size is not None]
        assert witness.last(ORIGIN) == GENUINE.checkpoint(max(cosigned))


def test_one_process_at_a_time_serves_a_witness(path: Path) -> None:
    with opened(path) as witness:
        with pytest.raises(WitnessStoreError, match="in use"), opened(path):
            pass
        Client(path).ask(witness, GENUINE, 3)
    with opened(path) as witness:
        assert witness.last(ORIGIN) == GENUINE.checkpoint(3)


def test_a_log_added_meanwhile_is_cosigned_at_once(path: Path) -> None:
    other = History(GENUINE.leaves, OTHER_LOG)
    with opened(path) as witness:
        with pytest.raises(RefusedError):
            witness.add_checkpoint(other.request(0, 7))
        store = WitnessStore(path, RealDisk())
        store.add_log(OTHER_LOG.name, [OTHER_LOG.verifier_key])
        witness.add_checkpoint(other.request(0, 7))
        store.add_log(OTHER_LOG.name, [LOG.verifier_key])  # a second key changes nothing of what was cosigned
        assert witness.last(OTHER_LOG.name) == other.checkpoint(7)
        assert store.keys_of(OTHER_LOG.name) == (OTHER_LOG.verifier_key, LOG.verifier_key)
        assert store.origins() == sorted([ORIGIN, OTHER_LOG.name])


def test_the_kept_note_carries_the_cosignatures_that_left_and_the_signature_of_the_log(path: Path) -> None:
    with opened(path) as witness:
        answer = witness.add_checkpoint(GENUINE.request(0, 7))
        note = witness.cosigned_note(origin_hash(ORIGIN))
        assert note is not None
        assert note.endswith(answer)
        verified = open_note(note, [LOG.verifier_key, *witness.verifier_keys]).verified
        assert verified == (LOG.verifier_key, *witness.verifier_keys)


def damaged(path: Path, kind: str, change: Callable[[Path], object]) -> None:
    change(path / "logs" / f"{origin_hash(ORIGIN)}.{kind}")


@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"\n7\n", b"\n8\n")),
        lambda file: file.write_bytes(GENUINE.note(7)),
        lambda file: file.write_bytes(b"\xff"),
        lambda file: file.write_bytes(b"x" * 1_000_001),
    ],
)
def test_a_damaged_memory_is_not_taken_for_an_empty_one(path: Path, change: Callable[[Path], object]) -> None:
    with opened(path) as witness:
        Client(path).ask(witness, GENUINE, 7)
        damaged(path, "checkpoint", change)
        for body in (GENUINE.request(0, 8), GENUINE.request(7, 8), FORK.request(0, 7)):
            with pytest.raises(WitnessStoreError, match="restore it"):
                witness.add_checkpoint(body)


@pytest.mark.parametrize("text", [b"", b"\xff\n", b"log.example/orders\n", b"log.example/another\nx\n"])
def test_a_damaged_list_of_keys_trusts_nobody(path: Path, text: bytes) -> None:
    damaged(path, "log", lambda file: file.write_bytes(text))
    with opened(path) as witness, pytest.raises(WitnessStoreError, match="damaged"):
        witness.add_checkpoint(GENUINE.request(0, 7))


@pytest.mark.parametrize("origin", ["", "a\nb", "o" * 256])
def test_a_log_that_could_not_be_cosigned_is_not_added(path: Path, origin: str) -> None:
    with pytest.raises(LedgerError):
        WitnessStore(path, RealDisk()).add_log(origin, [LOG.verifier_key])
    with pytest.raises(WitnessStoreError):
        WitnessStore(path, RealDisk()).add_log("log.example/keyless", [])
