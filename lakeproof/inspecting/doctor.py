# SPDX-License-Identifier: Apache-2.0
"""
What is wrong with an installation, and what to do: a list of checks, each a function that returns findings.

A check finds out one thing, says what it expected and what it found, and changes nothing. What a check depends on and
cannot have (a database that does not answer) is said once, by the check that is about it; the others say that they
could not look.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

import psycopg

from gateway.catalogs.registry import BUILTIN
from gateway.control.aggregates import Catalog
from gateway.errors import GatewayError
from gateway.http.checking import UpstreamFound
from lakeproof.anchor_settings import load_authority, load_places, load_policy
from lakeproof.detecting import find_spark
from lakeproof.errors import LakeproofError, SettingsError
from lakeproof.extras import missing_of
from lakeproof.inspecting.database import FoundDatabase, NotThereError, connect_owner, find_database, find_owner
from lakeproof.inspecting.disks import FREE_BYTES_MIN, FREE_BYTES_WARNED, find_disks
from lakeproof.inspecting.findings import Finding, Result, ok, problem, said, warning
from lakeproof.inspecting.processes import ask_readiness, find_ups
from lakeproof.inspecting.upstreams import check_upstream
from lakeproof.installation import LOCAL
from lakeproof.log_status import QUERIES, looking_plane, why_not_judged
from lakeproof.postgres.server import PG_MAJOR_MIN, check_server
from lakeproof.schema_record import PROVISIONED, check_unchanged, read_schema_and_record
from lakeproof.serving.listening import listen
from lakeproof.settings import Settings, load_settings
from lakeproof.tls_settings import GatewayTrust, load_certificate, tls_files
from ledger.errors import LedgerError
from ledger.files.private_files import mode_for_others
from ledger.signing.key_directory import holds_keys
from ledger.signing.key_ring import KeyLife, KeySource
from ledger.signing.ssh_agent import find_key
from ledger.store.read import read_logs
from ledger.store.session import Connection
from spark_detect.errors import JavaError, PackageMissingError

CLOCK_WARNED_S: Final = 2.0
TLS_WARNED_DAYS: Final = 14
CLOCK_S_MAX: Final = 60.0
"""Keys and tokens expire by this machine's clock, entries are dated by the database's."""
FILES_MAX: Final = 10_000
"""Files whose modes are looked at: a folder of mode 0700 protects the others."""
NOT_LOOKED: Final = "this was not looked at, since the database cannot be read"

R = TypeVar("R")


@dataclass(frozen=True)
class Patient:
    """An installation that is examined: its settings, and what they were read from."""

    settings: Settings
    environment: Mapping[str, str]
    clock: Callable[[], datetime]

    @cached_property
    def database(self) -> FoundDatabase | Exception:
        """The database, or why it cannot be read."""
        try:
            return find_database(self.settings)
        except (LakeproofError, psycopg.Error, OSError) as error:
            return error


Check: TypeAlias = Callable[[Patient], Sequence[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One finding and the name of its check."""

    check: str
    finding: Finding


def examine(environment: Mapping[str, str], *, directory: Path, clock: Callable[[], datetime]) -> list[Examined]:
    """
    Run every check on the installation that `environment` and the file of settings in `directory` name.

    Without settings that can be read nothing else can be looked at.
    """
    expected = "names that are settings, with values that they take"
    try:
        settings = load_settings(environment, directory=directory)
    except SettingsError as error:
        advice = "correct it (`lakeproof config list` lists all of them); until then nothing else can be looked at"
        return [Examined(check="settings", finding=problem(expected=expected, found=said(error), advice=advice))]
    patient = Patient(settings=settings, environment=environment, clock=clock)
    examined = [Examined(check="settings", finding=ok(expected=expected, found="only such"))]
    for name, check in CHECKS.items():
        examined += [Examined(check=name, finding=finding) for finding in _run(check, patient)]
    return examined


def _run(check: Check, patient: Patient) -> Sequence[Finding]:
    try:
        return check(patient)
    except (LakeproofError, LedgerError, GatewayError, psycopg.Error, OSError) as error:
        return [problem(expected="to find this out", found=said(error), advice="repair that, and look again")]


# Settings


def check_agreement(patient: Patient) -> list[Finding]:
    """Check that no setting contradicts another, and that what they name can be used."""
    expected = "settings that agree with each other"
    found = [
        problem(expected=expected, found=each, advice=advice) for each, advice in _contradictions(patient.settings)
    ]
    for load in (load_policy, load_authority, load_places):
        try:
            load(patient.settings)
        except SettingsError as error:
            found.append(problem(expected=expected, found=said(error), advice="correct that setting"))
    return found or [ok(expected=expected, found="no contradiction")]


def _contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what contradicts itself, and what to do."""
    if settings.reconcile_after_s <= settings.upstream_timeout_s:
        yield (
            "LAKEPROOF_RECONCILE_AFTER_S is not more than LAKEPROOF_UPSTREAM_TIMEOUT_S",
            "make it more: an outcome would be looked up while its request is under way",
        )
    if settings.connections_per_address_max > settings.connections_max:
        yield (
            f"LAKEPROOF_CONNECTIONS_PER_ADDRESS_MAX is more than LAKEPROOF_CONNECTIONS_MAX, {settings.connections_max}",
            "make it less: one client could take all connections",
        )
    if settings.signer_agent_key is not None and settings.signer_agent is None:
        yield "LAKEPROOF_SIGNER_AGENT_KEY names a key of an agent and no agent is named", "set LAKEPROOF_SIGNER_AGENT"
    if (settings.s3_access_key_id is None) != (settings.s3_secret_access_key is None):
        yield (
            "only one of LAKEPROOF_S3_ACCESS_KEY_ID and LAKEPROOF_S3_SECRET_ACCESS_KEY is set",
            "set both, or neither",
        )
    if settings.time_stamp_url is None and (settings.time_stamp_roots or settings.time_stamp_policy):
        yield (
            "LAKEPROOF_TIME_STAMP_ROOTS or _POLICY is set without LAKEPROOF_TIME_STAMP_URL: nothing is stamped",
            "name the authority, or remove them",
        )
    if settings.seal_parts == 0 and settings.key_encryption_key is not None:
        yield (
            "LAKEPROOF_KEY_ENCRYPTION_KEY is set and LAKEPROOF_SEAL_PARTS is 0: nothing new is encrypted",
            "set LAKEPROOF_SEAL_PARTS to 1, or remove the first one",
        )
    uses_streams = settings.s3_events_queue is not None or settings.kafka_brokers is not None
    if uses_streams and (advice := missing_of("streams")) is not None:
        yield "LAKEPROOF_S3_EVENTS_QUEUE or LAKEPROOF_KAFKA_BROKERS is set and a package is missing", advice


def check_files(patient: Patient) -> list[Finding]:
    """Check that only this user can enter the home and read what is secret in it."""
    home = patient.settings.home
    expected = f"{home} with mode 0700, and every file of keys and secrets in it with mode 0600, all of this user"
    if not home.exists():
        return [warning(expected=expected, found="no home yet", advice="start `lakeproof up`, which makes one")]
    found = [_of_mode(home, 0o700)]
    private = [home / "keys", home / "secrets"]
    if patient.settings.key_encryption_key is not None:
        private.append(patient.settings.key_encryption_key)
    paths = (path for each in private if each.exists() for path in (each, *each.rglob("*")))
    for path, _ in zip(paths, range(FILES_MAX), strict=False):
        found.append(_of_mode(path, 0o700 if path.is_dir() else 0o600))
    warehouse = Path(patient.settings.warehouse.removeprefix(LOCAL))
    if patient.settings.warehouse.startswith(LOCAL) and warehouse.exists():
        found.append(_of_mode(warehouse, 0o700))
    wrong = [problem(expected=expected, found=text, advice=advice) for text, advice in (each for each in found if each)]
    return wrong or [ok(expected=expected, found=f"{len(found):,} files and folders like that")]


def _of_mode(path: Path, mode: int) -> tuple[str, str] | None:
    """Return what is wrong with the mode or the owner of a file, and what to do; None if nothing is."""
    if path.is_symlink():
        return None  # what it leads to is looked at where it lies
    mode_found = mode_for_others(path)
    if mode_found is not None:
        return f"{path} has mode {mode_found:04o}: other users of this machine can use it", f"chmod {mode:04o} {path}"
    if os.name == "posix" and path.stat().st_uid != os.geteuid():
        text = f"{path} belongs to the user with number {path.stat().st_uid}, and this is number {os.geteuid()}"
        return text, "run this as its owner, or give it to this user"
    if not stat.S_IMODE(path.stat().st_mode) & stat.S_IRUSR:
        return f"{path} cannot be read by its owner", f"chmod {mode:04o} {path}"
    return None


# Database


def check_database(patient: Patient) -> list[Finding]:
    """Check that the database answers, and is one that Lakeproof can use: version, durability, Apache AGE."""
    expected = f"PostgreSQL {PG_MAJOR_MIN} or newer that answers, with fsync on, and Apache AGE installed and preloaded"
    try:
        owner = find_owner(patient.settings)
        with connect_owner(patient.settings, owner) as connection:
            check_server(connection)
            version = connection.execute("SHOW server_version").fetchone()
            age = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'age'").fetchone()
    except NotThereError as error:
        return [warning(expected=expected, found=said(error), advice="start `lakeproof up`")]
    except (LakeproofError, OSError) as error:
        return [problem(expected=expected, found=said(error), advice="do what it says, then look again")]
    found = f"PostgreSQL {version[0] if version else '?'} in {owner.where}"
    if age is None:
        advice = "start `lakeproof up` as a user of the database who may make extensions"
        return [problem(expected=expected, found=f"{found}, without the extension age", advice=advice)]
    return [ok(expected=expected, found=f"{found}, with Apache AGE {age[0]}")]


def check_rights(patient: Patient) -> list[Finding]:
    """Check that the owner may provision the database, and that the services can log in and take their roles."""
    expected = "an owner who is a superuser, and a login role that can take the role of each service"
    if isinstance(patient.database, Exception):
        return _not_looked(expected)
    installation, findings = patient.database.installation, []
    with connect_owner(patient.settings, patient.database.owner) as connection:
        row = connection.execute("SELECT rolsuper, rolname FROM pg_roles WHERE rolname = session_user").fetchone()
        roles = connection.execute(
            "SELECT name FROM unnest(%(roles)s::text[]) name WHERE to_regrole(name) IS NULL "
            "OR to_regrole(%(login)s) IS NULL OR NOT pg_has_role(to_regrole(%(login)s), to_regrole(name), 'SET')",
            {"roles": list(installation.roles.services()), "login": installation.roles.login},
        ).fetchall()
    if row is None or not row[0]:
        findings.append(
            warning(
                expected=expected,
                found=f"the owner {row[1] if row else ''} is no superuser: an upgrade may lack rights",
                advice="let LAKEPROOF_DSN name a superuser",
            )
        )
    findings += [
        problem(
            expected=expected,
            found=f"the role {installation.roles.login} cannot take the role {role}",
            advice="start `lakeproof up` anew, which grants it",
        )
        for (role,) in roles
    ]
    try:
        psycopg.connect(installation.as_role(installation.roles.auditor), connect_timeout=5).close()
    except psycopg.Error as error:
        findings.append(
            problem(
                expected=expected,
                found=f"the role {installation.roles.login} cannot log in ({said(error)})",
                advice="start `lakeproof up` anew, which sets its password; see that pg_hba.conf lets it in",
            )
        )
    return findings or [ok(expected=expected, found="both")]


def check_schema(patient: Patient) -> list[Finding]:
    """Check that all migrations have run, and that the schema is what the system log has recorded."""
    expected = "a schema that is up to date, and what the system log has recorded of it"
    if isinstance(patient.database, Exception):
        return _not_looked(expected)
    if pending := patient.database.pending:
        found = f"{len(pending)} migrations have not run: {', '.join(pending[:5])}"
        return [problem(expected=expected, found=found, advice="start `lakeproof up` anew, which runs them")]
    installation = patient.database.installation
    with connect_owner(patient.settings, patient.database.owner) as connection:
        schema, record = read_schema_and_record(connection, installation.roles, installation.system_origin)
    if record is None:
        advice = "start `lakeproof up`, which records it"
        return [warning(expected=expected, found="no record of it in the system log yet", advice=advice)]
    is_same = schema.basis.provisioning == record.schema.basis.provisioning
    try:
        check_unchanged(record, schema, but=frozenset() if is_same else PROVISIONED, accepted=None)
    except LakeproofError as error:
        return [problem(expected=expected, found=said(error), advice="do what it says, then look again")]
    return [ok(expected=expected, found=f"{len(schema.objects):,} objects, as recorded in entry {record.index}")]


# Signer


def check_signer(patient: Patient) -> list[Finding]:
    """Check that the signer's keys are there and can be used, and that no log is behind what was signed of it."""
    expected = "the signer's keys, and logs that hold at least what was signed of them"
    found = patient.database
    if isinstance(found, Exception):
        if not holds_keys(patient.settings.home / "keys"):
            return [warning(expected=expected, found="no keys yet", advice="start `lakeproof up`, which makes one")]
        return _not_looked(expected)
    installation = found.installation
    rows = _with_auditor(found, _sizes)
    if not holds_keys(installation.keys):
        if any(checkpoint_size for _, _, checkpoint_size, _ in rows):
            text = f"the database holds signed checkpoints, and {installation.keys} holds no key"
            return [problem(expected=expected, found=text, advice="restore that directory from its backup")]
        return [warning(expected=expected, found="no keys yet", advice="start `lakeproof up`, which makes one")]
    try:
        keys = installation.open_keys()
        for record in keys.keys.ring.records:
            if record.source is KeySource.AGENT and record.life is not KeyLife.RETIRED and keys.agent is not None:
                find_key(keys.agent, record.key_id)
        noted = keys.read_notes()
    except LedgerError as error:
        advice = f"restore {installation.keys} from its backup, or have the agent hold the key"
        return [problem(expected=expected, found=said(error), advice=advice)]
    findings = [
        problem(
            expected=expected,
            found=f"log {origin} has {size:,} entries, and {noted[origin].checkpoint.size:,} were signed",
            advice="the database was set back: do not serve on it, restore a newer backup, or see `lakeproof recover`",
        )
        for origin, size, _, _ in rows
        if origin in noted and size < noted[origin].checkpoint.size
    ]
    active = keys.keys.ring.active.key_id
    return findings or [ok(expected=expected, found=f"the key {active} signs, and {len(noted)} logs are signed")]


def check_confirmed(patient: Patient) -> list[Finding]:
    """Check that the signer has confirmed every log since the database was started: before, none takes entries."""
    expected = "every log confirmed by the signer since the database was started"
    if isinstance(patient.database, Exception):
        return _not_looked(expected)
    rows = _with_auditor(patient.database, _sizes)
    waiting = [origin for origin, _, _, takes in rows if not takes]
    if not waiting:
        return [ok(expected=expected, found=f"all {len(rows)} logs are confirmed")]
    text = f"{len(waiting)} of {len(rows)} logs take no entries: {', '.join(waiting[:3])}"
    if find_ups(patient.settings.home):
        return [problem(expected=expected, found=text, advice="see what the signer of `lakeproof up` says")]
    return [warning(expected=expected, found=f"{text}; nothing runs", advice="start `lakeproof up`")]


def check_in_force(patient: Patient) -> list[Finding]:
    """Check that what is in force can be read from every log: nothing is judged by one from which it cannot."""
    expected = "policies, rules and the rest that is in force of kinds that this version knows, as they were appended"
    if isinstance(patient.database, Exception):
        return _not_looked(expected)
    found = _with_auditor(patient.database, _not_judged)
    wrong = [
        problem(
            expected=expected,
            found=f"log {origin}: {why}",
            advice="do what it says, then look again",
        )
        for origin, why in found
        if why
    ]
    return wrong or [ok(expected=expected, found=f"in all {len(found)} logs")]


# What it needs of others


def check_upstreams(patient: Patient) -> list[Finding]:
    """Check that the upstream of every foreign catalog answers, accepts the credentials, and has what is forwarded."""
    expected = "an upstream that answers, accepts the gateway's credentials, and has the endpoints that are forwarded"
    if isinstance(patient.database, Exception):
        return _not_looked(expected)
    found = asyncio.run(_ask_upstreams(patient.database))
    return [_of_upstream(tenant, each, expected) for tenant, each in found] or [
        ok(expected=expected, found="no catalog of kind rest")
    ]


def _of_upstream(tenant: str, found: UpstreamFound, expected: str) -> Finding:
    where = f"catalog {found.alias} of tenant {tenant}"
    if found.trouble:
        return problem(expected=expected, found=f"{where}: {found.trouble}", advice=found.advice)
    if found.missing:
        text = f"{where}: it does not have {', '.join(found.missing[:3])}"
        text += f" and {len(found.missing) - 3} more" if len(found.missing) > 3 else ""
        return warning(expected=expected, found=text, advice="know that engines are refused there, or upgrade it")
    endpoints = "names no endpoints" if found.endpoints is None else f"has {len(found.endpoints)} endpoints"
    return ok(expected=expected, found=f"{where} answers and {endpoints}")


def check_java(patient: Patient) -> list[Finding]:
    """Check that detection can run: Spark is installed, and a Java that it runs on."""
    expected = "Spark and a Java 17 for detection"
    if not patient.settings.detect:
        return [ok(expected=expected, found="detection is switched off (LAKEPROOF_DETECT=0)")]
    try:
        return [ok(expected=expected, found=f"Java in {find_spark(patient.settings)}")]
    except (JavaError, PackageMissingError) as error:
        advice = "install it, or set LAKEPROOF_DETECT to 0 if nothing shall be scanned; everything else runs without"
        return [warning(expected=expected, found=said(error), advice=advice)]


def check_clock(patient: Patient) -> list[Finding]:
    """Check that this machine's clock agrees with the database's, and that no entry is dated in the future."""
    expected = f"clocks that differ by less than {CLOCK_WARNED_S:g} s, and no entry of the future"
    if isinstance(patient.database, Exception):
        return _not_looked(expected)
    with connect_owner(patient.settings, patient.database.owner) as connection:
        before = patient.clock()
        row = connection.execute(QUERIES["clock"]).fetchone()
        ahead_s = 0.0 if row is None else (row[0] - (before + (patient.clock() - before) / 2)).total_seconds()
        newest = connection.execute(QUERIES["newest_entry"]).fetchone()
    found = f"the database's clock is {ahead_s:+.1f} s from this machine's"
    advice = "let both machines take the time from NTP"
    entry_s = 0.0 if not newest or newest[0] is None else (newest[0] - patient.clock()).total_seconds()
    if entry_s > CLOCK_WARNED_S and entry_s > ahead_s + CLOCK_WARNED_S:
        text = f"the newest entry is dated {entry_s:,.0f} s from now: a clock was set back since"
        return [problem(expected=expected, found=text, advice=f"{advice}; entries until then bear that one's time")]
    if abs(ahead_s) > CLOCK_S_MAX:
        return [problem(expected=expected, found=found, advice=advice)]
    if abs(ahead_s) > CLOCK_WARNED_S:
        return [warning(expected=expected, found=found, advice=advice)]
    return [ok(expected=expected, found=found)]


def check_tls(patient: Patient) -> list[Finding]:
    """Check that the gateway's certificate can be served for a while, and that the gateway serves it."""
    expected = f"a certificate that can be served and does not end within {TLS_WARNED_DAYS} days, or none"
    files = tls_files(patient.settings)
    if files is None:
        return [ok(expected=expected, found="none: the gateway has no TLS")]
    try:
        certificate = load_certificate(files, now=patient.clock())
        trust = GatewayTrust(files)
    except SettingsError as error:
        advice = "do what it says: a gateway that runs keeps the certificate it has, a new one does not start"
        return [problem(expected=expected, found=said(error), advice=advice)]
    findings = []
    for up in find_ups(patient.settings.home):
        try:
            if up.url is not None:
                ask_readiness(up.url, trust)
        except ssl.SSLCertVerificationError:
            text = f"the gateway at {up.url} serves another certificate than {files.certificate} holds"
            advice = "look again in some seconds; if it stays so, see why `lakeproof up` has refused this one"
            findings.append(problem(expected=expected, found=text, advice=advice))
        except OSError:
            pass  # whether it answers is another check
    until = f"{files.certificate} is valid until {certificate.ends_at:%Y-%m-%d %H:%M} UTC"
    if certificate.ends_at - patient.clock() < timedelta(days=TLS_WARNED_DAYS):
        findings.append(warning(expected=expected, found=until, advice="renew it: no restart is needed"))
    return findings or [ok(expected=expected, found=until)]


def check_disks(patient: Patient) -> list[Finding]:
    """Check that there is free space where the installation keeps files."""
    expected = f"at least {FREE_BYTES_WARNED // 1024**3} GiB of free space"
    findings = []
    for disk in find_disks(patient.settings):
        if disk.free_bytes < FREE_BYTES_MIN:
            findings.append(problem(expected=expected, found=disk.free_text, advice="free some before it is full"))
        elif disk.free_bytes < FREE_BYTES_WARNED:
            findings.append(warning(expected=expected, found=disk.free_text, advice="free some"))
        else:
            findings.append(ok(expected=expected, found=disk.free_text))
    return findings


def check_port(patient: Patient) -> list[Finding]:
    """Check that the gateway's port is free, or that it is our gateway that has it."""
    host, port = patient.settings.host, patient.settings.port
    expected = f"port {port} of {host} free, or used by this installation's gateway"
    ups = find_ups(patient.settings.home)
    if any(up.url is None for up in ups):
        return [ok(expected=expected, found="`lakeproof up` is starting, and says so if it is not free")]
    if any(up.url is not None and up.url.endswith(f":{port}") for up in ups):
        return [ok(expected=expected, found="the gateway listens there")]
    try:
        with closing(listen(host, port)):
            return [ok(expected=expected, found="it is free")]
    except LakeproofError as error:
        return [problem(expected=expected, found=said(error), advice="end what uses it, or set LAKEPROOF_PORT")]


CHECKS: Final[Mapping[str, Check]] = {
    "agreement": check_agreement,
    "files": check_files,
    "database": check_database,
    "rights": check_rights,
    "schema": check_schema,
    "signer": check_signer,
    "confirmed": check_confirmed,
    "in_force": check_in_force,
    "upstreams": check_upstreams,
    "java": check_java,
    "clock": check_clock,
    "disks": check_disks,
    "port": check_port,
    "tls": check_tls,
}
"""Every check behind `settings`, in the order in which they run."""


def worst(examined: Sequence[Examined]) -> Result:
    """
    Return the worst result.
    """
    found = {each.finding.result for each in examined}
    return next((each for each in (Result.PROBLEM, Result.WARNING) if each in found), Result.OK)


def _not_looked(expected: str) -> list[Finding]:
    return [warning(expected=expected, found=NOT_LOOKED, advice="see what the check of the database says")]


def _with_auditor(found: FoundDatabase, work: Callable[[Connection], Awaitable[R]]) -> R:
    async def opened() -> R:
        installation = found.installation
        async with installation.connect(installation.roles.auditor) as auditor:
            return await work(auditor)

    return asyncio.run(opened())


async def _sizes(auditor: Connection) -> list[tuple[str, int, int, bool]]:
    """Return of each log its origin, its size, that of its newest checkpoint, and whether it takes entries."""
    rows = await (await auditor.execute(QUERIES["logs"], {"log_id": None})).fetchall()
    return [(origin, size, checkpoint_size, takes) for _, origin, _, size, checkpoint_size, takes in rows]


async def _not_judged(auditor: Connection) -> list[tuple[str, str]]:
    """Return the origin of each log, and why nothing is judged by it."""
    control = looking_plane(auditor)
    return [(log.origin, await why_not_judged(control, log.log_id)) for log in await read_logs(auditor)]


async def _ask_upstreams(found: FoundDatabase) -> list[tuple[str, UpstreamFound]]:
    """Ask every upstream at once; return what was found, with the tenant's name. Unreadable logs are left out."""
    installation = found.installation
    async with installation.connect(installation.roles.auditor) as auditor:
        control = looking_plane(auditor)
        logs = [log for log in await read_logs(auditor) if not await why_not_judged(control, log.log_id)]
        names = {
            UUID(each.id): each.name
            for log in logs
            if log.origin == installation.system_origin
            for each in (await control.current(log.log_id)).tenants.values()
        }
        asked: list[tuple[UUID, Catalog]] = [
            (log.tenant, catalog)
            for log in logs
            if log.tenant is not None
            for catalog in (await control.current(log.log_id)).catalogs.values()
            if catalog.kind != BUILTIN
        ]
    answers = await asyncio.gather(*(check_upstream(installation, tenant, catalog) for tenant, catalog in asked))
    return [(names.get(tenant, tenant.hex), answer) for (tenant, _), answer in zip(asked, answers, strict=True)]
