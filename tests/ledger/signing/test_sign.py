# SPDX-License-Identifier: Apache-2.0
"""The signer: what leaves, what is refused, and that no crash makes two histories leave."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import KeyDirectoryError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.note import open_checkpoint, sign_note
from ledger.format.sequence import SequencedEntry
from ledger.signing.consistency import SignerRefusedError
from ledger.signing.key_directory import NOTES_FILE, KeyDirectory, SignedNote, create_key_directory, open_key_directory
from ledger.signing.signer import CheckpointSigner, SignerState
from ledger.signing.stored_keys import KEY_FILE
from ledger.store.session import Connection
from testkit.ledger.logs import TENANT, change, head_of, put, rows_of

SIZE_MAX = 700


@pytest.fixture
def keys(tmp_path: Path) -> KeyDirectory:
    return create_key_directory(tmp_path / "keys")


@pytest.fixture
def log_id(database: str, installation: Provisioned) -> int:
    return create_tenant_log(database, installation, TENANT)


@pytest.fixture
def origin(installation: Provisioned) -> str:
    return installation.origin(TENANT)


@pytest.fixture
async def connection(installation: Provisioned) -> AsyncIterator[Connection]:
    async with await connect(installation) as connection:
        yield connection


class Growth(Protocol):
    """Makes the log one of `size` entries: the same ones each time, unless `salt` makes them others."""

    async def __call__(self, size: int, *, salt: str = "") -> None: ...


@pytest.fixture(scope="module")
def rows() -> dict[str, list[SequencedEntry]]:
    """The entries of the logs that tests have let grow, by salt."""
    return {}


@pytest.fixture
def grow(database: str, log_id: int, origin: str, rows: dict[str, list[SequencedEntry]]) -> Growth:
    async def grow(size: int, *, salt: str = "") -> None:
        if salt not in rows:
            rows[salt] = rows_of(SIZE_MAX, log=origin, salt=salt)
        await put(database, log_id, rows[salt][:size])

    return grow


async def connect(installation: Provisioned) -> Connection:
    return await AsyncConnection.connect(installation.as_role(installation.roles.signer), autocommit=True)


async def stored(database: str, log_id: int) -> list[tuple[int, bytes]]:
    async with await AsyncConnection.connect(database) as connection:
        rows = await connection.execute(
            "SELECT size, note FROM ledger.checkpoints WHERE log_id = %s ORDER BY size", (log_id,)
        )
        return [(size, bytes(note)) for size, note in await rows.fetchall()]


def signer_of(installation: Provisioned, keys: KeyDirectory) -> CheckpointSigner:
    """Return a signer as a process has it that has just started: it remembers nothing."""
    return CheckpointSigner(installation.as_role(installation.roles.signer), open_key_directory(keys.path))


# What leaves


async def test_a_log_that_has_moved_is_signed_once(
    installation: Provisioned,
    database: str,
    keys: KeyDirectory,
    connection: Connection,
    log_id: int,
    origin: str,
    grow: Growth,
) -> None:
    signer = signer_of(installation, keys)
    assert await signer.sign_due(connection) == []  # an empty log has nothing to sign
    await grow(300)
    (one,) = await signer.sign_due(connection)
    assert (one.log_id, one.checkpoint.origin, one.checkpoint.size, one.put_back) == (log_id, origin, 300, False)
    assert open_checkpoint(one.note, [signer.verifier_key(origin)]) == one.checkpoint
    assert await stored(database, log_id) == [(300, one.note)]
    assert await signer.sign_due(connection) == []
    assert signer.state is SignerState.SIGNING
    assert signer.refused == {}


@pytest.mark.parametrize("restart", [False, True])
async def test_sizes_grow_and_each_tree_begins_with_the_one_before(
    installation: Provisioned,
    database: str,
    keys: KeyDirectory,
    connection: Connection,
    log_id: int,
    origin: str,
    grow: Growth,
    restart: bool,
) -> None:
    signer = signer_of(installation, keys)
    for size in (1, 255, 256, 257, 600):
        await grow(size)
        if restart:
            signer = signer_of(installation, keys)
        (one,) = await signer.sign_due(connection)
        assert one.checkpoint.root == head_of(rows_of(SIZE_MAX, log=origin)[:size]).frontier.root()
    assert [size for size, _ in await stored(database, log_id)] == [1, 255, 256, 257, 600]


async def test_a_second_signer_stands_by_until_the_first_is_gone(
    installation: Provisioned, tmp_path: Path, keys: KeyDirectory, connection: Connection, grow: Growth
) -> None:
    await grow(5)
    first = signer_of(installation, keys)
    second = CheckpointSigner("", create_key_directory(tmp_path / "another"))
    assert await first.sign_due(connection)
    async with await connect(installation) as other:
        assert await second.sign_due(other) == []
        assert second.state is SignerState.STANDBY
        await connection.close()
        successor = signer_of(installation, keys)
        await grow(6)
        async with asyncio.timeout(30):  # the server ends the session that was closed in its own time
            while not (signed := await successor.sign_due(other)):
                assert successor.state is SignerState.STANDBY
        assert [one.checkpoint.size for one in signed] == [6]


async def test_one_that_signs_once_holds_up_nobody_after_it(
    installation: Provisioned, keys: KeyDirectory, grow: Growth
) -> None:
    for size in range(1, 30):
        await grow(size)
        signer = signer_of(installation, keys)
        (one,) = await signer.sign_once()
        assert (one.checkpoint.size, signer.state) == (size, SignerState.SIGNING)


async def test_two_databases_never_sign_with_one_key_directory_at_once(
    installation: Provisioned, keys: KeyDirectory, connection: Connection, grow: Growth
) -> None:
    await grow(5)
    signer = signer_of(installation, keys)
    with open_key_directory(keys.path).locked():
        assert await signer.sign_due(connection) == []
        assert signer.state is SignerState.STANDBY
    assert await signer.sign_due(connection)


async def test_the_signer_runs_until_it_is_told_to_stop_and_connects_again(
    installation: Provisioned, database: str, keys: KeyDirectory, log_id: int, grow: Growth
) -> None:
    signer, stop = signer_of(installation, keys), asyncio.Event()
    await grow(3)
    running = asyncio.create_task(signer.run(stop, interval_s=0.01))
    async with asyncio.timeout(20):
        while len(await stored(database, log_id)) < 1:
            pass
        change(
            database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%%signer'"
        )
        await grow(4)
        while len(await stored(database, log_id)) < 2:
            pass
        stop.set()
        await running


# What is refused


async def test_a_database_behind_its_note_is_not_signed_and_the_others_go_on(
    installation: Provisioned,
    database: str,
    keys: KeyDirectory,
    connection: Connection,
    log_id: int,
    origin: str,
    grow: Growth,
) -> None:
    await grow(300)
    (before,) = await signer_of(installation, keys).sign_due(connection)
    await grow(299)
    change(database, "DELETE FROM ledger.checkpoints")
    system = rows_of(4, log=installation.system_origin)
    await put(database, 1, system)
    signer = signer_of(installation, keys)
    assert [one.checkpoint.origin for one in await signer.sign_due(connection)] == [installation.system_origin]
    refusal = signer.refused[origin]
    assert (refusal.signed, refusal.size) == (before.checkpoint, 299)
    assert before.checkpoint.root.hex() in str(refusal)
    assert "299" in str(refusal)
    await grow(301)
    assert [one.checkpoint.size for one in await signer.sign_due(connection)] == [300, 301]  # the first is put back
    assert signer.refused == {}


@pytest.mark.parametrize("size", [300, 301, 700])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_database_with_another_history_is_never_signed(
    installation: Provisioned,
    keys: KeyDirectory,
    connection: Connection,
    origin: str,
    grow: Growth,
    size: int,
    restart: bool,
) -> None:
    signer = signer_of(installation, keys)
    await grow(300)
    await signer.sign_due(connection)
    await grow(size, salt="another")
    if restart:
        signer = signer_of(installation, keys)
    assert await signer.sign_due(connection) == []
    assert isinstance(signer.refused[origin], SignerRefusedError)


async def test_a_rewritten_prefix_is_not_blessed(
    installation: Provisioned,
    database: str,
    keys: KeyDirectory,
    connection: Connection,
    log_id: int,
    origin: str,
    grow: Growth,
) -> None:
    await grow(300)
    await signer_of(installation, keys).sign_due(connection)
    await grow(310)
    change(
        database,
        "UPDATE ledger.tiles SET hashes = set_byte(hashes, 40, get_byte(hashes, 40) # 7) WHERE log_id = %s",
        log_id,
    )
    signer = signer_of(installation, keys)
    assert await signer.sign_due(connection) == []
    assert origin in signer.refused


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger.entries SET leaf = set_byte(leaf, 0, get_byte(leaf, 0) # 1) WHERE log_id = %s AND index = 305",
        "UPDATE ledger.heads SET frontier = set_byte(frontier, 3, get_byte(frontier, 3) # 1) WHERE log_id = %s",
        "DELETE FROM ledger.entries WHERE log_id = %s AND index = 305",
    ],
)
async def test_a_head_that_is_not_what_the_entries_say_is_not_signed(
    installation: Provisioned,
    database: str,
    keys: KeyDirectory,
    connection: Connection,
    log_id: int,
    grow: Growth,
    statement: str,
) -> None:
    signer = signer_of(installation, keys)
    await grow(300)
    await signer.sign_due(connection)
    await grow(310)
    change(database, "DELETE FROM ledger.parts WHERE log_id = %s", log_id)
    change(database, statement, log_id)
    assert await signer.sign_due(connection) == []
    assert len(signer.refused) == 1


async def test_checkpoints_of_another_key_are_not_continued(
    installation: Provisioned, tmp_path: Path, keys: KeyDirectory, connection: Connection, origin: str, grow: Growth
) -> None:
    await grow(3)
    await signer_of(installation, keys).sign_due(connection)
    await grow(4)
    stranger = signer_of(installation, create_key_directory(tmp_path / "new"))
    assert await stranger.sign_due(connection) == []
    assert "signature" in str(stranger.refused[origin])


# The key directory


def test_the_key_is_private_and_comes_back(keys: KeyDirectory) -> None:
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((keys.path / KEY_FILE).stat().st_mode) == 0o600
    assert sorted(file.name for file in keys.path.iterdir()) == [KEY_FILE]
    assert open_key_directory(keys.path).verifier_key("a/b") == keys.verifier_key("a/b")
    assert keys.verifier_key("a/b") != keys.verifier_key("a/c")
    secret = (keys.path / KEY_FILE).read_text().strip()
    assert secret not in f"{keys!r} {keys.signer('a/b')!r}"


@pytest.mark.parametrize(("name", "mode"), [("", 0o750), ("", 0o701), (KEY_FILE, 0o640), (KEY_FILE, 0o604)])
def test_a_key_that_others_may_use_is_refused(keys: KeyDirectory, name: str, mode: int) -> None:
    (keys.path / name).chmod(mode)
    with pytest.raises(KeyDirectoryError, match="run chmod"):
        open_key_directory(keys.path)


@pytest.mark.parametrize("text", ["", "x", "AAAA\n", "\xff", "A" * 43 + "=\n\n"])
def test_a_damaged_key_is_refused_and_not_shown(keys: KeyDirectory, text: str) -> None:
    (keys.path / KEY_FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(KeyDirectoryError, match="damaged") as caught:
        open_key_directory(keys.path)
    assert "AAAA" not in str(caught.value)


def test_a_missing_key_is_not_silently_made_anew(keys: KeyDirectory) -> None:
    (keys.path / KEY_FILE).unlink()
    with pytest.raises(KeyDirectoryError, match="restore it"):
        open_key_directory(keys.path)


def test_a_key_is_never_replaced(keys: KeyDirectory) -> None:
    with pytest.raises(KeyDirectoryError, match="holds a signing-key already"):
        create_key_directory(keys.path)
    (keys.path / KEY_FILE).rename(keys.path / NOTES_FILE)
    with pytest.raises(KeyDirectoryError, match="holds a last-notes already"):
        create_key_directory(keys.path)


def noted(keys: KeyDirectory, origin: str, size: int) -> SignedNote:
    checkpoint = Checkpoint(origin=origin, size=size, root=bytes([size]) * 32)
    return SignedNote(checkpoint=checkpoint, note=sign_note(format_checkpoint(checkpoint), [keys.signer(origin)]))


def test_notes_come_back_as_they_were_kept(keys: KeyDirectory) -> None:
    assert keys.read_notes() == {}
    notes = {origin: noted(keys, origin, 7) for origin in ("b/1", "a/2")}
    keys.keep_notes(notes)
    assert keys.read_notes() == open_key_directory(keys.path).read_notes() == notes
    assert stat.S_IMODE((keys.path / NOTES_FILE).stat().st_mode) == 0o600


def test_any_changed_byte_of_the_notes_is_found(keys: KeyDirectory) -> None:
    keys.keep_notes({"a/2": noted(keys, "a/2", 7)})
    data = (keys.path / NOTES_FILE).read_bytes()
    for at in range(len(data)):
        (keys.path / NOTES_FILE).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(KeyDirectoryError, match="is damaged"):
            open_key_directory(keys.path).read_notes()
    (keys.path / NOTES_FILE).write_bytes(b"")
    with pytest.raises(KeyDirectoryError, match="is damaged"):
        keys.read_notes()
