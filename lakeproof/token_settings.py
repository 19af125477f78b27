# SPDX-License-Identifier: Apache-2.0
"""
What the settings say about tokens: the identity providers of a file, each bound to the log of its tenant.

What is configured and cannot be used is an error at the start: otherwise people would be locked out, or let in later,
in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gateway.identity.issuers import Issuer, parse_issuers
from lakeproof.errors import SettingsError
from lakeproof.setting_files import logs_of_tenants, read_setting_text
from lakeproof.settings import Settings
from ledger.errors import FormatError
from ledger.store.read import Log

SETTING: Final = "LAKEPROOF_TOKEN_ISSUERS"
SECRET_LENGTH_MAX: Final = 1_000


def load_issuers(settings: Settings, logs: Iterable[Log]) -> Sequence[tuple[Issuer, int]]:
    """
    Return the identity providers whose tokens are accepted, each with the log of its tenant; none if no file is
    configured. `logs` are all logs.

    Raises:
        SettingsError: if the file, or one with a client's secret, cannot be read, is malformed, or names a tenant that
            does not exist.
    """
    file = settings.token_issuers
    if file is None:
        return ()
    try:
        issuers = parse_issuers(read_setting_text(file, SETTING))
    except FormatError as error:
        raise SettingsError(f"{SETTING}: {file}: {error}: correct it") from error
    named = [(f"issuer {issuer.url}", issuer.tenant) for issuer in issuers]
    issuers = tuple(map(_with_secret, issuers))
    by_tenant = logs_of_tenants(named, logs, file=file, setting=SETTING)
    return [(issuer, by_tenant[issuer.tenant]) for issuer in issuers]


def _with_secret(issuer: Issuer) -> Issuer:
    """Return an issuer with the secret of the console as its client, which is in a file that others cannot read."""
    login = issuer.login
    if login is None or login.secret_file is None:
        return issuer
    file = Path(login.secret_file)
    if file.exists() and file.stat().st_mode & 0o077:
        raise SettingsError(f"{SETTING}: {file} can be read by others: give it mode 0600")
    secret = read_setting_text(file, SETTING).strip()
    if not secret or len(secret) > SECRET_LENGTH_MAX or not secret.isprintable():
        raise SettingsError(f"{SETTING}: {file}: expected the secret of a client, found something else: correct it")
    return replace(issuer, login=replace(login, secret=secret))
