"""
Brings a cluster that an earlier version has made for root to where, and to whom, it belongs now.

Earlier versions ran root's server as `nobody`, inside the home if that account could enter it. A cluster is brought out
of the home and given to the server's own account once, while no server runs. Every step can be repeated after a crash.

Root changes owners in folders here that other processes of `nobody` could write: so nothing is followed, every file is
opened before it is judged, and only what was nobody's, is a plain file or folder, and has one name only, changes hands.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lakeproof.errors import ServerError
from lakeproof.postgres.account import is_nobody
from lakeproof.postgres.file_lock import exclusive, is_alone
from lakeproof.postgres.files import Account
from lakeproof.postgres.process import stop_process

LOCK_TIMEOUT_S: Final = 600
KEPT: Final = ("log", "data")
"""What changes hands, in this order: whose `data` is tells whose the cluster is."""

REMADE: Final = ("run", "data.new", "initdb-password", "lakeproof.conf", "lakeproof.conf.new", "age-passed.json")
"""Everything else of the server's: a start makes it anew."""

CLOSED: Final = 0o700
ENTERED: Final = 0o711

Say = Callable[[str], None]


def is_handed_over(room: Path, account: Account) -> bool:
    """
    Tell whether the cluster in `room`, if there is one, is the account's.

    Raises:
        ServerError: if it is somebody's whom no version of ours has made it for.
    """
    try:
        owner = (room / "data").stat().st_uid
    except FileNotFoundError:
        return True
    if owner != account.uid and not is_nobody(owner):
        raise ServerError(
            f"{room / 'data'} belongs to the user with number {owner}, and the server runs as {account.name}: let "
            f"LAKEPROOF_SERVER_ACCOUNT name its owner, or run `chown -R {account.name}: {room / 'data'} {room / 'log'}`"
        )
    return owner == account.uid


def move_out(room: Path, to: Path, *, note: Callable[[], None], forget: Callable[[], None], say: Say) -> None:
    """
    Rename `room`, which lies in a home, to `to`; `note` records the new place durably, and runs before.

    Raises:
        ServerError: if its server runs for somebody else, or `to` is on another file system.
        OSError: if it cannot be renamed.
    """
    with _stopped(room):
        note()  # before the rename: a home whose database is nowhere would begin with an empty one
        try:
            room.rename(to)
        except OSError as error:
            forget()
            if error.errno != errno.EXDEV:
                raise
            raise ServerError(
                f"the database in {room} must leave the home, which nobody else may enter, and {to.parent} is on "
                "another file system: let LAKEPROOF_SERVER_FOLDER name a folder of root's on that of the home, which "
                "every user can enter"
            ) from error
    say(f"moved the database from {room} to {to}: nobody but this user may enter the home from now on")


def hand_over(room: Path, account: Account, say: Say) -> None:
    """
    Give the cluster in `room`, which is nobody's, to `account`.

    Raises:
        ServerError: if its server runs for somebody else, or something in it is not what a server has written there.
        OSError: if an owner cannot be changed.
    """
    with _stopped(room):
        former = (room / "data").stat().st_uid
        room.chmod(CLOSED)  # until it is done no other process of nobody's can come to what is in it
        for name in REMADE:
            _remove(room / name)
        for change in (False, True):  # nothing is changed before everything is known to be as it should
            for name in KEPT:
                if (room / name).exists():
                    _give(room / name, former, account, change=change)
        room.chmod(ENTERED)
    say(
        f"the database in {room} was the account nobody's, which other programs run as too; it is {account.name}'s "
        "now. If others could run programs as nobody on this machine, look whether the log is what it was: lakeproof "
        "ledger verify with a checkpoint that is held elsewhere"
    )


@contextmanager
def _stopped(room: Path) -> Iterator[None]:
    """Hold the room's lock, with no server running in it."""
    with exclusive(room / "lock", timeout_s=LOCK_TIMEOUT_S):
        if not is_alone(room / "users"):
            raise ServerError(
                f"the server in {room} runs for another process, and its files must be moved or given to another "
                "account: stop that process (lakeproof up), and start again"
            )
        stop_process(room / "data")
        yield


def _give(top: Path, former: int, account: Account, *, change: bool) -> None:
    """
    Look at `top` and all that is in it, and change its owner from `former`, `top` itself last.

    So a hand-over that was interrupted is one that has not begun, to `is_handed_over`.
    """
    for folder, subfolders, names, at in os.fwalk(top, topdown=False, onerror=_fail):
        links = [name for name in subfolders if stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode)]
        for name in (*names, *links):
            path = Path(folder, name)
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
            except OSError as error:
                raise ServerError(_stranger(path)) from error  # a link, a socket
            try:
                _give_opened(descriptor, path, former, account, change=change)
            finally:
                os.close(descriptor)
        _give_opened(at, Path(folder), former, account, change=change)


def _give_opened(descriptor: int, path: Path, former: int, account: Account, *, change: bool) -> None:
    found = os.fstat(descriptor)
    is_plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    if not is_plain or found.st_uid not in {former, account.uid}:
        raise ServerError(_stranger(path))
    if change:
        os.fchown(descriptor, account.uid, account.gid)


def _stranger(path: Path) -> str:
    return (
        f"{path} is no plain file or folder of the server's own, so its owner is not changed: look what it is, move "
        "it away, and start again"
    )


def _fail(error: OSError) -> None:
    raise error


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
