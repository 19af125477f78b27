# SPDX-License-Identifier: Apache-2.0
import logging
from dataclasses import fields
from pathlib import Path

import pytest

from lakeproof.demo.channel import Channel
from lakeproof.demo.cloud import Cloud
from lakeproof.demo.scene import scene_settings
from lakeproof.errors import SettingsError
from lakeproof.setting_kinds import Kind, LogFormat, LogLevel
from lakeproof.settings import SETTINGS, Settings, format_settings_table, load_settings
from ledger.append.appender import APPEND_QUEUE_BYTES_MAX
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError


def refusal(environment: dict[str, str], directory: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(environment, directory=directory)
    return str(caught.value)


def test_every_field_is_annotated_with_the_type_of_its_kind() -> None:
    types: dict[Kind, str] = {
        Kind.TEXT: "str", Kind.SECRET: "str", Kind.ORIGIN: "str", Kind.LOCATION: "str", Kind.PATH: "Path",
        Kind.INTEGER: "int", Kind.NUMBER: "float", Kind.LEVEL: "LogLevel", Kind.FORMAT: "LogFormat",
        Kind.HOSTS: "EgressRules",
        Kind.NETWORKS: "tuple[IPv4Network | IPv6Network, ...]",
    }  # fmt: skip
    annotated = {field.name: field.type for field in fields(Settings)}
    assert annotated == {
        setting.name: types[setting.kind] + (" | None" if setting.default is None else "") for setting in SETTINGS
    }


def test_every_default_is_a_value_its_setting_takes(tmp_path: Path) -> None:
    settings = load_settings({}, directory=tmp_path)
    kinds: dict[Kind, type | tuple[type, ...]] = {
        Kind.TEXT: str, Kind.SECRET: str, Kind.ORIGIN: str, Kind.LOCATION: str, Kind.PATH: Path, Kind.INTEGER: int,
        Kind.NUMBER: float, Kind.LEVEL: LogLevel, Kind.FORMAT: LogFormat, Kind.HOSTS: EgressRules, Kind.NETWORKS: tuple,
    }  # fmt: skip
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        assert isinstance(value, kinds[setting.kind]) or (value is None and setting.default is None), setting.name


def test_without_any_setting_everything_lies_below_the_home_directory_and_listens_on_loopback(tmp_path: Path) -> None:
    settings = load_settings({"PATH": "/bin"}, directory=tmp_path)
    assert settings.home == tmp_path / ".lakeproof"
    assert settings.warehouse == f"file://{tmp_path}/.lakeproof/warehouse"
    assert (settings.host, settings.port, settings.dsn) == ("127.0.0.1", 8181, None)
    assert settings.body_max_bytes == 16 * 1024 * 1024
    assert settings.append_queue_mib * 2**20 == APPEND_QUEUE_BYTES_MAX


def test_the_environment_wins_over_the_file_and_the_file_over_the_table(tmp_path: Path) -> None:
    (tmp_path / "lakeproof.toml").write_text("port = 1\nappend_batch_max = 7\n")
    settings = load_settings({"LAKEPROOF_PORT": "2"}, directory=tmp_path)
    assert (settings.port, settings.append_batch_max, settings.append_queue_max) == (2, 7, 10_000)


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    (tmp_path / "lakeproof.toml").write_text("port = 1\n")
    settings = load_settings({"LAKEPROOF_PORT": "", "LAKEPROOF_DSN": ""}, directory=tmp_path)
    assert (settings.port, settings.dsn) == (1, None)


def test_paths_in_the_file_start_from_the_file_and_paths_in_the_environment_from_here(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "my.toml").write_text('home = "data"\n')
    environment = {"LAKEPROOF_CONFIG": "etc/my.toml", "LAKEPROOF_CACHE": "cache", "LAKEPROOF_WAREHOUSE": "tables"}
    settings = load_settings(environment, directory=tmp_path)
    assert settings.home == tmp_path / "etc" / "data"
    assert settings.cache == tmp_path / "cache"
    assert settings.warehouse == f"file://{tmp_path}/tables"


def test_a_warehouse_may_be_a_uri_and_the_default_one_follows_the_home(tmp_path: Path) -> None:
    given = load_settings({"LAKEPROOF_WAREHOUSE": "s3://bucket/prefix"}, directory=tmp_path)
    moved = load_settings({"LAKEPROOF_HOME": "/srv/lakeproof"}, directory=tmp_path)
    assert given.warehouse == "s3://bucket/prefix"
    assert moved.warehouse == "file:///srv/lakeproof/warehouse"


def test_a_tilde_is_the_users_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert load_settings({}, directory=tmp_path).cache == Path("/home/someone/.cache/lakeproof")


def test_an_unknown_variable_names_the_nearest_known_one(tmp_path: Path) -> None:
    assert refusal({"LAKEPROOF_WAREHOSE": "x"}, tmp_path) == (
        "the variable LAKEPROOF_WAREHOSE is no setting: the nearest is LAKEPROOF_WAREHOUSE"
    )


def test_an_unknown_key_of_the_file_names_the_nearest_known_one(tmp_path: Path) -> None:
    (tmp_path / "lakeproof.toml").write_text("ports = 1\n")
    assert refusal({}, tmp_path).endswith("lakeproof.toml is no setting: the nearest is port")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("port", "http", "a whole number from 0 to 65535"),
        ("port", "65536", "a whole number from 0 to 65535"),
        ("port", "-1", "a whole number from 0 to 65535"),
        ("port", "80.5", "a whole number from 0 to 65535"),
        ("port", "1_000", "a whole number from 0 to 65535"),
        ("port", "٣", "a whole number from 0 to 65535"),
        ("append_batch_max", "0", "a whole number from 1 to 10000 (groups)"),
        ("policy_timeout_s", "0", "a number from 0.01 to 60 (seconds)"),
        ("policy_timeout_s", "nan", "a number from 0.01 to 60 (seconds)"),
        ("policy_timeout_s", "inf", "a number from 0.01 to 60 (seconds)"),
        ("log_level", "loud", "one of debug, info, warning, error"),
        ("origin", "https://logs.example.org", "an authority such as"),
        ("origin", "logs.example.org/", "an authority such as"),
        ("origin", "a b", "an authority such as"),
        ("origin", "a+b", "an authority such as"),
        ("host", "a\nb", "a text of printable characters"),
        ("trusted_proxies", "10.0.0.1/8", "addresses or networks such as 10.0.0.0/8"),
        ("trusted_proxies", "proxy.internal", "addresses or networks such as 10.0.0.0/8"),
    ],
)
def test_a_bad_value_says_what_was_expected_and_what_was_found(
    name: str, text: str, expected: str, tmp_path: Path
) -> None:
    message = refusal({f"LAKEPROOF_{name.upper()}": text}, tmp_path)
    assert message.startswith(f"LAKEPROOF_{name.upper()}: expected {expected}")
    assert message.endswith((f"found {text}", f"found {text!r}"))


@pytest.mark.parametrize(
    "line", ['port = "80"', "port = true", "port = 80.0", "home = 1", "policy_timeout_s = true", "dsn = 1", 'host = ""']
)
def test_a_value_of_another_type_in_the_file_is_refused_by_its_key(line: str, tmp_path: Path) -> None:
    (tmp_path / "lakeproof.toml").write_text(line)
    key = line.split()[0]
    assert refusal({}, tmp_path).startswith(f"{key} in {tmp_path}/lakeproof.toml: expected ")


def test_values_of_the_right_type_are_taken_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "lakeproof.toml").write_text('port = 80\nhome = "h"\npolicy_timeout_s = 2\nlog_level = "WARNING"\n')
    settings = load_settings({"LAKEPROOF_ORIGIN": "logs.example.org:8080/eu"}, directory=tmp_path)
    assert (settings.port, settings.policy_timeout_s, settings.log_level) == (80, 2.0, LogLevel.WARNING)
    assert settings.origin == "logs.example.org:8080/eu"


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"port = 1\nport = 2"])
def test_a_damaged_file_is_one_sentence_with_its_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "lakeproof.toml").write_bytes(content)
    message = refusal({}, tmp_path)
    assert message.startswith(f"{tmp_path}/lakeproof.toml is not ")
    assert "\n" not in message


def test_a_named_file_that_is_missing_is_an_error_but_the_default_one_may_be_missing(tmp_path: Path) -> None:
    assert "cannot be read" in refusal({"LAKEPROOF_CONFIG": "no.toml"}, tmp_path)


def test_proxies_are_addresses_and_networks_of_both_kinds(tmp_path: Path) -> None:
    settings = load_settings({"LAKEPROOF_TRUSTED_PROXIES": "10.0.0.0/8, ::1,192.0.2.7"}, directory=tmp_path)
    assert [str(network) for network in settings.trusted_proxies] == ["10.0.0.0/8", "::1/128", "192.0.2.7/32"]
    assert load_settings({}, directory=tmp_path).trusted_proxies == ()


def test_no_secret_is_printed(tmp_path: Path) -> None:
    environment = {"LAKEPROOF_DSN": "host=db password=hunter2", "LAKEPROOF_METRICS_TOKEN": "hunter2"}
    settings = load_settings(environment, directory=tmp_path)
    assert settings.metrics_token == "hunter2"
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in refusal({"LAKEPROOF_METRICS_TOKEN": "hunter2\x00"}, tmp_path)


def test_every_log_level_is_one_of_pythons() -> None:
    assert set(LogLevel) <= {name.lower() for name in logging.getLevelNamesMapping()}


def test_the_documentation_table_has_a_row_for_every_setting() -> None:
    lines = format_settings_table().splitlines()
    assert len(lines) == len(SETTINGS) + 2
    assert any(line.startswith("| `LAKEPROOF_PORT` | integer | `8181` |") for line in lines)
    assert all(line.count("|") == 6 for line in lines)


def test_loopback_is_allowed_where_it_is_named_and_in_the_scene_alone(tmp_path: Path) -> None:
    settings = load_settings({}, directory=tmp_path)
    assert settings.upstreams_allowed == EgressRules.parse("public")
    with pytest.raises(AddressRefusedError):
        settings.upstreams_allowed.check_literal("127.0.0.1", 8181)
    named = load_settings({"LAKEPROOF_UPSTREAMS_ALLOWED": "public, 127.0.0.1:8181"}, directory=tmp_path)
    named.upstreams_allowed.check_literal("localhost", 8181)
    cloud = Cloud(endpoint="http://127.0.0.1:1", bucket="b", queue="q")
    scene = scene_settings(settings, cloud, Channel(url="http://127.0.0.1:2/hook"))
    scene.upstreams_allowed.check_literal("127.0.0.1", 1)
    scene.upstreams_allowed.check_literal("1.1.1.1", 443)
    with pytest.raises(AddressRefusedError):
        scene.upstreams_allowed.check_literal("10.0.0.1", 443)


@pytest.mark.parametrize("value", ["https://catalog.example", "127.1", "a b", "10.0.0.0/33", "x:0"])
def test_a_place_that_is_none_is_refused_at_the_start(tmp_path: Path, value: str) -> None:
    assert refusal({"LAKEPROOF_UPSTREAMS_ALLOWED": value}, tmp_path).startswith("LAKEPROOF_UPSTREAMS_ALLOWED: expected")
    (tmp_path / "lakeproof.toml").write_text("upstreams_allowed = [1]\n")
    assert "hosts, addresses and networks" in refusal({}, tmp_path)
