# SPDX-License-Identifier: Apache-2.0
"""
Secrets of catalogs: files that nobody else can read, by an id that is never a path.
"""

from __future__ import annotations

import stat
from pathlib import Path
from uuid import UUID

import pytest

from projections.errors import SecretMissingError
from projections.lake.secrets import SecretDirectory

ACME = UUID(int=1)
EVIL = UUID(int=2)


def test_a_secret_is_read_back_and_its_file_is_for_the_owner_alone(tmp_path: Path) -> None:
    secrets = SecretDirectory(tmp_path / "tenants")
    secrets.write(ACME, "upstream-token", "s3cr3t")
    assert secrets.read(ACME, "upstream-token") == "s3cr3t"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in sorted((tmp_path / "tenants").rglob("*"))]
    assert modes == [0o700, 0o600]


def test_a_secret_is_its_tenants_alone(tmp_path: Path) -> None:
    secrets = SecretDirectory(tmp_path)
    secrets.write(ACME, "token", "mine")
    with pytest.raises(SecretMissingError, match=r"expected .*token, found none"):
        secrets.read(EVIL, "token")


def test_a_secret_is_replaced_as_a_whole(tmp_path: Path) -> None:
    secrets = SecretDirectory(tmp_path)
    secrets.write(ACME, "token", "first, and longer")
    secrets.write(ACME, "token", "second")
    assert secrets.read(ACME, "token") == "second"
    assert [path.name for path in (tmp_path / ACME.hex).iterdir()] == ["token"]


def test_a_line_break_at_the_end_is_the_editors(tmp_path: Path) -> None:
    (tmp_path / ACME.hex).mkdir()
    file = tmp_path / ACME.hex / "token"
    file.touch(mode=0o600)
    file.write_text("s3cr3t\n", encoding="utf-8")
    assert SecretDirectory(tmp_path).read(ACME, "token") == "s3cr3t"


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secrets = SecretDirectory(tmp_path)
    secrets.write(ACME, "token", "s3cr3t")
    (tmp_path / ACME.hex / "token").chmod(0o640)
    with pytest.raises(SecretMissingError, match="has mode 0640 and others can read it: run chmod 600"):
        secrets.read(ACME, "token")


@pytest.mark.parametrize("secret", ["", "../token", "a/b", "UPPER", ".hidden", "a" * 64, "a\x00b", "-a"])
def test_what_is_no_id_never_becomes_a_path(tmp_path: Path, secret: str) -> None:
    secrets = SecretDirectory(tmp_path)
    with pytest.raises(SecretMissingError, match="expected the id of a secret"):
        secrets.read(ACME, secret)
    with pytest.raises(SecretMissingError, match="expected the id of a secret"):
        secrets.write(ACME, secret, "value")
    assert not list(tmp_path.iterdir())


PEM = "subject=gateway\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize("value", [PEM, PEM.replace("\n", "\r\n"), f"{PEM}\n\n{PEM}"])
def test_pem_is_a_secret_of_several_lines(tmp_path: Path, value: str) -> None:
    secrets = SecretDirectory(tmp_path)
    secrets.write(ACME, "certificate", f"{value}\n")
    assert secrets.read(ACME, "certificate") == value


@pytest.mark.parametrize("value", ["", "\n", "a\nb", "a" * 16_385, "\ud800", f"{PEM}\x00", f"{PEM}\u2028{PEM}"])
def test_what_is_no_secret_is_not_stored(tmp_path: Path, value: str) -> None:
    with pytest.raises(SecretMissingError, match="expected"):
        SecretDirectory(tmp_path).write(ACME, "token", value)
    assert not list(tmp_path.iterdir())
