# SPDX-License-Identifier: Apache-2.0
"""
Files that settings name: read within a bound, and the tenants that they name looked up. Errors name the setting.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import UUID

from lakeproof.errors import SettingsError
from ledger.store.read import Log

FILE_SIZE_BYTES_MAX: Final = 1_000_000


def read_setting_file(file: Path, setting: str) -> bytes:
    """
    Return the content of the file that `setting` names.

    Raises:
        SettingsError: if it cannot be read, or is too large.
    """
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise unreadable(file, setting, error) from error
    if len(content) > FILE_SIZE_BYTES_MAX:
        raise SettingsError(f"{setting}: {file} has over {FILE_SIZE_BYTES_MAX} bytes: shorten it")
    return content


def read_setting_text(file: Path, setting: str) -> str:
    """
    Return the text of the file that `setting` names.

    Raises:
        SettingsError: as `read_setting_file`, and if it is not UTF-8.
    """
    try:
        return read_setting_file(file, setting).decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{setting}: {file} is not UTF-8: save it as UTF-8") from error


def unreadable(file: Path, setting: str, error: OSError) -> SettingsError:
    """Return the error for a file that the system does not let us read."""
    return SettingsError(f"{setting}: {file} cannot be read ({error.strerror}): make it readable, or unset it")


def logs_of_tenants(
    named: Iterable[tuple[str, UUID]], logs: Iterable[Log], *, file: Path, setting: str
) -> dict[UUID, int]:
    """
    Return the log of every tenant; `named` are those that `file` names, each with what it is the tenant of.

    Raises:
        SettingsError: if one of them does not exist.
    """
    by_tenant = {log.tenant: log.log_id for log in logs if log.tenant is not None}
    for what, tenant in named:
        if tenant not in by_tenant:
            raise SettingsError(
                f"{setting}: {file}: {what} is of tenant {tenant}, which does not exist: `lakeproof tenants list` "
                "shows the ids of those that do"
            )
    return by_tenant
