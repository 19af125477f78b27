# SPDX-License-Identifier: Apache-2.0
"""The folder of keys beside other processes: one that stands still stops nobody who reads, a crash leaves nothing."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from ledger.erasing.sealer import Sealer
from ledger.erasing.subject_keys import open_key_encryption, open_key_folder
from ledger.format.sealing import DataKey, SubjectKeysError
from ledger.format.sequence import Group
from testkit.ledger.appending import new_id
from testkit.ledger.erasing import ADA, EVE, about, held, key_folder
from testkit.ledger.faults.files import Crash, FileFault, FilePlan, file_faults, planned

BESIDE = ADA[:2] + "0" * 30
"""Another subject of Ada's file."""


def group_about(subject: str) -> Group:
    return Group(id=new_id(), then=(about(subject, {"principal": b"who"}),))


def id_of(key: DataKey | None) -> object:
    assert key is not None
    return key.id


# Another process holds the folder


async def test_a_key_is_read_while_another_process_holds_the_folder_though_its_file_is_new(tmp_path: Path) -> None:
    keys, other = key_folder(tmp_path), key_folder(tmp_path)
    made = keys.find_or_create(ADA)
    other.find_or_create(BESIDE)  # so that the file is another one than the first process has read
    with held(keys):
        async with asyncio.timeout(20):
            found = await asyncio.to_thread(keys.find, ADA)
            assert id_of(found) == id_of(made)
            assert id_of(await asyncio.to_thread(keys.find_or_create, BESIDE)) == id_of(other.find(BESIDE))
            assert await asyncio.to_thread(keys.find, EVE) is None
            assert await asyncio.to_thread(keys.destroyed) == frozenset()


async def test_who_must_write_waits_only_so_long_for_another_process(tmp_path: Path) -> None:
    keys = open_key_folder(tmp_path / "subjects", open_key_encryption(tmp_path / "kek"), lock_wait_s=0.05)
    with held(keys):
        for write in (keys.find_or_create, keys.destroy):
            with pytest.raises(SubjectKeysError, match="held by another process"):
                write(ADA)
    assert keys.find_or_create(ADA) is not None
    keys.destroy(ADA)
    assert keys.find(ADA) is None


async def test_a_key_that_is_at_hand_needs_no_thread_and_one_that_is_not_is_waited_for_to_the_deadline(
    tmp_path: Path,
) -> None:
    keys = key_folder(tmp_path)
    sealer = Sealer(keys)
    await sealer.seal(group_about(ADA))
    with held(keys):
        known = sealer.seal(group_about(ADA))
        with pytest.raises(StopIteration) as done:  # it never gives the loop a turn
            known.send(None)
        assert isinstance(done.value.value, Group)
        with pytest.raises(SubjectKeysError, match=r"within 0\.1 s"):
            await sealer.seal(group_about(EVE), timeout_s=0.1)
    await sealer.seal(group_about(EVE))


def test_a_key_is_at_hand_only_as_long_as_its_file_is_the_one_that_was_read(tmp_path: Path) -> None:
    keys, other = key_folder(tmp_path), key_folder(tmp_path)
    assert keys.cached(ADA) is None
    made = keys.find_or_create(ADA)
    assert keys.cached(ADA) is made
    other.find_or_create(BESIDE)
    assert keys.cached(ADA) is None
    keys.find(ADA)
    assert id_of(keys.cached(ADA)) == id_of(made)
    other.destroy(ADA)
    assert keys.cached(ADA) is None
    assert keys.find(ADA) is None


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    keys = key_folder(tmp_path)
    made = keys.find_or_create(ADA)
    path, newer = keys.path / ADA[:2], tmp_path / "newer"
    path.rename(newer)
    os.mkfifo(path)  # a file whose reader does not go on before its writer does

    def replace() -> None:
        with path.open("wb") as replaced:
            newer.replace(path)
            replaced.write(bytes(newer_size_bytes))

    newer_size_bytes = newer.stat().st_size
    writer = Thread(target=replace)
    writer.start()
    assert id_of(key_folder(tmp_path).find(ADA)) == id_of(made)
    writer.join()


# A key service that fails in its own way


class FailingService:
    """A key management service whose client raises errors of its own."""

    id = "service"
    fails = True

    def wrap(self, key: bytes, *, context: bytes) -> bytes:  # noqa: ARG002 - a service's shape
        if self.fails:
            raise RuntimeError("no route to the service")
        return key

    def unwrap(self, wrapped: bytes, *, context: bytes) -> bytes:  # noqa: ARG002 - a service's shape
        if self.fails:
            raise RuntimeError("no route to the service")
        return wrapped


def test_whatever_a_key_service_raises_is_said_to_be_its_error(tmp_path: Path) -> None:
    service = FailingService()
    keys, other = (open_key_folder(tmp_path / "subjects", service) for _ in range(2))
    with pytest.raises(SubjectKeysError, match="service"):
        keys.find_or_create(ADA)
    service.fails = False
    keys.find_or_create(ADA)
    service.fails = True
    with pytest.raises(SubjectKeysError, match="RuntimeError"):
        other.find(ADA)


# A crash at any step


@pytest.mark.parametrize("fault", [FileFault.ERROR, FileFault.FULL, FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER])
def test_whatever_interrupts_an_erasure_nothing_of_the_key_is_left_once_it_is_run_again(
    tmp_path: Path, fault: FileFault
) -> None:
    for step in count():
        directory = tmp_path / str(step)
        directory.mkdir()
        keys = key_folder(directory)
        keys.find_or_create(ADA)
        beside = keys.find_or_create(BESIDE)
        wrapped = [line.split()[-1] for line in (keys.path / ADA[:2]).read_bytes().splitlines()]
        plan = FilePlan(step, fault)
        with (keys.path / ADA[:2]).open("rb") as replaced, file_faults():
            with planned(plan), suppress(Crash, SubjectKeysError):
                keys.destroy(ADA)
            again = key_folder(directory)
            assert id_of(again.find(BESIDE)) == id_of(beside)
            again.destroy(ADA)
            assert set(replaced.read()) == {0}, f"interrupted at step {step}, {plan.seen[-1:]}"
        left = {file.name: file.read_bytes() for file in again.path.iterdir()}
        assert set(left) == {"id", "lock", ADA[:2]}
        assert [key in b"".join(left.values()) for key in wrapped].count(True) == 1
        assert id_of(key_folder(directory).find(BESIDE)) == id_of(beside)
        if not plan.hit:
            break
    assert step > 8


@pytest.mark.parametrize("fault", [FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER])
def test_whatever_interrupts_the_making_of_a_key_the_others_stay_and_it_is_made_again(
    tmp_path: Path, fault: FileFault
) -> None:
    for step in count():
        directory = tmp_path / str(step)
        directory.mkdir()
        keys = key_folder(directory)
        ada = keys.find_or_create(ADA)
        plan = FilePlan(step, fault)
        with file_faults(), planned(plan), suppress(Crash):
            keys.find_or_create(BESIDE)
        again = key_folder(directory)
        assert id_of(again.find(ADA)) == id_of(ada)
        assert again.find_or_create(BESIDE) is not None
        assert again.destroyed() == frozenset()
        again.destroy(BESIDE)
        assert {file.name for file in again.path.iterdir()} == {"id", "lock", ADA[:2]}
        assert id_of(again.find(ADA)) == id_of(ada)
        if not plan.hit:
            break
