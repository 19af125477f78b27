"""
Everything that can be configured: one table, `SETTINGS`, and one frozen value, `Settings`, read once at the start.

A value comes from the environment (LAKEPROOF_<NAME>), else from lakeproof.toml (LAKEPROOF_CONFIG, or
./lakeproof.toml), else from the table. A name that is not in the table is an error, because a setting that is silently
not applied is worse than none; so is every value out of its range. An empty variable counts as not set. Paths in the
environment are relative to the current directory, paths in the file to the file's.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeproof.errors import SettingsError
from lakeproof.setting_kinds import PREFIX, Kind, LogLevel, Setting
from lakeproof.setting_table import SETTINGS

if TYPE_CHECKING:
    from projections.egress.rules import EgressRules

CONFIG_VARIABLE = "LAKEPROOF_CONFIG"
CONFIG_FILE = "lakeproof.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration of one process. Its printed form shows no secret."""

    home: Path
    server_account: str
    server_folder: Path
    dsn: str | None = field(repr=False)
    origin: str | None
    schema_accepted: str | None
    host: str
    port: int
    warehouse: str
    cache: Path
    checkpoint_interval_s: float
    signer_agent: Path | None
    signer_agent_key: str | None
    seal_parts: int
    key_encryption_key: Path | None
    anchor_interval_s: float
    witness_policy: Path | None
    time_stamp_url: str | None = field(repr=False)
    time_stamp_roots: Path | None
    time_stamp_policy: str | None
    time_stamp_interval_s: float
    publish_to: str | None
    publish_interval_s: float
    append_queue_max: int
    append_queue_mib: int
    append_batch_max: int
    append_deadline_s: float
    policy_timeout_s: float
    policy_waiting_s: float
    policy_memory_mib: int
    policy_workers: int
    body_max_bytes: int
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...]
    connections_max: int
    connections_per_address_max: int
    head_timeout_s: float
    idle_timeout_s: float
    stall_timeout_s: float
    rate_min_bytes_per_s: int
    drain_timeout_s: float
    metrics_token: str | None = field(repr=False)
    upstreams_allowed: EgressRules
    upstream_timeout_s: float
    reconcile_after_s: float
    s3_endpoint: str | None
    s3_region: str | None
    s3_access_key_id: str | None
    s3_secret_access_key: str | None = field(repr=False)
    s3_events_queue: str | None
    polaris_webhook: int
    alert_webhook: str | None = field(repr=False)
    streams: int
    streams_workers: int
    kafka_brokers: str | None
    kafka_lineage_topic: str
    kafka_outbox_topic: str
    detect: int
    detect_batch_max_bytes: int
    spark_master: str
    java_home: Path | None
    log_level: LogLevel


"""The one table; the order is the documentation's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    value: object
    where: str
    relative_to: Path


def load_settings(environment: Mapping[str, str], *, directory: Path) -> Settings:
    """
    Return the configuration that `environment` and the file it names (else `directory`/lakeproof.toml) give.

    `directory` is the current directory: what relative paths in the environment start from.

    Raises:
        SettingsError: if a name is unknown, a value is not what its setting takes, or the file cannot be read.
    """
    directory = directory.absolute()
    given: dict[str, _Given] = {}
    file = _config_file(environment, directory)
    if file is not None:
        for key, value in _read_toml(file).items():
            setting = _known(key, {s.name: s for s in SETTINGS}, what=f"the key {key} in {file}")
            given[setting.name] = _Given(value=value, where=f"{key} in {file}", relative_to=file.parent)
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != CONFIG_VARIABLE:
            setting = _known(variable, {s.variable: s for s in SETTINGS}, what=f"the variable {variable}")
            if text:
                value = _number_in(text) if setting.kind in {Kind.INTEGER, Kind.NUMBER} else text
                given[setting.name] = _Given(value=value, where=variable, relative_to=directory)
    # Any: each value has the type of its field, because `_convert` goes by the kind; a test holds the two together
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        default = _Given(value=setting.default, where=setting.variable, relative_to=directory)
        values[setting.name] = _convert(setting, given.get(setting.name, default))
    values["warehouse"] = values["warehouse"].replace("file://<home>", f"file://{values['home']}")
    return Settings(**values)


def format_settings_table() -> str:
    """
    Return the table as Markdown: variable, type, default, unit and meaning of every setting.
    """
    lines = ["| variable | type | default | unit | meaning |", "|---|---|---|---|---|"]
    for setting in SETTINGS:
        default = "" if setting.default in {None, ""} else f"`{setting.default}`"
        lines.append(f"| `{setting.variable}` | {setting.kind} | {default} | {setting.unit} | {setting.meaning} |")
    return "\n".join(lines) + "\n"


def _config_file(environment: Mapping[str, str], directory: Path) -> Path | None:
    if named := environment.get(CONFIG_VARIABLE):
        return directory / named
    file = directory / CONFIG_FILE
    return file if file.exists() else None


def _read_toml(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{file} cannot be read ({error.strerror}): correct {CONFIG_VARIABLE}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file} is not valid TOML ({error}): correct it") from error


def _known(name: str, known: Mapping[str, Setting], *, what: str) -> Setting:
    if name in known:
        return known[name]
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)[0]
    raise SettingsError(f"{what} is no setting: the nearest is {nearest}")


def _number_in(text: str) -> int | float | str:
    """Return the number that `text` is in plain decimal, or else the text, which no number setting takes."""
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]{1,18}\.[0-9]{1,18}", text) else text


def _convert(setting: Setting, given: _Given) -> object:
    value = given.value
    match setting.kind:
        case _ if value is None:  # only as a default: TOML has no null, and an empty variable is not set
            return None
        case Kind.INTEGER | Kind.NUMBER:
            if (number := _within(setting, value)) is not None:
                return number
        case Kind.LEVEL if isinstance(value, str):
            if value.lower() in set(LogLevel):
                return LogLevel(value.lower())
        case Kind.ORIGIN if isinstance(value, str):
            if re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9._~:-]|/(?![/]|$)){0,199}", value):
                return value
        case Kind.HOSTS if isinstance(value, str):
            return _rules(value, given.where)
        case Kind.NETWORKS if isinstance(value, str):
            with suppress(ValueError):
                return tuple(ip_network(part.strip()) for part in value.split(",") if part.strip())
        case Kind.TEXT | Kind.SECRET | Kind.PATH | Kind.LOCATION if isinstance(value, str):
            if value and value.isprintable():
                return _located(setting.kind, value, given.relative_to)
    found = "one that is not" if setting.kind is Kind.SECRET else repr(value)[:100]
    raise SettingsError(f"{given.where}: expected {_expected(setting)}, found {found}")


def _rules(value: str, where: str) -> EgressRules:
    # Here: to show help, or to check a proof, must not load the read models.
    from projections.egress.rules import EgressRules
    from projections.errors import EgressRulesError

    try:
        return EgressRules.parse(value)
    except EgressRulesError as error:
        raise SettingsError(f"{where}: {error}") from error


def _within(setting: Setting, value: object) -> int | float | None:
    """Return the number that `value` is, None if it is none or out of the setting's range."""
    kinds = int if setting.kind is Kind.INTEGER else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not setting.least <= value <= setting.most:
        return None
    return value if setting.kind is Kind.INTEGER else float(value)


def _located(kind: Kind, value: str, relative_to: Path) -> str | Path:
    match kind:
        case Kind.PATH:
            return _path(value, relative_to)
        case Kind.LOCATION if "://" not in value:
            return f"file://{value if value.startswith('<home>') else _path(value, relative_to)}"
    return value


def _path(value: str, relative_to: Path) -> Path:
    try:
        return relative_to / Path(value).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"the path {value} names a home directory that is not known: write it out") from error


def _expected(setting: Setting) -> str:
    match setting.kind:
        case Kind.INTEGER | Kind.NUMBER:
            whole = "a whole number" if setting.kind is Kind.INTEGER else "a number"
            return f"{whole} from {setting.least:g} to {setting.most:g}" + (
                f" ({setting.unit})" if setting.unit else ""
            )
        case Kind.LEVEL:
            return "one of " + ", ".join(LogLevel)
        case Kind.HOSTS:
            return "hosts, addresses and networks, separated by commas"
        case Kind.ORIGIN:
            return "an authority such as logs.example.org (no scheme, space or plus, no slash at the end)"
        case Kind.NETWORKS:
            return "addresses or networks such as 10.0.0.0/8 or ::1, separated by commas"
        case Kind.TEXT | Kind.SECRET | Kind.PATH | Kind.LOCATION:
            return f"a {setting.kind} of printable characters"
