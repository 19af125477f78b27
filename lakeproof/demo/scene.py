# SPDX-License-Identifier: Apache-2.0
"""
The scene of `lakeproof demo`: its acts run in order, with real servers and clients, and print what they see.

An act that does not see what it must raises `AssertionError`; the scene ends there and names the act. Every run has a
tenant of its own, so a run after a crash needs no clean-up. The logs of earlier tenants are verified again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from gateway.console.one_time import one_time_of
from lakeproof.demo import answers, arrivals, audit, commits, detection, foreign_catalog, proposals, views
from lakeproof.demo.channel import Channel, open_channel
from lakeproof.demo.cloud import Cloud, open_cloud
from lakeproof.demo.helper_process import run_helper
from lakeproof.demo.scene_run import LONG_TIMEOUTS, TIMEOUT_S, SceneRun
from lakeproof.ending import stop_on_signals
from lakeproof.installation import Installation, open_installation
from lakeproof.messages import Say
from lakeproof.services import open_services
from lakeproof.serving.in_process import serving
from lakeproof.serving.listening import listen, loopback_url
from lakeproof.serving.socket_folder import socket_folder, write_url
from lakeproof.settings import Settings
from ledger.files.atomic import create_file

Act = Callable[[SceneRun], Awaitable[None]]

ACTS: Final[tuple[tuple[str, Act], ...]] = (
    ("Start: a new tenant with its log, its graph and its first API key", commits.start),
    ("An engine commits: PyIceberg over HTTP, Parquet in a local warehouse", commits.engine_commits),
    ("A policy refuses: two commits that break a rule, one rule that does not compile", commits.policy_refuses),
    ("Two clients race for one table", commits.clients_race),
    (
        "A foreign catalog: another server behind a second alias, and a gateway that is killed",
        foreign_catalog.foreign_catalog,
    ),
    ("Lineage arrives: a run from its start to its end, and one that closes a cycle", arrivals.lineage_arrives),
    ("Triggers arrive: a signed webhook, and a commit behind the gateway's back", arrivals.triggers_arrive),
    ("Detection finds: Spark scans what was committed, and alerts are sent", detection.detection_finds),
    ("Projections show it: the graph and the metrics", views.projections_show),
    ("The graph answers five questions about one table", answers.graph_answers),
    ("A projection is rebuilt from the log while a reader uses it", views.projection_is_rebuilt),
    (
        "A proposal is replayed: which of these decisions two other policies would change",
        proposals.proposal_is_replayed,
    ),
    ("An auditor verifies offline", audit.auditor_verifies),
)
LOOPBACK: Final = "127.0.0.0/8"
"""The network of the scene's other servers; outside the scene, connections to it are refused."""
LOOPBACK_HOST: Final = "127.0.0.1"
TLS: Final = ("tls_certificate", "tls_key", "tls_client_ca", "tls_clients")
"""The settings that name files for TLS."""
UPSTREAM_DATABASE: Final = "lakeproof_upstream"

_log = logging.getLogger(__name__)


async def play(run: SceneRun) -> str | None:
    """
    Play all acts; return None, or the name of the one that failed after saying why.
    """
    for number, (title, act) in enumerate(ACTS, start=1):
        run.say(f"\n{number}. {title}")
        began = perf_counter()
        try:
            await act(run)
        except Exception as error:  # noqa: BLE001 - the top of the scene: whatever fails, the act is named
            run.say(f"   FAILED: {type(error).__name__}: {error}")
            _log.debug("act %d failed", number, exc_info=error)
            return f"{number}. {title}"
        run.say(f"   ({perf_counter() - began:.1f} s)")
    return None


@asynccontextmanager
async def open_run(settings: Settings, say: Say) -> AsyncIterator[SceneRun]:
    """
    Yield a run with object store and queue, the other catalog server, the channel for alerts, and our own services.

    Raises:
        LakeproofError: if the server, the database or the port cannot be had.
        LedgerError, ProjectionError: if a task met corruption.
    """
    listen(settings.host, settings.port).close()  # before a database is made for it
    async with AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(open_cloud())
        channel = await stack.enter_async_context(open_channel())
        say(f"S3, SNS and SQS on {cloud.endpoint} (moto), warehouse {cloud.warehouse}; alerts go to {channel.url}")
        if settings.scheme == "https":
            say(f"the scene's gateway is on {LOOPBACK_HOST} and without TLS")
        installation = stack.enter_context(open_installation(scene_settings(settings, cloud, channel), say))
        upstream = await stack.enter_async_context(run_helper("upstream", _upstream_environment(installation, cloud)))
        services = await stack.enter_async_context(open_services(installation))
        served = await stack.enter_async_context(serving(services, say))
        write_url(stack.enter_context(socket_folder(settings.home)), served.url)  # for `lakeproof status`
        yield SceneRun(serving=served, say=say, cloud=cloud, channel=channel, upstream=upstream.facts)


def scene_settings(settings: Settings, cloud: Cloud, channel: Channel) -> Settings:
    """
    Return the settings of the scene: the user's, with the scene's own cloud and channel on loopback, and with long
    timeouts. A gateway with TLS is played on loopback without it: its clients know it by its address alone.
    """
    if settings.scheme == "https":
        no_tls: dict[str, Any] = dict.fromkeys(TLS)
        settings = replace(settings, host=LOOPBACK_HOST, tls_client_required=0, **no_tls)
    return replace(
        settings,
        upstreams_allowed=settings.upstreams_allowed.also(LOOPBACK),
        s3_endpoint=cloud.endpoint,
        s3_region=cloud.region,
        s3_access_key_id=cloud.access_key_id,
        s3_secret_access_key=cloud.secret_access_key,
        s3_events_queue=cloud.queue,
        alert_webhook=channel.url,
        policy_timeout_s=TIMEOUT_S,
        policy_waiting_s=TIMEOUT_S,
        append_deadline_s=TIMEOUT_S,
    )


def _upstream_environment(installation: Installation, cloud: Cloud) -> dict[str, str]:
    """Return the variables of the other server: a home, a database and an installation of its own."""
    with psycopg.connect(installation.admin_dsn, autocommit=True) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (UPSTREAM_DATABASE,)).fetchone()
        if found is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(UPSTREAM_DATABASE)))
    settings = installation.settings
    return {
        "LAKEPROOF_HOME": str(settings.home / "upstream"),
        "LAKEPROOF_CACHE": str(settings.cache),
        "LAKEPROOF_DSN": make_conninfo(installation.admin_dsn, dbname=UPSTREAM_DATABASE),
        "LAKEPROOF_PORT": "0",
        "LAKEPROOF_WAREHOUSE": cloud.warehouse,
        "LAKEPROOF_DETECT": "0",
        "LAKEPROOF_STREAMS": "0",
        **LONG_TIMEOUTS,
        **cloud.environment(),
    }


async def run_demo(settings: Settings, say: Say, *, once: bool) -> int:
    """
    Serve, play the scene, and keep serving (`once`: end); return the exit code, 1 if an act failed.

    Raises:
        LakeproofError: if the server, the database or the port cannot be had.
        LedgerError, ProjectionError: if a task met corruption.
    """
    # PyIceberg logs each retry of a conflicted commit; the scene counts them itself.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    async with open_run(settings, say) as run:
        stop = run.serving.stop
        with stop_on_signals(stop):
            playing = asyncio.create_task(play(run))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([playing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                playing.cancel()
                say("stopped in the middle of the scene")
                return 130
            failed = playing.result()
            if failed is not None:
                say(f"\nThe scene ended at step {failed}")
                stopping.cancel()
                return 1
            say("\nAll steps passed.")
            if once:
                stopping.cancel()
                return 0
            await _say_how_to_continue(run)
            await stopping
            say("stopping")
            return 0


async def _say_how_to_continue(run: SceneRun) -> None:
    services, secret = run.serving.services, run.founded.key.secret
    key_file = services.installation.settings.home / "secrets" / f"{run.founded.tenant.hex}.key"
    create_file(key_file, f"{secret}\n".encode())
    run.say(f"The gateway keeps serving on {run.serving.url}; Ctrl-C stops it. The tenant's API key is in {key_file}")
    run.say(f"The console is at {run.serving.url}/console")
    if (url := loopback_url(run.serving.url)) is not None:
        link = await one_time_of(services.gateway).make_link(f"Bearer {secret}")
        run.say(f"This link logs a browser of this machine in, once, until {link.ends_at:%H:%M} UTC:\n{url}{link.path}")
