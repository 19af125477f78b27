# SPDX-License-Identifier: Apache-2.0
"""
Everything one process runs, wired once: appender, control plane, policy engine, gateway, projections, signer, notifier.

`open_services` is the composition root's core; `serving/up.py` serves what it yields, commands use the parts they need.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from time import time_ns
from uuid import UUID

import httpx
import psycopg
from psycopg import AsyncConnection

from gateway.admin.application import Admin
from gateway.catalogs.builtin import GUARDS as CATALOG_GUARDS
from gateway.catalogs.catalog_places import read_contested
from gateway.catalogs.derived import fill_derived_rows
from gateway.catalogs.registry import KINDS, CatalogRegistry
from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.commit.gateway import Gateway, Intake, Ownership
from gateway.commit.judgement import Judge
from gateway.commit.large_requests import LargeRequests
from gateway.commit.look_ups import ReadModels
from gateway.commit.metrics_reports import MetricsReports
from gateway.commit.refusals import Refusals
from gateway.commit.request_hash import RequestKeys
from gateway.control.plane import ControlPlane
from gateway.database import Database, outage_as_unavailable
from gateway.files.writing import FileWriter
from gateway.fresh import FreshReads
from gateway.identity import Authenticator
from gateway.identity.access_tokens import AccessTokens
from gateway.identity.api_keys import KeyHasher
from gateway.identity.bound_issuers import BoundIssuer
from gateway.identity.certificate_logins import Accepted, CertificateLogins
from gateway.identity.issuers import Issuer
from gateway.identity.key_macs import open_key_macs
from gateway.identity.key_rows import KEY_GUARDS
from gateway.identity.key_sets import KeySet, read_over
from gateway.identity.logins import LoginActors
from gateway.identity.provider import Provider
from gateway.identity.token_logins import TokenLogins
from gateway.metadata.files import MetadataFiles
from gateway.policy.pool import WorkerEngine
from gateway.policy.started_engine import StartedEngine
from lakeproof.installation import Installation
from lakeproof.schema_record import check_before_serving
from lakeproof.sealing import open_checked_keys, sealer
from lakeproof.settings import Settings
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.subject_keys import KeyFolder
from ledger.format.event import random_group_id
from ledger.format.guards import GuardRegistry
from ledger.format.sealing import KeyOpener, Opener
from ledger.format.sequence import Appended, Group, Stale
from ledger.proving.receipts import Receipts
from ledger.store.log_store import LogStore
from ledger.store.notifications import LogNotifier
from ledger.store.read import Log, read_logs
from projections.egress.client import open_client as open_checked_client
from projections.egress.rules import EgressRules
from projections.lake.storage import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, S3_SCHEMES
from spark_detect.marks import GUARDS as SCAN_GUARDS

LoadIssuers = Callable[[Settings, Sequence[Log]], Sequence[tuple[Issuer, int]]]
"""Returns the identity providers, each with the log of its tenant (`token_settings.load_issuers`)."""
LoadClients = Callable[[Settings, Sequence[Log]], Accepted | None]
"""Returns the clients with certificates; None: there are none (`tls_settings.load_clients`)."""
KEY_SECRET = "api-key-secret"  # noqa: S105  (the name of a file)
"""The file, next to the signer's keys, with the secret for MACs of API keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of one process, started."""

    installation: Installation
    appender: Appender
    notifier: LogNotifier
    engine: StartedEngine
    gateway: Gateway
    system: Log
    subject_keys: KeyFolder

    @property
    def opener(self) -> Opener:
        """What opens sealed payload parts."""
        return self.gateway.opener

    async def logs(self) -> list[Log]:
        """Return every log of the installation."""
        async with self.gateway.database.as_role(self.installation.roles.auditor) as connection:
            return await read_logs(connection)


def storage_properties(settings: Settings) -> dict[str, str]:
    """
    Return what opens the warehouse's files, in PyIceberg's words; nothing for a local one.
    """
    if settings.warehouse.partition("://")[0] not in S3_SCHEMES:
        return {}
    given = {
        "s3.endpoint": settings.s3_endpoint,
        "s3.region": settings.s3_region,
        "s3.access-key-id": settings.s3_access_key_id,
        "s3.secret-access-key": settings.s3_secret_access_key,
    }
    bounds = {"s3.connect-timeout": str(CONNECT_TIMEOUT_S), "s3.request-timeout": str(REQUEST_TIMEOUT_S)}
    return {name: value for name, value in given.items() if value is not None} | bounds


def engine_properties(settings: Settings) -> dict[str, str]:
    """
    Return what engines receive about the warehouse's storage: where it is, never credentials.
    """
    properties = storage_properties(settings)
    return {name: properties[name] for name in ("s3.endpoint", "s3.region") if name in properties}


def now() -> datetime:
    """Return the time, aware, in UTC."""
    return datetime.now(UTC)


def new_group_id() -> UUID:
    """Return a fresh UUIDv7."""
    return random_group_id(now_ms=time_ns() // 1_000_000, random=os.urandom(10))


@asynccontextmanager
async def open_services(
    installation: Installation,
    *,
    engine: AbstractAsyncContextManager[StartedEngine] | None = None,
    hasher: KeyHasher | None = None,
    files: FileWriter | None = None,
    load_issuers: LoadIssuers | None = None,
    load_clients: LoadClients | None = None,
    random: Callable[[int], bytes] = os.urandom,
) -> AsyncIterator[Services]:
    """
    Yield the parts of one process; they are stopped in order afterwards.

    Policies are judged by `engine`, or by one of these services' own, as the settings describe it. API keys are hashed
    by `hasher`, or at the cost that `KeyHasher` is for. Metadata files of this machine are written by `files`, or in
    threads of this process. What serves requests is given `load_issuers` and `load_clients`; nothing else needs them,
    and a mistake in the files that these read must not keep a command from working.

    Raises:
        SettingsError: if the identity providers, or the clients with certificates, are described wrongly.
        SchemaChangedError: if the database is not what the system log has recorded of it.
        GatewayError, LedgerError: if the database cannot be reached.
    """
    settings = installation.settings
    roles = installation.roles
    notifier = LogNotifier(installation.dsn)
    secrets = installation.secrets
    async with await AsyncConnection.connect(installation.as_role(roles.auditor), autocommit=True) as auditor:
        accepted = settings.schema_accepted
        await check_before_serving(auditor, roles, installation.system_origin, accepted=accepted)
    await asyncio.to_thread(_fill, installation.admin_dsn)
    async with await AsyncConnection.connect(installation.as_role(roles.eraser), autocommit=True) as eraser:
        keys = await open_checked_keys(installation, eraser)
    macs = open_key_macs(installation.keys / KEY_SECRET)
    guards = GuardRegistry((*CORE_GUARDS, *KEY_GUARDS, *CATALOG_GUARDS, *SCAN_GUARDS))
    appender = Appender(
        installation.as_role(roles.appender),
        guards,
        queue_max=settings.append_queue_max,
        queue_size_bytes_max=settings.append_queue_mib * 2**20,
        batch_max=settings.append_batch_max,
        on_append=notifier.notify,
        sealer=sealer(installation, keys),
    )

    async def append(log_id: int, group: Group, *, after: asyncio.Future[None] | None = None) -> Appended | Stale:
        return await appender.append(log_id, group, timeout_s=settings.append_deadline_s, after=after)

    receipts = Receipts(installation.as_role(roles.auditor), lambda _origin: installation.open_keys().keys.history)
    async with (
        appender,
        receipts,
        Database(installation.dsn) as database,
        FreshReads(installation.dsn, roles) as fresh,
        open_client(settings.upstreams_allowed) as client,
        engine or policy_engine(settings, waiting_s=settings.policy_waiting_s) as judges,
        AsyncExitStack() as stack,
    ):
        async with database.as_role(roles.auditor) as connection:
            logs = await read_logs(connection)
            contested = await read_contested(connection, warehouse=settings.warehouse)
        issuers = () if load_issuers is None else load_issuers(settings, logs)
        clients = None if load_clients is None else load_clients(settings, logs)
        system = next(log for log in logs if log.tenant is None)
        lend = partial(database.as_role, roles.gateway)
        control = ControlPlane(lend, fresh)
        access_tokens = AccessTokens(macs, installation.id, clock=now, random=random)
        lend_appender = partial(database.as_role, roles.appender)
        actors = LoginActors(lend_appender, random=random)
        tokens = await stack.enter_async_context(
            token_logins(actors, access_tokens, issuers, settings.upstreams_allowed)
        )
        certificates = None if clients is None else CertificateLogins(actors, clients, clock=now)
        metadata_files = MetadataFiles(storage_properties(settings), local=files)
        catalogs = CatalogRegistry(
            database=database,
            fresh=fresh,
            roles=roles,
            files=metadata_files,
            warehouse=settings.warehouse,
            table_config=engine_properties(settings),
            upstreams=Upstreams(client=client, secrets=secrets, timeout_s=settings.upstream_timeout_s),
            installation=installation.id,
            contested=contested,
        )
        gateway = Gateway(
            system_log_id=system.log_id,
            append=append,
            clock=now,
            random=random,
            opener=KeyOpener(keys),
            database=database,
            roles=roles,
            authenticator=Authenticator(
                lend, control, macs=macs, tokens=tokens, certificates=certificates, hasher=hasher, clock=now
            ),
            control=control,
            judge=Judge(
                engine=judges,
                rows=judges,
                timeout_s=settings.policy_timeout_s,
                find_branch=catalogs.branch,
                look_ups=ReadModels(database, roles, metadata_files),
            ),
            refusals=Refusals(append, system_log_id=system.log_id, clock=now, random=random),
            catalogs=catalogs,
            intake=Intake(
                body_size_bytes_max=settings.body_max_bytes,
                request_keys=RequestKeys(database, role=roles.gateway, random=random),
                large_requests=LargeRequests(),
            ),
            ownership=Ownership(
                owner=random(16).hex(),
                timeout=timedelta(seconds=max(settings.reconcile_after_s, settings.upstream_timeout_s)),
            ),
            admin=Admin(
                LogStore(appender, lend, new_group_id=new_group_id, timeout_s=settings.append_deadline_s),
                control,
                judges,
                conditions=judges,
                lend_appender=lend_appender,
                catalog_kinds=KINDS,
                egress=settings.upstreams_allowed,
                warehouse=settings.warehouse,
                clock=now,
                random=random,
                hasher=hasher,
                macs=macs,
            ),
            receipts=receipts,
            webhook_secrets=secrets if settings.polaris_webhook == 1 else None,
            metrics_reports=MetricsReports(append, clock=now, random=random),
            tracer=judges,
            authors=judges,
            notifier=notifier,
        )
        yield Services(
            installation=installation,
            appender=appender,
            notifier=notifier,
            engine=judges,
            gateway=gateway,
            system=system,
            subject_keys=keys,
        )


@asynccontextmanager
async def token_logins(
    actors: LoginActors,
    access_tokens: AccessTokens,
    issuers: Sequence[tuple[Issuer, int]],
    egress: EgressRules,
    *,
    clock: Callable[[], datetime] = now,
) -> AsyncIterator[TokenLogins]:
    """
    Yield what verifies tokens: this installation's own, and those of `issuers`, each with the log of its tenant.

    The issuers' keys are read, and codes exchanged, where `egress` allows.
    """
    async with AsyncExitStack() as stack:
        bound: list[BoundIssuer] = []
        if issuers:
            client = await stack.enter_async_context(open_checked_client(egress))
            bound += [_bound(issuer, log_id, client) for issuer, log_id in issuers]
        tokens = TokenLogins(actors, access_tokens, bound, clock=clock)
        try:
            yield tokens
        finally:
            await tokens.close()


def _bound(issuer: Issuer, log_id: int, client: httpx.AsyncClient) -> BoundIssuer:
    provider = None if issuer.login is None else Provider(issuer, issuer.login, client)
    return BoundIssuer(issuer=issuer, log_id=log_id, keys=KeySet(issuer, read_over(client)), provider=provider)


def policy_engine(settings: Settings, *, waiting_s: float) -> WorkerEngine:
    """
    Return the engine that the settings describe; no call of it waits longer than `waiting_s` to begin.
    """
    return WorkerEngine(
        workers=settings.policy_workers,
        waiting_s=waiting_s,
        judging_bytes_max=settings.policy_memory_mib * 2**20,
    )


def _fill(admin_dsn: str) -> None:
    """Fill in what rows from before lack: it follows from names, locations and the log."""
    with outage_as_unavailable("the database cannot be reached"), psycopg.connect(admin_dsn, autocommit=True) as owner:
        fill_derived_rows(owner)
