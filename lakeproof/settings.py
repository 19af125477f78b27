# SPDX-License-Identifier: Apache-2.0
"""
Everything that can be configured: the frozen class `Settings`, read once at the start.

Each setting is declared once, as a field with its kind, default, meaning, unit and bounds; `docs/configuration.md` has
the table that is made of them. A value comes from the environment (LAKEPROOF_<NAME>), else from lakeproof.toml
(LAKEPROOF_CONFIG, or ./lakeproof.toml), else it is the default. A name that is not declared is an error, because a
setting that is silently not applied is worse than none. So is every value out of its range. An empty variable counts as
not set. Paths in the environment are relative to the current directory, paths in the file to the file's.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakeproof.errors import SettingsError
from lakeproof.setting_kinds import (
    PREFIX,
    Given,
    Kind,
    LogFormat,
    LogLevel,
    Setting,
    declared_setting,
    number_in,
    read_value,
    setting,
)

if TYPE_CHECKING:
    from projections.egress.rules import EgressRules

CONFIG_VARIABLE: Final = "LAKEPROOF_CONFIG"
CONFIG_FILE: Final = "lakeproof.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configuration of one process, in the order of the documentation. Its printed form shows no secret."""

    home: Path = setting(
        Kind.PATH,
        ".lakeproof",
        "directory of the keys (each file 0600), the embedded server's data and logs (root's are in "
        "LAKEPROOF_SERVER_FOLDER), and the default warehouse; no other user may enter it",
    )
    server_account: str = setting(
        Kind.TEXT,
        "lakeproof",
        "system account that root's embedded server runs as, and no other program may; the default one is made if "
        "it is missing",
    )
    server_folder: Path = setting(
        Kind.PATH,
        "/var/lib/lakeproof",
        "folder in which root's embedded servers keep their databases, each in a directory of its own; that account "
        "must be able to enter it",
    )
    dsn: str | None = setting(
        Kind.SECRET,
        None,
        "connection string of the owner of your own PostgreSQL 17 or newer with Apache AGE; without it an "
        "embedded server runs in the home directory",
    )
    origin: str | None = setting(
        Kind.ORIGIN,
        None,
        "authority with which the name of every log begins, as in logs.example.org; fixed by the first start; "
        "without it lakeproof.invalid/<installation id>",
    )
    schema_accepted: str | None = setting(
        Kind.TEXT,
        None,
        "fingerprint of a changed schema (with roles, grants and settings), as a refused start prints it: the "
        "change is accepted, and the system log records it; any other change is still refused",
    )
    host: str = setting(Kind.TEXT, "127.0.0.1", "address the gateway listens on")
    port: int = setting(Kind.INTEGER, 8181, "port the gateway listens on; 0 is any free one", most=65_535)
    tls_certificate: Path | None = setting(
        Kind.PATH,
        None,
        "PEM file with the gateway's certificate and those of its issuers behind it: the gateway answers https alone; "
        "without it http",
    )
    tls_key: Path | None = setting(Kind.PATH, None, "PEM file with the key of that certificate, 0600, without password")
    tls_client_ca: Path | None = setting(
        Kind.PATH,
        None,
        "PEM file with the roots of those who sign clients' certificates, which clients may then show, or proxies pass "
        "on; without it none are asked for",
    )
    tls_clients: Path | None = setting(
        Kind.PATH,
        None,
        "TOML file with the clients whose certificates are accepted, and the proxies that may pass them on (see below)",
    )
    tls_client_required: int = setting(
        Kind.INTEGER,
        0,
        "1: a client that shows no certificate of these is not served at all; 0: it is, with an API key or a token",
        most=1,
    )
    gateway_processes: int | None = setting(
        Kind.INTEGER,
        None,
        "processes that answer requests, each with policy workers of its own and up to 15 connections to PostgreSQL; "
        "without it one per core but one, at least 1 and at most 4",
        unit="processes",
        least=1,
        most=64,
    )
    warehouse: str = setting(
        Kind.LOCATION,
        "<home>/warehouse",
        "where the built-in catalog keeps the files of its tables; no other user may enter a local one",
    )
    cache: Path = setting(Kind.PATH, "~/.cache/lakeproof", "directory of downloads, which can be fetched again")
    checkpoint_interval_s: float = setting(
        Kind.NUMBER,
        1.0,
        "least time between two signed checkpoints of a log",
        unit="seconds",
        least=0.01,
        most=3600,
    )
    signer_agent: Path | None = setting(
        Kind.PATH,
        None,
        "socket of the SSH agent that holds the signer's key; without it the key is a file in the home",
    )
    signer_agent_key: str | None = setting(
        Kind.TEXT,
        None,
        "the agent's Ed25519 key for the first start, as ssh-add -l prints it (SHA256:…); at later starts it must "
        "be one of the signing keys",
    )
    seal_parts: int = setting(
        Kind.INTEGER,
        1,
        "1: payload parts about a person are encrypted under that person's key; 0: they are not",
        most=1,
    )
    key_encryption_key: Path | None = setting(
        Kind.PATH,
        None,
        "file with the key that encrypts the keys of persons; without it one in the home directory",
    )
    anchor_interval_s: float = setting(
        Kind.NUMBER,
        60.0,
        "interval at which the system log records size and root of every log that has grown",
        unit="seconds",
        least=0.01,
        most=86_400,
    )
    witness_policy: Path | None = setting(
        Kind.PATH,
        None,
        "file with the witnesses of the system log and their quorum (C2SP tlog-policy); with it, no checkpoint of "
        "the system log is published before the quorum has cosigned it",
    )
    time_stamp_url: str | None = setting(
        Kind.SECRET,
        None,
        "URL of a time-stamping authority (RFC 3161) for the system log; without it there are no stamps",
    )
    time_stamp_roots: Path | None = setting(Kind.PATH, None, "PEM file with the roots of that authority")
    time_stamp_policy: str | None = setting(Kind.TEXT, None, "object identifier of the policy to stamp under")
    time_stamp_interval_s: float = setting(
        Kind.NUMBER,
        3600.0,
        "least time between two stamps",
        unit="seconds",
        least=1,
        most=604_800,
    )
    publish_to: str | None = setting(
        Kind.TEXT,
        None,
        "places outside the installation to which checkpoints of the system log are published, separated by commas: "
        "s3://bucket/prefix (with object lock and a default retention), git:<absolute path or URL>#<branch>, "
        "file:/path (for others to collect)",
    )
    publish_interval_s: float = setting(
        Kind.NUMBER,
        3600.0,
        "time between two checkpoints that are published to a place",
        unit="seconds",
        least=0.01,
        most=604_800,
    )
    append_queue_max: int = setting(
        Kind.INTEGER,
        10_000,
        "groups that may wait in one process to be appended; beyond it the gateway answers 503",
        unit="groups",
        least=1,
        most=1_000_000,
    )
    append_queue_mib: int = setting(
        Kind.INTEGER,
        128,
        "events and payload parts that may wait in one process to be appended (sealed parts take twice as much "
        "memory); beyond it the gateway answers 503",
        unit="MiB",
        least=4,
        most=65_536,
    )
    append_batch_max: int = setting(
        Kind.INTEGER,
        256,
        "groups that are appended in one transaction",
        unit="groups",
        least=1,
        most=10_000,
    )
    append_deadline_s: float = setting(
        Kind.NUMBER,
        10.0,
        "how long a caller waits for an append before its outcome is called unknown",
        unit="seconds",
        least=0.1,
        most=600,
    )
    policy_timeout_s: float = setting(
        Kind.NUMBER,
        1.0,
        "how long all policies of one commit may take, from when they begin; then it is refused as undecidable",
        unit="seconds",
        least=0.01,
        most=60,
    )
    policy_waiting_s: float = setting(
        Kind.NUMBER,
        5.0,
        "how long a commit may wait for its policies to begin; then it is refused as undecidable",
        unit="seconds",
        least=0.1,
        most=60,
    )
    policy_memory_mib: int = setting(
        Kind.INTEGER,
        512,
        "address space of a policy worker",
        unit="MiB",
        least=64,
        most=65_536,
    )
    policy_workers: int = setting(
        Kind.INTEGER,
        1,
        "processes that evaluate policies, for each gateway process; one more is for those that take long, one "
        "compiles, one is spare",
        unit="processes",
        least=1,
        most=256,
    )
    body_max_bytes: int = setting(
        Kind.INTEGER,
        16 * 1024**2,
        "largest body of a request; beyond it 413, without reading it all",
        unit="bytes",
        least=1024,
        most=1024**3,
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = setting(
        Kind.NETWORKS,
        "",
        "addresses and networks of the proxies in front of the gateway, separated by commas: the client of their "
        "requests is taken from X-Forwarded-For or Forwarded, and that it came over TLS from X-Forwarded-Proto or "
        "Forwarded; from others these headers are ignored (none of them may pass on certificates by that: see "
        "LAKEPROOF_TLS_CLIENTS)",
    )
    connections_max: int = setting(
        Kind.INTEGER,
        768,
        "connections that each gateway process may have open; beyond it one that waits for its client is closed, or "
        "the new one is answered 503 (each takes a file descriptor of the process)",
        unit="connections",
        least=8,
        most=60_000,
    )
    requests_per_tenant: int = setting(
        Kind.INTEGER,
        0,
        "requests a second that one tenant may make, over all gateway processes; beyond it the answer is 429. 0 is no "
        "limit",
        unit="requests per second",
        least=0,
        most=1_000_000,
    )
    requests_per_caller: int = setting(
        Kind.INTEGER,
        0,
        "requests a second that one caller may make, over all gateway processes; beyond it the answer is 429. 0 is no "
        "limit",
        unit="requests per second",
        least=0,
        most=1_000_000,
    )
    connections_per_address_max: int = setting(
        Kind.INTEGER,
        384,
        "connections that one client may have open at each gateway process: an IPv4 address, a /64 of IPv6, or the "
        "client that a trusted proxy names",
        unit="connections",
        least=4,
        most=60_000,
    )
    head_timeout_s: float = setting(
        Kind.NUMBER,
        15.0,
        "how long the head of a request may take to arrive; then 408. A handshake of TLS has as long, and then ends",
        unit="seconds",
        least=0.1,
        most=600,
    )
    idle_timeout_s: float = setting(
        Kind.NUMBER,
        30.0,
        "how long a connection may stay open without a request",
        unit="seconds",
        least=0.1,
        most=3600,
    )
    stall_timeout_s: float = setting(
        Kind.NUMBER,
        30.0,
        "how long a body may take to arrive, or an answer to be read, in addition to the time for its size at "
        "LAKEPROOF_RATE_MIN_BYTES_PER_S; then 408, or the connection is cut off",
        unit="seconds",
        least=0.1,
        most=600,
    )
    rate_min_bytes_per_s: int = setting(
        Kind.INTEGER,
        8192,
        "slowest rate at which bodies and answers may be transferred",
        unit="bytes per second",
        least=1,
        most=1024**3,
    )
    drain_timeout_s: float = setting(
        Kind.NUMBER,
        30.0,
        "how long the rest of a refused request is read and thrown away, so that its client sees the answer",
        unit="seconds",
        least=0.1,
        most=600,
    )
    metrics_token: str | None = setting(
        Kind.SECRET,
        None,
        "bearer token that /metrics asks for; without it only loopback may read it",
    )
    token_issuers: Path | None = setting(
        Kind.PATH,
        None,
        "TOML file with the identity providers whose JSON Web Tokens are accepted (see below); without it API keys and "
        "the gateway's own access tokens are, and nothing else",
    )
    upstreams_allowed: EgressRules = setting(
        Kind.HOSTS,
        "public",
        "hosts to which the gateway may connect for tenants' catalogs (uri, glue.endpoint, s3.endpoint), keys of "
        "identity providers and the alert webhook, separated by commas: public (every address of the internet), a "
        "host, an address, a network (10.1.0.0/16), each with an optional port (minio.internal:9000); private and "
        "loopback addresses are refused unless they are listed, link-local and metadata addresses unless each is "
        "listed by itself",
    )
    upstream_timeout_s: float = setting(
        Kind.NUMBER,
        30.0,
        "how long a foreign catalog may take to answer; then the outcome of a commit is unknown",
        unit="seconds",
        least=0.1,
        most=600,
    )
    reconcile_after_s: float = setting(
        Kind.NUMBER,
        60.0,
        "age from which the outcome of an open decision is looked up at the foreign catalog; more than "
        "LAKEPROOF_UPSTREAM_TIMEOUT_S",
        unit="seconds",
        least=0.1,
        most=3600,
    )
    s3_endpoint: str | None = setting(
        Kind.TEXT,
        None,
        "URL of S3 and SQS, if they are not Amazon's; for the warehouse and the events' queue",
    )
    s3_region: str | None = setting(Kind.TEXT, None, "region of S3 and SQS")
    s3_access_key_id: str | None = setting(
        Kind.TEXT,
        None,
        "access key for S3 and SQS; without it Amazon's own chain of credentials is used",
    )
    s3_secret_access_key: str | None = setting(Kind.SECRET, None, "secret of that access key")
    s3_events_queue: str | None = setting(
        Kind.TEXT,
        None,
        "URL of the SQS queue with ObjectCreated events of S3; without it none are read",
    )
    polaris_webhook: int = setting(
        Kind.INTEGER,
        1,
        "1: /v1/webhooks/polaris takes signed callbacks; 0: it answers 410",
        most=1,
    )
    alert_webhook: str | None = setting(
        Kind.SECRET,
        None,
        "URL that takes alerts as Slack's JSON; without it they are only in the log",
    )
    streams: int = setting(
        Kind.INTEGER,
        1,
        "1: `lakeproof up` runs the streams; 0: run `lakeproof streams run` in other processes",
        most=1,
    )
    streams_workers: int = setting(
        Kind.INTEGER,
        2,
        "batches of different logs that a process's streams handle at a time",
        unit="tasks",
        least=1,
        most=64,
    )
    kafka_brokers: str | None = setting(
        Kind.TEXT,
        None,
        "Kafka's bootstrap servers, separated by commas; without it no Kafka is used",
    )
    kafka_lineage_topic: str = setting(
        Kind.TEXT,
        "lakeproof.lineage",
        "prefix of the topics with OpenLineage events; a dot and the tenant's id follow",
    )
    kafka_outbox_topic: str = setting(
        Kind.TEXT,
        "lakeproof.events",
        "topic to which entries are published as CloudEvents",
    )
    detect: int = setting(
        Kind.INTEGER,
        1,
        "1: `lakeproof up` runs detection on Spark, if there is a Java 17; 0: run `lakeproof detect run` in another "
        "process",
        most=1,
    )
    detect_batch_max_bytes: int = setting(
        Kind.INTEGER,
        1024**3,
        "data that one batch of detection plans to scan",
        unit="bytes",
        least=1024**2,
    )
    spark_master: str = setting(
        Kind.TEXT,
        "local[2,4]",
        "Spark's master; the second number of local[N,F] is the attempts of a task",
    )
    java_home: Path | None = setting(
        Kind.PATH,
        None,
        "a Java 17 for Spark; without it JAVA_HOME, then what is on the path, then the usual folders",
    )
    log_level: LogLevel = setting(Kind.LEVEL, "info", "how much is logged: debug, info, warning, error")
    log_format: LogFormat = setting(
        Kind.FORMAT,
        "text",
        "text: a log line for people; json: one JSON object a line, with the id and the trace of the request",
    )
    traces: int = setting(
        Kind.INTEGER,
        0,
        "1: requests are recorded as spans and sent to a collector of OpenTelemetry, which OTEL_EXPORTER_OTLP_ENDPOINT "
        "names; 0: they are not",
        most=1,
    )

    @property
    def scheme(self) -> str:
        """The scheme of the gateway's URL."""
        return "http" if self.tls_certificate is None else "https"


SETTINGS: Final = tuple(declared_setting(each.name, each.metadata) for each in fields(Settings))
"""What `Settings` declares, in its order."""


def load_settings(environment: Mapping[str, str], *, directory: Path) -> Settings:
    """
    Return the configuration that `environment` and the file it names (else `directory`/lakeproof.toml) give.

    `directory` is the current directory: what relative paths in the environment start from.

    Raises:
        SettingsError: if a name is unknown, a value is not what its setting takes, or the file cannot be read.
    """
    return Settings(**{each.setting.name: each.value for each in trace_settings(environment, directory=directory)})


class Source(StrEnum):
    """Where the value of a setting comes from."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A setting, its value, and where that comes from: `where` names the variable, or the key and its file."""

    setting: Setting
    value: Any  # of the type of its field, see `setting`
    source: Source
    where: str


def trace_settings(environment: Mapping[str, str], *, directory: Path) -> list[Traced]:
    """
    Return every setting with its value and where that comes from, in the order of their declaration.

    Raises as `load_settings`.
    """
    directory = directory.absolute()
    given, sources = _given(environment, directory)
    traced = []
    for each in SETTINGS:
        default = Given(value=each.default, where=each.variable, relative_to=directory)
        value, source = read_value(each, given.get(each.name, default)), sources.get(each.name, Source.DEFAULT)
        where = given[each.name].where if each.name in given else ""
        traced.append(Traced(setting=each, value=value, source=source, where=where))
    home = next(each.value for each in traced if each.setting.name == "home")
    return [
        replace(each, value=each.value.replace("file://<home>", f"file://{home}"))
        if each.setting.kind is Kind.LOCATION
        else each
        for each in traced
    ]


def _given(environment: Mapping[str, str], directory: Path) -> tuple[dict[str, Given], dict[str, Source]]:
    """Return what settings are given, and from where; the environment wins."""
    given: dict[str, Given] = {}
    sources: dict[str, Source] = {}
    file = _config_file(environment, directory)
    if file is not None:
        for key, value in _read_toml(file).items():
            known = _known(key, {each.name: each for each in SETTINGS}, what=f"the key {key} in {file}")
            given[known.name] = Given(value=value, where=f"{key} in {file}", relative_to=file.parent)
            sources[known.name] = Source.FILE
    for variable, text in environment.items():
        if variable.startswith(PREFIX) and variable != CONFIG_VARIABLE:
            known = _known(variable, {each.variable: each for each in SETTINGS}, what=f"the variable {variable}")
            if text:
                value = number_in(text) if known.kind in {Kind.INTEGER, Kind.NUMBER} else text
                given[known.name] = Given(value=value, where=variable, relative_to=directory)
                sources[known.name] = Source.ENVIRONMENT
    return given, sources


def format_settings_table() -> str:
    """
    Return the table as Markdown: variable, type, default, unit and meaning of every setting.
    """
    lines = ["| variable | type | default | unit | meaning |", "|---|---|---|---|---|"]
    for each in SETTINGS:
        default = "" if each.default in {None, ""} else f"`{each.default}`"
        lines.append(f"| `{each.variable}` | {each.kind} | {default} | {each.unit} | {each.meaning} |")
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
