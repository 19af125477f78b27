"""
The scene of `make run`: its acts are played in order, each with the real parts, and say what they saw.

An act that does not see what it must raises `AssertionError`; the scene ends there and names the act. Every run plays
in a tenant of its own, so a run after a crash needs no clean-up, and the logs of earlier tenants are verified again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from time import perf_counter
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from lakeproof.demo import answers, arrivals, audit, commits, elsewhere, finding, views
from lakeproof.demo.beside import beside
from lakeproof.demo.channel import Channel, open_channel
from lakeproof.demo.cloud import Cloud, open_cloud
from lakeproof.demo.stage import PATIENCE_S, PATIENT, Stage
from lakeproof.ending import stop_on_signals
from lakeproof.installation import Installation, open_installation
from lakeproof.messages import Say
from lakeproof.services import open_services
from lakeproof.serving.up import listen, serving
from lakeproof.settings import Settings
from ledger.files.atomic import create_file

Act = Callable[[Stage], Awaitable[None]]

ACTS: Final[tuple[tuple[str, Act], ...]] = (
    ("Start: a new tenant with its log, its graph and its first API key", commits.start),
    ("An engine commits: PyIceberg over HTTP, Parquet in a local warehouse", commits.engine_commits),
    ("A policy refuses: two commits that break a rule, one rule that does not compile", commits.policy_refuses),
    ("Two clients race for one table", commits.clients_race),
    (
        "A foreign catalog: another server behind a second alias, and a gateway that is killed",
        elsewhere.foreign_catalog,
    ),
    ("Lineage arrives: a run from its start to its end, and one that closes a cycle", arrivals.lineage_arrives),
    ("Triggers arrive: a signed webhook, and a commit behind the gateway's back", arrivals.triggers_arrive),
    ("Detection finds: Spark scans what was committed, and people are told", finding.detection_finds),
    ("Projections show it: the graph and the metrics", views.projections_show),
    ("The graph answers five questions about one table", answers.graph_answers),
    ("A projection is rebuilt from the log, under the eyes of a reader", views.projection_is_rebuilt),
    ("An auditor verifies offline", audit.auditor_verifies),
)
LOOPBACK: Final = "127.0.0.0/8"
"""Where the scene's other servers are: connections there are refused anywhere else than in the scene."""
UPSTREAM_DATABASE: Final = "lakeproof_upstream"

_log = logging.getLogger(__name__)


async def play(stage: Stage) -> str | None:
    """
    Play all acts; return None, or the name of the one that failed after saying why.
    """
    for number, (title, act) in enumerate(ACTS, start=1):
        stage.say(f"\n{number}. {title}")
        began = perf_counter()
        try:
            await act(stage)
        except Exception as error:  # noqa: BLE001 - the top of the scene: whatever fails, the act is named
            stage.say(f"   FAILED: {type(error).__name__}: {error}")
            _log.debug("act %d failed", number, exc_info=error)
            return f"{number}. {title}"
        stage.say(f"   ({perf_counter() - began:.1f} s)")
    return None


@asynccontextmanager
async def open_stage(settings: Settings, say: Say) -> AsyncIterator[Stage]:
    """
    Yield the stage: object store and queue, the other catalog server, the channel for alerts, and all of ours.

    Raises:
        LakeproofError: if the server, the database or the port cannot be had.
        LedgerError, ProjectionError: if a task met corruption.
    """
    listen(settings.host, settings.port).close()  # before a database is made for it
    async with AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(open_cloud())
        channel = await stack.enter_async_context(open_channel())
        say(f"S3, SNS and SQS on {cloud.endpoint} (moto), warehouse {cloud.warehouse}; alerts go to {channel.url}")
        installation = stack.enter_context(open_installation(scene_settings(settings, cloud, channel), say))
        upstream = await stack.enter_async_context(beside("upstream", _upstream_environment(installation, cloud)))
        services = await stack.enter_async_context(open_services(installation))
        served = await stack.enter_async_context(serving(services, say))
        yield Stage(serving=served, say=say, cloud=cloud, channel=channel, upstream=upstream.said)


def scene_settings(settings: Settings, cloud: Cloud, channel: Channel) -> Settings:
    """
    Return the settings of the scene: the user's, with the scene's own cloud and channel, which are on loopback, and
    with more patience than a gateway needs whose clients wait.
    """
    return replace(
        settings,
        upstreams_allowed=settings.upstreams_allowed.also(LOOPBACK),
        s3_endpoint=cloud.endpoint,
        s3_region=cloud.region,
        s3_access_key_id=cloud.access_key_id,
        s3_secret_access_key=cloud.secret_access_key,
        s3_events_queue=cloud.queue,
        alert_webhook=channel.url,
        policy_timeout_s=PATIENCE_S,
        policy_waiting_s=PATIENCE_S,
        append_deadline_s=PATIENCE_S,
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
        **PATIENT,
        **cloud.environment(),
    }


async def run_demo(settings: Settings, say: Say, *, once: bool) -> int:
    """
    Serve, play the scene, and keep serving (`once`: end); return the exit code, 1 if an act failed.

    Raises:
        LakeproofError: if the server, the database or the port cannot be had.
        LedgerError, ProjectionError: if a task met corruption.
    """
    # PyIceberg says when it tries a conflicted commit again; the scene counts that itself.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    async with open_stage(settings, say) as stage:
        stop = stage.serving.stop
        with stop_on_signals(stop):
            playing = asyncio.create_task(play(stage))
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
            _say_how_to_go_on(stage)
            await stopping
            say("stopping")
            return 0


def _say_how_to_go_on(stage: Stage) -> None:
    key_file = stage.serving.services.installation.settings.home / "secrets" / f"{stage.founded.tenant.hex}.key"
    create_file(key_file, f"{stage.founded.key.secret}\n".encode())
    stage.say(
        f"The gateway keeps serving on {stage.serving.url}; Ctrl-C stops it. The tenant's API key is in {key_file}"
    )
