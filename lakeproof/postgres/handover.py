# SPDX-License-Identifier: Apache-2.0
"""
Moves a cluster that an earlier version made for root to its present place, and gives it to the server's own account.

Earlier versions ran root's server as `nobody`, inside the home if that account could enter it. A cluster is moved out
of the home and given to the server's account once, while no server runs. Every step can be repeated after a crash.

Root changes owners here in folders that other processes of `nobody` could write. So no link is followed, every file is
opened before it is checked, and an owner is changed only if the file was nobody's, is a plain file or folder, and has
one name.
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
from lakeproof.messages import Say
from lakeproof.postgres.account import is_nobody
from lakeproof.postgres.file_lock import exclusive, is_alone
from lakeproof.postgres.files import Account
from lakeproof.postgres.process import stop_process

LOCK_TIMEOUT_S: Final = 600
KEPT: Final = ("log", "data")
"""What is given to the account, in this order: the owner of `data` counts as the owner of the cluster."""

REMADE: Final = ("run", "data.new", "initdb-password", "lakeproof.conf", "lakeproof.conf.new", "age-passed.json")
"""Everything else of the server's: the next start makes it again."""

CLOSED: Final = 0o700
ENTERED: Final = 0o711


def is_handed_over(directory: Path, account: Account) -> bool:
    """
    Return whether the cluster in `directory`, if there is one, is the account's.

    Raises:
        ServerError: if it belongs to a user for whom no version of ours has made it.
    """
    try:
        owner = (directory / "data").stat().st_uid
    except FileNotFoundError:
        return True
    if owner != account.uid and not is_nobody(owner):
        raise ServerError(
            f"{directory / 'data'} belongs to the user with number {owner}, and the server runs as {account.name}: let "
            f"LAKEPROOF_SERVER_ACCOUNT name its owner, or run `chown -R {account.name}: {directory / 'data'} "
            f"{directory / 'log'}`"
        )
    return owner == account.uid


def move_out(directory: Path, to: Path, *, note: Callable[[], None], forget: Callable[[], None], say: Say) -> None:
    """
    Rename `directory`, which lies in a home, to `to`; `note` records the new place durably, and runs before.

    Raises:
        ServerError: if its server runs for somebody else, or `to` is on another file system.
        OSError: if it cannot be renamed.
    """
    with _stopped(directory):
        note()  # before the rename: a home whose database is nowhere would begin with an empty one
        try:
            directory.rename(to)
        except OSError as error:
            forget()
            if error.errno != errno.EXDEV:
                raise
            raise ServerError(
                f"the database in {directory} must leave the home, which nobody else may enter, and {to.parent} is on "
                "another file system: let LAKEPROOF_SERVER_FOLDER name a folder of root's on that of the home, which "
                "every user can enter"
            ) from error
    say(f"moved the database from {directory} to {to}: nobody but this user may enter the home from now on")


def hand_over(directory: Path, account: Account, say: Say) -> None:
    """
    Give the cluster in `directory`, which is nobody's, to `account`.

    Raises:
        ServerError: if its server runs for somebody else, or something in it is not what a server has written there.
        OSError: if an owner cannot be changed.
    """
    with _stopped(directory):
        former = (directory / "data").stat().st_uid
        directory.chmod(CLOSED)  # meanwhile no other process of nobody can reach what is in it
        for name in REMADE:
            _remove(directory / name)
        for change in (False, True):  # nothing is changed before everything was checked
            for name in KEPT:
                if (directory / name).exists():
                    _give(directory / name, former, account, change=change)
        directory.chmod(ENTERED)
    say(
        f"the database in {directory} was the account nobody's, which other programs run as too; it is "
        f"{account.name}'s now. If others could run programs as nobody on this machine, check that the log was not "
        "changed: lakeproof ledger verify with a checkpoint that was kept outside this machine"
    )


@contextmanager
def _stopped(directory: Path) -> Iterator[None]:
    """Hold the directory's lock while no server runs in it."""
    with exclusive(directory / "lock", timeout_s=LOCK_TIMEOUT_S):
        if not is_alone(directory / "users"):
            raise ServerError(
                f"the server in {directory} runs for another process, and its files must be moved or given to another "
                "account: stop that process (lakeproof up), and start again"
            )
        stop_process(directory / "data")
        yield


def _give(top: Path, former: int, account: Account, *, change: bool) -> None:
    """
    Check `top` and all that is in it, and change the owner from `former`, that of `top` itself last.

    So an interrupted hand-over looks to `is_handed_over` as if it had not begun.
    """
    for folder, subfolders, names, at in os.fwalk(top, topdown=False, onerror=_fail):
        links = [name for name in subfolders if stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode)]
        for name in (*names, *links):
            path = Path(folder, name)
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
            except OSError as error:
                raise ServerError(_not_plain(path)) from error  # a link, a socket
            try:
                _give_opened(descriptor, path, former, account, change=change)
            finally:
                os.close(descriptor)
        _give_opened(at, Path(folder), former, account, change=change)


def _give_opened(descriptor: int, path: Path, former: int, account: Account, *, change: bool) -> None:
    found = os.fstat(descriptor)
    is_plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    if not is_plain or found.st_uid not in {former, account.uid}:
        raise ServerError(_not_plain(path))
    if change:
        os.fchown(descriptor, account.uid, account.gid)


def _not_plain(path: Path) -> str:
    return (
        f"{path} is no plain file or folder of the server's own, so its owner is not changed: see what it is, move "
        "it away, and start again"
    )


def _fail(error: OSError) -> None:
    raise error


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
