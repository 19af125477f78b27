# SPDX-License-Identifier: Apache-2.0
"""A home for tests of `lakeproof status` and `lakeproof doctor`, whose database is a test's own."""

from __future__ import annotations

from pathlib import Path

from testkit.databases import LOGIN_PASSWORD


def make_home(directory: Path, database: str) -> dict[str, str]:
    """
    Make `directory`/home with the password of the login role in it, unless it is there; return its environment.
    """
    home = directory / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    home.chmod(0o700)
    (home / "secrets").mkdir(mode=0o700, exist_ok=True)
    password = home / "secrets" / "login-password"
    password.write_text(LOGIN_PASSWORD, encoding="utf-8")
    password.chmod(0o600)
    return {"LAKEPROOF_HOME": str(home), "LAKEPROOF_DSN": database, "LAKEPROOF_DETECT": "0"}
