# SPDX-License-Identifier: Apache-2.0
"""
How commands end that ask whether a policy is accepted: 0 it is, 1 it is refused, 2 that could not be told.

So a pipeline never takes an outage for a verdict: an engine or a database that does not answer, a log that is full, a
tenant that is not there and whatever keeps a command from being carried out are no refusals.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import psycopg
import typer

from gateway.errors import GatewayError, NotFoundError, UnavailableError
from lakeproof import console
from lakeproof.commands.opening import OpenServices, run_with_services
from lakeproof.errors import LakeproofError, first_of_group
from lakeproof.services import Services
from lakeproof.tenants import find_tenant_log
from ledger.errors import LedgerError

FAILED: Final = 2
INTERNAL: Final = 500
"""Errors with a status from here on are no refusals."""

_FORESEEN: Final = (GatewayError, LakeproofError, LedgerError, psycopg.OperationalError)

R = TypeVar("R")


def is_refusal(error: Exception) -> bool:
    """
    Tell a verdict on what was asked for from an outage, a bound that was reached, and a fault of ours.
    """
    return isinstance(error, GatewayError) and not isinstance(error, UnavailableError) and error.status < INTERNAL


async def log_to_change(services: Services, tenant: str) -> int:
    """
    Return the log of a tenant, as `find_tenant_log` does; a wrong name refuses no policy.

    Raises:
        LakeproofError: if there is no such tenant.
    """
    try:
        return await find_tenant_log(services, tenant)
    except NotFoundError as error:
        raise LakeproofError(str(error)) from error


def run_refusable(open_services: OpenServices, work: Callable[[Services], Awaitable[R]]) -> R:
    """
    Do one piece of work as `run_with_services` does. If it fails in a way that was foreseen, and that refuses nothing,
    say so and end the command with 2.

    Raises whatever refuses, and what was not foreseen.
    """
    try:
        return run_with_services(open_services, work)
    except Exception as error:
        cause = first_of_group(error)
        if is_refusal(cause) or not isinstance(cause, _FORESEEN):
            raise
        console.complain(str(cause).strip() or type(cause).__name__)
        raise typer.Exit(FAILED) from error
