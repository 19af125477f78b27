# SPDX-License-Identifier: Apache-2.0
"""What is printed of an installation shows no password, and of a payload part no content."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from psycopg.conninfo import make_conninfo

from lakeproof.services import Services
from ledger.format.sealing import StoredPart

LOGIN, OWNER = "throw-away", "password-of-the-owner"


def test_no_password_is_printed_of_an_installation(services: Services) -> None:
    installation = services.installation
    installation = replace(
        services.installation, admin_dsn=make_conninfo(services.installation.admin_dsn, password=OWNER)
    )
    assert (LOGIN in installation.dsn, OWNER in installation.admin_dsn) == (True, True)
    for held in (installation, replace(services, installation=installation)):
        text = repr(held)
        assert type(held).__name__ in text
        assert LOGIN not in text
        assert OWNER not in text


def test_no_content_is_printed_of_a_stored_part() -> None:
    part = StoredPart(7, "inputs", "ad" * 16, None, bytes(32) + b"a word that ada wrote")
    assert repr(part) == "StoredPart(entry_index=7, name='inputs', 53 bytes)"
    assert "key" in repr(part._replace(key_id=uuid4()))
