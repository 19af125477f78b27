# SPDX-License-Identifier: Apache-2.0
"""Provisioning: under which authority logs can be named for ever, so that each of them can be fetched."""

from __future__ import annotations

import psycopg
import pytest

from lakeproof.errors import ProvisionError
from lakeproof.provision import Provisioned, provision
from testkit.databases import LOGIN_PASSWORD


def authorities(database: str) -> list[str]:
    with psycopg.connect(database) as connection:
        return [authority for (authority,) in connection.execute("SELECT authority FROM lakeproof.installation")]


def forget(database: str) -> None:
    """Make the database one that has no authority yet; everything else is there already."""
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute("DELETE FROM lakeproof.installation").rowcount == 1


@pytest.mark.parametrize(
    "authority",
    [
        "logs.example.org/tile",
        "logs.example.org/tile/eu",
        "receipt/logs.example.org",
        "logs.example.org/receipt/eu",
        "logs.example.org/../eu",
        "logs.example.org/./eu",
        "..",
        "logs.example.org//eu",
        "/logs.example.org",
        "logs.example.org/",
        "logs.example.org?eu",
        "logs.example.org#eu",
        "logs.example.org/%65u",
        "https://logs.example.org",
        "logs example",
        "logs+example",
        "",
        "a" * 201,
    ],
)
def test_an_authority_whose_logs_could_not_be_fetched_is_refused_and_not_stored(
    database: str, installation: Provisioned, authority: str
) -> None:
    assert installation.id
    forget(database)
    with pytest.raises(ProvisionError, match="LAKEPROOF_ORIGIN"):
        provision(database, login_password=LOGIN_PASSWORD, origin=authority)
    assert authorities(database) == []


@pytest.mark.parametrize("authority", ["logs.example.org:8080/eu", "tiles.example.org/receipts/a...b", "a" * 200])
def test_any_other_authority_is_the_beginning_of_every_name(
    database: str, installation: Provisioned, authority: str
) -> None:
    assert installation.id
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE lakeproof.installation SET authority = %s", (authority,))
    again = provision(database, login_password=LOGIN_PASSWORD, origin=authority)
    assert (again.system_origin, authorities(database)) == (f"{authority}/system", [authority])


def test_an_installation_keeps_the_authority_that_its_logs_have(database: str, installation: Provisioned) -> None:
    stored = "logs.example.org/tile/eu"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE lakeproof.installation SET authority = %s", (stored,))
    for origin in (None, stored):
        again = provision(database, login_password=LOGIN_PASSWORD, origin=origin)
        assert (again.id, again.authority) == (installation.id, stored)
    with pytest.raises(ProvisionError, match="for ever"):
        provision(database, login_password=LOGIN_PASSWORD, origin="logs.example.org")
