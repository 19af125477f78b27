# SPDX-License-Identifier: Apache-2.0
"""A login is overwritten wherever it stands in the files of a home, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.erased_copies import READ_BYTES, log_folders, overwrite_login
from ledger.erasing.redaction import LoginMatcher
from ledger.errors import LedgerError

ADA = b"ada@acme.example"


def overwrite(home: Path, *, has_own_server: bool = False) -> int:
    return overwrite_login(log_folders(home, has_own_server=has_own_server), LoginMatcher(ADA.decode()))


def test_a_login_is_overwritten_where_it_stands_wherever_the_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    file = tmp_path / "log" / "detect.log"
    for begin in (0, READ_BYTES - 7, READ_BYTES, 2 * READ_BYTES - 20_000):
        content = b"." * begin + ADA + b"." * (3 * READ_BYTES - begin - len(ADA))
        file.write_bytes(content)
        assert overwrite(tmp_path) == 1
        assert file.read_bytes() == content.replace(ADA, b"x" * len(ADA))
        assert overwrite(tmp_path) == 0


def test_the_embedded_servers_log_is_reached_and_what_a_link_leads_to_is_not(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_bytes(ADA)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "crash-1.txt").symlink_to(elsewhere)
    (tmp_path / "log" / "empty.txt").touch()
    (tmp_path / "postgres" / "log").mkdir(parents=True)
    server = tmp_path / "postgres" / "log" / "postgresql-Mon.log"
    server.write_bytes(b"Key (identity)=(" + ADA + b") exists")
    assert overwrite(tmp_path, has_own_server=True) == 0, "a server of its own has its log elsewhere"
    assert overwrite(tmp_path) == 1
    assert server.read_bytes() == b"Key (identity)=(" + b"x" * len(ADA) + b") exists"
    assert elsewhere.read_bytes() == ADA


def test_a_home_that_does_not_say_where_its_server_is_is_not_taken_for_erased(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text("{")
    with pytest.raises(LedgerError, match="the embedded server may mention"):
        overwrite(tmp_path)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "crash-1.txt").write_bytes(ADA)

    def refused(path: Path, _flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("lakeproof.erased_copies.os.open", refused)
    with pytest.raises(LedgerError, match=r"crash-1\.txt .*Permission denied.*delete it"):
        overwrite(tmp_path)
