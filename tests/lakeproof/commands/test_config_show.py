# SPDX-License-Identifier: Apache-2.0
"""`lakeproof config show`: every setting, what it is and where that comes from, and never a secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lakeproof.commands.config import config_app
from lakeproof.errors import SettingsError
from lakeproof.setting_kinds import Kind
from lakeproof.settings import SETTINGS


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the variables of this machine out, and begin in a folder without a file of settings."""
    for name in [name for name in os.environ if name.startswith("LAKEPROOF_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def shown() -> dict[str, Any]:
    """Return what is shown of every setting, by its variable."""
    result = CliRunner().invoke(config_app(), ["show", "--json"])
    assert result.exit_code == 0, result.output
    return {row["variable"]: row for row in json.loads(result.stdout)}


def test_every_setting_is_shown_with_its_default() -> None:
    rows = shown()
    assert list(rows) == [setting.variable for setting in SETTINGS]
    assert {row["source"] for row in rows.values()} == {"default"}
    assert (rows["LAKEPROOF_PORT"]["value"], rows["LAKEPROOF_PORT"]["where"]) == (8181, "")
    assert rows["LAKEPROOF_UPSTREAMS_ALLOWED"]["value"] == "public"
    assert rows["LAKEPROOF_WAREHOUSE"]["value"] == f"file://{Path.cwd()}/.lakeproof/warehouse"
    assert rows["LAKEPROOF_TRUSTED_PROXIES"]["value"] == ""
    assert rows["LAKEPROOF_LOG_LEVEL"]["value"] == "info"


def test_each_value_says_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path("lakeproof.toml").absolute()
    file.write_text('port = 1\nhost = "::1"\n')
    monkeypatch.setenv("LAKEPROOF_PORT", "2")
    monkeypatch.setenv("LAKEPROOF_TRUSTED_PROXIES", "10.0.0.0/8, ::1")
    monkeypatch.setenv("LAKEPROOF_HOST", "")
    rows = shown()
    found = {name: (row["value"], row["source"], row["where"]) for name, row in rows.items() if row["where"]}
    assert found == {
        "LAKEPROOF_PORT": (2, "environment", "LAKEPROOF_PORT"),
        "LAKEPROOF_HOST": ("::1", "file", f"host in {file}"),
        "LAKEPROOF_TRUSTED_PROXIES": ("10.0.0.0/8,::1/128", "environment", "LAKEPROOF_TRUSTED_PROXIES"),
    }


def test_of_a_secret_it_is_shown_whether_it_is_set_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [setting.variable for setting in SETTINGS if setting.kind is Kind.SECRET]
    assert {shown()[name]["value"] for name in secrets} == {"not set"}
    for name in secrets:
        monkeypatch.setenv(name, "sesame")
    monkeypatch.setenv("LAKEPROOF_S3_ENDPOINT", "https://ada:sesame@minio.example:9000/x")
    monkeypatch.setenv("LAKEPROOF_PUBLISH_TO", "file:/srv/x,git:https://sesame@git.example/logs#main")
    rows = shown()
    assert {rows[name]["value"] for name in secrets} == {"set"}
    assert rows["LAKEPROOF_S3_ENDPOINT"]["value"] == "https://***@minio.example:9000/x"
    assert rows["LAKEPROOF_PUBLISH_TO"]["value"] == "file:/srv/x,git:https://***@git.example/logs#main"
    for arguments in (["show"], ["show", "--json"]):
        assert "sesame" not in CliRunner().invoke(config_app(), arguments).output


def test_settings_that_cannot_be_read_are_refused_as_by_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEPROOF_PROT", "1")
    with pytest.raises(SettingsError, match="the nearest is LAKEPROOF_PORT"):
        CliRunner().invoke(config_app(), ["show"], catch_exceptions=False)
