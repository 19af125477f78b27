# SPDX-License-Identifier: Apache-2.0
"""
The file of identity providers as the settings name it, with the secrets that are in files of their own.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from lakeproof.errors import SettingsError
from lakeproof.settings import load_settings
from lakeproof.token_settings import load_issuers
from ledger.store.read import Log

TENANT = UUID("0190163d-8694-739b-aea5-966c26f8ad91")
LOGS = [Log(log_id=2, origin="lakeproof.invalid/1", tenant=TENANT, reader=None)]


def described(folder: Path, secret_file: Path) -> Path:
    file = folder / "issuers.toml"
    file.write_text(
        f"""[[issuers]]
issuer = "https://idp.example.org"
tenant = "{TENANT}"
audience = "lakeproof"

[issuers.login]
name = "acme"
origin = "https://lake.example.org"
client_id = "console"
client_secret_file = "{secret_file}"
"""
    )
    return file


def write_private(file: Path, content: str) -> None:
    file.write_text(content)
    file.chmod(0o600)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", "hunter2")
    (tmp_path / "secret").chmod(0o640)
    file = described(tmp_path, tmp_path / "secret")
    settings = load_settings({"LAKEPROOF_TOKEN_ISSUERS": str(file)}, directory=tmp_path)
    with pytest.raises(SettingsError, match="give it mode 0600"):
        load_issuers(settings, LOGS)


def test_the_secret_of_a_login_is_read_from_its_file_and_printed_nowhere(tmp_path: Path) -> None:
    write_private(tmp_path / "secret", "hunter2\n")
    file = described(tmp_path, tmp_path / "secret")
    settings = load_settings({"LAKEPROOF_TOKEN_ISSUERS": str(file)}, directory=tmp_path)
    ((issuer, log_id),) = load_issuers(settings, LOGS)
    assert issuer.login is not None
    assert (issuer.login.secret, log_id) == ("hunter2", 2)
    assert "hunter2" not in repr(issuer)


@pytest.mark.parametrize("content", [None, "", "two\nlines", "x" * 1_001])
def test_a_secret_that_cannot_be_one_is_an_error_that_does_not_repeat_it(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        write_private(tmp_path / "secret", content)
    file = described(tmp_path, tmp_path / "secret")
    settings = load_settings({"LAKEPROOF_TOKEN_ISSUERS": str(file)}, directory=tmp_path)
    with pytest.raises(SettingsError, match="secret") as refused:
        load_issuers(settings, LOGS)
    assert not content or content not in str(refused.value)
