# SPDX-License-Identifier: Apache-2.0
"""
What the settings say about tokens: the identity providers of a file, each bound to the log of its tenant.

What is configured and cannot be used is an error at the start: otherwise people would be locked out, or let in later,
in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gateway.identity.issuers import Issuer, parse_issuers
from lakeproof.errors import SettingsError
from lakeproof.settings import Settings
from ledger.errors import FormatError
from ledger.store.read import Log

FILE_SIZE_BYTES_MAX: Final = 1_000_000


def load_issuers(settings: Settings, logs: Iterable[Log]) -> Sequence[tuple[Issuer, int]]:
    """
    Return the identity providers whose tokens are accepted, each with the log of its tenant; none if no file is
    configured. `logs` are all logs.

    Raises:
        SettingsError: if the file cannot be read, is malformed, or names a tenant that does not exist.
    """
    file = settings.token_issuers
    if file is None:
        return ()
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_SIZE_BYTES_MAX + 1)
        if len(content) > FILE_SIZE_BYTES_MAX:
            raise SettingsError(f"LAKEPROOF_TOKEN_ISSUERS: {file} has over {FILE_SIZE_BYTES_MAX} bytes: shorten it")
        issuers = parse_issuers(content.decode("utf-8"))
    except OSError as error:
        raise SettingsError(
            f"LAKEPROOF_TOKEN_ISSUERS: {file} cannot be read ({error.strerror}): make it readable, or unset it"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"LAKEPROOF_TOKEN_ISSUERS: {file} is not UTF-8: save it as UTF-8") from error
    except FormatError as error:
        raise SettingsError(f"LAKEPROOF_TOKEN_ISSUERS: {file}: {error}: correct it") from error
    by_tenant = {log.tenant: log.log_id for log in logs if log.tenant is not None}
    for issuer in issuers:
        if issuer.tenant not in by_tenant:
            raise SettingsError(
                f"LAKEPROOF_TOKEN_ISSUERS: {file}: issuer {issuer.url} is of tenant {issuer.tenant}, which does not "
                "exist: `lakeproof tenants list` shows the ids of those that do"
            )
    return [(issuer, by_tenant[issuer.tenant]) for issuer in issuers]
