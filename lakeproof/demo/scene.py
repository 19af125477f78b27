"""
The scene of `make run`, in seven steps: each is played with the real parts and says what it saw.

A step that does not see what it must raises `AssertionError`; the scene ends there and names the step. Every run plays
in a tenant of its own, so a run after a crash needs no clean-up, and the logs of earlier tenants are verified again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from threading import Barrier
from time import perf_counter

from lakeproof.demo import engine
from lakeproof.demo.api import ANALYSTS, BROKEN, FINANCE, TENANT_ID, Api
from lakeproof.demo.audit import Auditor
from lakeproof.demo.engine import Client
from lakeproof.demo.onlooker import WRITES_MAX, Onlooker
from lakeproof.foundation import open_foundation
from lakeproof.projecting import GRAPH, PROJECTIONS, attest
from lakeproof.secret_files import write_new
from lakeproof.services import open_services
from lakeproof.settings import Settings
from lakeproof.tenants import Founded, found_tenant
from lakeproof.up import Serving, serving, stop_on_signals
from ledger.read import Log, find_log, read_head
from projections.generations import rebuild
from projections.graph.read import Write, open_graph
from projections.graph.write import graph_name

Say = Callable[[str], None]

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Scene:
    """One run: what is served, and what the steps so far have left for those that follow."""

    serving: Serving
    say: Say
    tenant: Founded | None = None
    refused_index: int | None = None
    earlier: list[Log] = field(default_factory=list)

    async def play(self) -> str | None:
        """
        Play all steps; return None, or the name of the step that failed after saying why.
        """
        for number, (title, step) in enumerate(self._steps(), start=1):
            self.say(f"\n{number}. {title}")
            began = perf_counter()
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - the top of the scene: whatever fails, the step is named
                self.say(f"   FAILED: {type(error).__name__}: {error}")
                _log.debug("step %d failed", number, exc_info=error)
                return f"{number}. {title}"
            self.say(f"   ({perf_counter() - began:.1f} s)")
        return None

    def _steps(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        return [
            ("Start: a new tenant with its log, its graph and its first API key", self.start),
            ("An engine commits: PyIceberg over HTTP, Parquet in a local warehouse", self.engine_commits),
            ("A policy refuses: two commits that break a rule, one rule that does not compile", self.policy_refuses),
            ("Two clients race for one table", self.clients_race),
            ("Projections show it: the graph and the metrics", self.projections_show),
            ("A projection is rebuilt from the log, under the eyes of a reader", self.projection_is_rebuilt),
            ("An auditor verifies offline", self.auditor_verifies),
        ]

    @property
    def founded(self) -> Founded:
        """Return the tenant of this run."""
        if self.tenant is None:
            raise AssertionError("the scene has no tenant yet")
        return self.tenant

    @property
    def api(self) -> Api:
        """Return the gateway's resources with the tenant's first key."""
        return Api(url=self.serving.url, key=self.founded.key.secret)

    @property
    def client(self) -> Client:
        """Return an engine with the tenant's first key."""
        return Client(url=self.serving.url, key=self.founded.key.secret)

    async def start(self) -> None:
        """Found `demo-<n>`."""
        services = self.serving.services
        self.earlier = [log for log in await services.logs() if log.tenant is not None]
        name = f"demo-{len(self.earlier) + 1}"
        self.tenant = await found_tenant(
            services, name=name, identity="dana@example.com", roles=["data-eng"], alias=engine.ALIAS
        )
        await self._projected()
        system = services.system
        async with services.house.database.as_role(services.foundation.installation.roles.auditor) as connection:
            told = (await read_head(connection, system.log_id)).size
        key = services.foundation.verifier_key(system.origin)
        self.say(f"   system log {system.origin}, {told} entries; signing key {key.key_id.hex()}")
        self.say(f"   tenant {name}, log {self.tenant.origin}")
        projections = ", ".join(projection.name for projection in PROJECTIONS)
        self.say(f"   gateway {self.serving.url}, catalog {engine.ALIAS!r}; projections {projections}")

    async def engine_commits(self) -> None:
        """Write and read with PyIceberg."""
        written = await asyncio.to_thread(engine.write_and_read, self.client)
        head = await self._head()
        self.say(
            f"   3 namespaces, 3 tables (one staged), a schema change, an overwrite, a delete: "
            f"{written.snapshots} snapshots"
        )
        self.say(f"   read back {written.orders:,} orders and {written.customers:,} customers, as written")
        self.say(f"   the log has {head:,} entries")

    async def policy_refuses(self) -> None:
        """Register P1 and P2, break each, and try to save P3."""
        for policy in (TENANT_ID, FINANCE):
            await self.api.create("/v1/policies", policy)
            self.say(f"   policy {policy['id']} is in force: {policy['message']}")
        await self.api.create("/v1/access-rules", ANALYSTS)
        issued = await self.api.create("/v1/keys", {"identity": "alex@example.com", "roles": ["analyst"]})
        said = await asyncio.to_thread(engine.drop_tenant_id, self.client)
        self.say(f"   dropping sales.orders.tenant_id: 403, {said}; the table is unchanged")
        analyst = Client(url=self.serving.url, key=issued["secret"])
        said = await asyncio.to_thread(engine.write_budgets, analyst)
        self.say(f"   an analyst writing finance.budgets: 403, {said}; the table is unchanged")
        said = await self.api.refused("/v1/policies", BROKEN, status=422)
        self.say(f"   policy {BROKEN['id']} was not saved: {said}")
        await self._projected()
        rejected = [write.index for write in await self._writes() if write.decision == "rejected"]
        if len(rejected) != 2:
            raise AssertionError(f"expected 2 rejected commits in the log, found {len(rejected)}")
        self.refused_index = rejected[-1]
        self.say(f"   both refusals are in the log, entries {rejected[-1]} and {rejected[0]}")

    async def clients_race(self) -> None:
        """Let two clients append to one table at once."""
        before = await asyncio.to_thread(engine.count_orders, self.client)
        first = await self._head()
        racers = (engine.Racer(), engine.Racer())
        start = Barrier(len(racers))
        await asyncio.gather(
            *(
                asyncio.to_thread(racer.race, self.client, 100_000 * (number + 1), start)
                for number, racer in enumerate(racers)
            )
        )
        after = await asyncio.to_thread(engine.count_orders, self.client)
        landed, conflicts = sum(racer.landed for racer in racers), sum(racer.conflicts for racer in racers)
        if after != before + landed * engine.RACE_ROWS:
            raise AssertionError(f"expected {before + landed * engine.RACE_ROWS} orders, found {after}")
        await self._projected()
        told = Counter(write.outcome or write.decision for write in await self._writes() if write.index >= first)
        if told["accepted"] != landed or told["conflicted"] < conflicts:
            raise AssertionError(f"expected {landed} accepted and {conflicts} or more conflicted commits, found {told}")
        self.say(f"   {landed} commits landed, {after:,} orders, none lost")
        self.say(
            f"   the log tells it: {told['accepted']} accepted, {told['conflicted']} conflicted; those were answered "
            "409, and the client loaded the table again"
        )

    async def projections_show(self) -> None:
        """Ask the graph and the metrics."""
        await self._projected()
        writes = await self._writes()
        refused = [write for write in writes if write.decision == "rejected"]
        if not refused or not all(write.decided_by for write in refused):
            raise AssertionError("expected the graph to know which policy refused each rejected commit")
        self.say(f"   openCypher, who wrote what, under which policy: {len(writes)} writes, such as")
        for write in (writes[0], *refused):
            said, rules = ("refused by", write.decided_by) if write.decided_by else ("judged by", write.in_force)
            named = ", ".join(f"{rule.id} v{rule.version}" for rule in rules)
            self.say(f"     {write.index}: {write.principal}, {write.operation} {write.target}")
            self.say(f"         {write.outcome or write.decision}, {said} {named}")
        shown = [
            line
            for line in (await self.api.metrics()).splitlines()
            if line.startswith("lakeproof_commits_total") and self.founded.tenant.hex in line
        ]
        if not any('decision="rejected"' in line for line in shown):
            raise AssertionError("expected /metrics to count the refused commits")
        self.say(f"   /metrics has {len(shown)} counters for this tenant, such as")
        for line in [line for line in shown if 'decision="rejected"' in line]:
            self.say(f"     {line}")

    async def projection_is_rebuilt(self) -> None:
        """Rebuild the graph while a reader reads it."""
        services = self.serving.services
        roles = services.foundation.installation.roles
        onlooker = Onlooker(database=services.house.database, reader=self._reader(), expected=len(await self._writes()))
        switched: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        looking = asyncio.create_task(onlooker.look_until(switched))
        try:
            rebuilt = await rebuild(
                services.foundation.installation.as_role(roles.projector),
                GRAPH,
                await self._log(),
                append=partial(attest, services),
            )
            switched.set_result(graph_name(self.founded.tenant, rebuilt.attested.generation))
            await looking
        finally:
            looking.cancel()
        if onlooker.gaps or len(onlooker.names) < 2:
            raise AssertionError(f"{onlooker.gaps} of {onlooker.reads} reads saw a gap; graphs read: {onlooker.names}")
        attested = rebuilt.attested
        self.say(f"   generation {rebuilt.replaced} -> {attested.generation}, from {attested.size:,} entries")
        self.say(f"   digests equal: {attested.digest}")
        self.say(f"   {onlooker.reads} reads of both meanwhile, none saw a gap; the attestation is in the log")

    async def auditor_verifies(self) -> None:
        """Export, verify, tamper, prove."""
        if self.refused_index is None:
            raise AssertionError("the refusal of step 3 has no index")
        auditor = Auditor(serving=self.serving, say=self.say)
        await auditor.audit(await self._log(), refused_index=self.refused_index)
        await auditor.verify_again(self.earlier)

    def _reader(self) -> str:
        return self.serving.services.foundation.installation.roles.tenant(self.founded.tenant)

    async def _log(self) -> Log:
        services = self.serving.services
        async with services.house.database.as_role(services.foundation.installation.roles.auditor) as connection:
            return await find_log(connection, self.founded.origin)

    async def _head(self) -> int:
        async with self.serving.services.house.database.as_role(self._reader()) as connection:
            return (await read_head(connection, self.founded.log_id)).size

    async def _projected(self) -> None:
        """Wait until every projection holds what the log holds now."""
        await self.serving.runner.catch_up(self.founded.log_id, await self._head())

    async def _writes(self) -> list[Write]:
        """Return what the graph knows of this tenant's commits, newest first."""
        async with self.serving.services.house.database.as_role(self._reader()) as connection:
            return await (await open_graph(connection)).writes(limit=WRITES_MAX)


async def run_demo(settings: Settings, say: Say, *, once: bool) -> int:
    """
    Serve, play the scene, and keep serving (`once`: end); return the exit code, 1 if a step failed.

    Raises:
        LakeproofError: if the server, the database or the port cannot be had.
        LedgerError, ProjectionError: if a task met corruption.
    """
    # PyIceberg says when it tries a conflicted commit again; the scene counts that itself.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    with open_foundation(settings, say) as foundation:
        async with open_services(foundation) as services, serving(services) as served:
            with stop_on_signals(served.stop):
                scene = Scene(serving=served, say=say)
                playing = asyncio.create_task(scene.play())
                stopping = asyncio.create_task(served.stop.wait())
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
                _say_how_to_go_on(scene, say)
                await stopping
                say("stopping")
                return 0


def _say_how_to_go_on(scene: Scene, say: Say) -> None:
    key_file = scene.serving.services.foundation.settings.home / "secrets" / f"{scene.founded.tenant.hex}.key"
    write_new(key_file, scene.founded.key.secret)
    say(f"The gateway keeps serving on {scene.serving.url}; Ctrl-C stops it. The tenant's API key is in {key_file}")
