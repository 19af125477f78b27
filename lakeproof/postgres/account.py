# SPDX-License-Identifier: Apache-2.0
"""
The system account that root's embedded server runs as, and no other program.

PostgreSQL refuses to run as root. Whoever runs processes as its account controls the database: they can rewrite its
access rules and its files, and trace the server. So the account must be the server's own: never root, never `nobody`,
which other programs run as, too, and none that a person can log in to. The default one is made if it is missing. It is
never removed, because files belong to it for as long as a database is kept.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from lakeproof.errors import ServerError
from lakeproof.messages import Say
from lakeproof.postgres.file_lock import exclusive
from lakeproof.postgres.files import Account

if sys.platform != "win32":  # there is no embedded server on Windows, but a server of the user's can be checked there
    import pwd

DEFAULT_ACCOUNT: Final = "lakeproof"
NOBODY: Final = "nobody"
NOBODY_IDS: Final = frozenset({65534, 65535, 4294967294})
"""The number of nobody, now or formerly, on Linux and the BSDs."""

USERADD_PATH: Final = "/usr/sbin:/sbin:/usr/bin:/bin"
NO_SHELLS: Final = frozenset({"nologin", "false"})
MAKE_TIMEOUT_S: Final = 60
MAKING: Final = Path("/run/lakeproof-account.lock")
"""Locked while an account is made: of two concurrent `useradd` the later one gives the account another number."""


def server_account(name: str, say: Say, *, path: str = USERADD_PATH) -> Account:
    """
    Return the account `name`, making the default one if it is not there; `path` is where `useradd` is looked for.

    Raises:
        ServerError: if there is no such account and it cannot be made, or it is not one for the server alone.
    """
    found = _find(name)
    if found is None and name == DEFAULT_ACCOUNT:
        make_account(name, path=path)
        say(f"made the system account {name}, as which PostgreSQL runs")
        found = _find(name)
    if found is None:
        raise ServerError(
            f"there is no account {name!r}, which LAKEPROOF_SERVER_ACCOUNT names: make it with `{_command(name)}`, or "
            "remove the setting"
        )
    check_account(found)
    return Account(name=found.pw_name, uid=found.pw_uid, gid=found.pw_gid)


def make_account(name: str, *, path: str = USERADD_PATH) -> None:
    """
    Make a system account without a home, a password or a shell; nothing if another process has just made it.

    Raises:
        ServerError: if that is not possible on this machine; says what to do instead.
    """
    program = shutil.which("useradd", path=path)
    reason = "there is no useradd"
    if program is not None:
        command = [program, *_command(name).split()[1:]]
        try:
            with exclusive(MAKING, timeout_s=MAKE_TIMEOUT_S):
                if _find(name) is not None:
                    return
                done = subprocess.run(  # noqa: S603 - a program of the system; the name is ours
                    command, text=True, capture_output=True, timeout=MAKE_TIMEOUT_S, check=False
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = str(error)
        else:
            if done.returncode == 0 or _find(name) is not None:
                return
            reason = " ".join(done.stderr.split())[:300] or f"useradd ended with {done.returncode}"
    raise ServerError(
        f"PostgreSQL does not run as root, and the system account {name} cannot be made for it ({reason}): make it "
        f"yourself with `{_command(name)}`, let LAKEPROOF_SERVER_ACCOUNT name another that nothing else runs as, start "
        "as an ordinary user, or set LAKEPROOF_DSN"
    )


def check_account(found: pwd.struct_passwd) -> None:
    """
    Check that an account can be the server's alone.

    Raises:
        ServerError: naming what it is instead.
    """
    name, nobodys = found.pw_name, _find(NOBODY)
    remedy = "let LAKEPROOF_SERVER_ACCOUNT name a system account that nothing else runs as"
    if found.pw_uid == 0 or found.pw_gid == 0:
        raise ServerError(
            f"the account {name} has root's number or group, and PostgreSQL does not run as root: {remedy}"
        )
    if name == NOBODY or found.pw_uid in NOBODY_IDS or (nobodys is not None and found.pw_uid == nobodys.pw_uid):
        raise ServerError(
            f"the account {name} is shared with every program that runs as nobody, and each of them could take the "
            f"database over: {remedy}"
        )
    if Path(found.pw_shell or "/bin/sh").name not in NO_SHELLS:
        raise ServerError(
            f"the account {name} can be logged in to (its shell is {found.pw_shell or '/bin/sh'}), and whoever is "
            f"could take the database over: {remedy}"
        )
    others = [other.pw_name for other in pwd.getpwall() if other.pw_uid == found.pw_uid and other.pw_name != name]
    if others:
        raise ServerError(f"the account {name} has the same number as {others[0]}: {remedy}")


def is_nobody(uid: int) -> bool:
    """Return whether a number is that of the account that programs share."""
    nobodys = _find(NOBODY)
    return uid in NOBODY_IDS or (nobodys is not None and uid == nobodys.pw_uid)


def _find(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a NUL in the name
        return None


def _command(name: str) -> str:
    return f"useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin {name}"
