"""
What operators' commands work with when a log is to be adopted, recovered or continued (`commands/recovering.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from ledger.erasing.rerun import Rerun
from ledger.read import Connection, Log
from ledger.recovering.continuing import Append, MakeLog
from ledger.recovering.replay import Replay
from ledger.signing.key_directory import KeyDirectory
from ledger.signing.signer import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryDesk:
    """
    An installation whose logs are put right.

    `auditor` is a connection of that role in autocommit mode; `rerun` erases again what the logs know to be erased;
    `found` makes, of the old log and the new one, a tenant of the same name, whose first API key is for an identity,
    and returns the text of that key.
    """

    auditor: Connection
    appender_dsn: str = field(repr=False)
    keys: KeyDirectory
    signer: Signer
    replay: Replay
    make_log: MakeLog
    append: Append
    rerun: Callable[[], Awaitable[Rerun]]
    found: Callable[[Log, Log, str], Awaitable[str]]
    clock: Callable[[], datetime]
