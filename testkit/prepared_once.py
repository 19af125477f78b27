# SPDX-License-Identifier: Apache-2.0
"""
What libraries prepare anew for each call, and processes of tests once: it takes longer than most of the calls.

Typer reads the parameters of all commands of an application from their functions, whichever command is run: 35 ms for
those that edit the control plane. A client of httpx reads the certificates of all authorities, even if it speaks plain
HTTP: 40 ms. The same things are prepared, by the same functions.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import httpx._transports.default
import httpx2._transports.default
import typer.testing
from typer.main import get_command

APPLICATIONS_MAX: Final = 8
"""Kept with their commands; tests make many applications, each for its own services."""
TRUST: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that name the certificates of authorities."""


def prepare_once() -> None:
    """Keep what was prepared, in this process and those forked from it."""
    vars(typer.testing)["_get_command"] = lru_cache(APPLICATIONS_MAX)(get_command)
    for transports in (httpx._transports.default, httpx2._transports.default):
        _share_trust(transports)


def _share_trust(transports: ModuleType) -> None:
    """Have the clients of one library that trust what is trusted by default share one TLS context."""
    create: Callable[..., ssl.SSLContext] = vars(transports)["create_ssl_context"]
    known: dict[tuple[str | None, ...], ssl.SSLContext] = {}

    def trusted(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        if verify is not True or cert is not None or not trust_env:
            return create(verify=verify, cert=cert, trust_env=trust_env)
        named = tuple(map(os.environ.get, TRUST))
        if named not in known:
            known[named] = create()
        return known[named]

    vars(transports)["create_ssl_context"] = trusted
