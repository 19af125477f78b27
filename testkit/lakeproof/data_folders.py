# SPDX-License-Identifier: Apache-2.0
"""A database's folder that a test makes by hand, where a start looks for it and belonging to whom it should."""

from __future__ import annotations

import json
import os
from pathlib import Path

from lakeproof.postgres.account import DEFAULT_ACCOUNT, server_account


def make_data_folder(directory: Path) -> Path:
    """Make the empty data folder of the home `directory`/home: in it, or, of root's, where it says in `servers`."""
    home = directory / "home"
    home.mkdir(mode=0o700)
    if os.geteuid() != 0:
        data = home / "postgres" / "data"
        data.mkdir(parents=True)
        return data
    data = directory / "servers" / "1" / "data"
    data.mkdir(parents=True)
    account = server_account(DEFAULT_ACCOUNT, print)
    os.chown(data, account.uid, account.gid)
    (home / "server.json").write_text(json.dumps({"room": str(data.parent)}))
    return data
