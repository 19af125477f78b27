# SPDX-License-Identifier: Apache-2.0
"""Anchoring as `lakeproof up` does it: real witnesses, a real authority, and what leaves while they are away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from gateway.admin.application import OPERATOR
from gateway.http.looking.answers import LogStatusShown
from lakeproof.anchor_settings import load_authority, load_policy
from lakeproof.anchored import read_overview, read_vouching
from lakeproof.errors import SettingsError
from lakeproof.provision import Provisioned
from lakeproof.services import Services, now
from lakeproof.serving.anchoring import AnchoringTasks
from lakeproof.serving.in_process import serving
from lakeproof.serving.metrics import measure_anchoring
from lakeproof.settings import Settings, load_settings
from lakeproof.signing import open_signer
from lakeproof.tenants import Founded, found_tenant
from ledger.anchoring import Pinned, WitnessKind, anchors_of, judge_witnessing, parse_roots
from ledger.anchoring.published import Published, read_published_checkpoint
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.files.atomic import RealDisk
from ledger.files.directory import STAMP_FILE
from ledger.format.note import VerifierKey
from ledger.format.signature import ED25519_COSIGNATURE
from ledger.format.witness_policy import UNSAFE_NO_QUORUM, PolicyGroup, PolicyWitness, WitnessPolicy
from ledger.proving.export import export_stamped_log
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import read_entries, read_head
from ledger.verify.anchored import judge_directory
from ledger.verify.directory import verify_directory
from ledger.witness.server import witness_app
from ledger.witness.store import WitnessStore, create_witness
from ledger.witness.witness import open_witness
from projections.exposition import format_metrics
from testkit.environment import PATIENCE_S
from testkit.lakeproof.operator import Operator
from testkit.ledger.logs import change
from testkit.ledger.witnesses import cosigners
from testkit.servers.gateways import Gateway, open_gateway, start_services
from testkit.servers.loopback import serve
from testkit.servers.time_stamps import POLICY as STAMP_POLICY
from testkit.servers.time_stamps import make_authority, serve_authority

NOWHERE = "http://127.0.0.1:1"
"""A port on which nobody listens."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One installation, its tenant, and the rounds of its tasks, done by hand."""

    services: Services
    signer: CheckpointSigner
    acme: Founded
    directory: Path

    @property
    def keys(self) -> Sequence[VerifierKey]:
        return self.services.installation.open_keys().verifier_keys(self.services.system.origin)

    async def advance(self, tasks: AnchoringTasks) -> int:
        """Let the tenant's log and the system log grow, sign both, and return the size of the system log."""
        roles = self.services.installation.roles
        admin = self.services.gateway.admin
        await admin.create_catalog(self.acme.log_id, OPERATOR, alias=f"a{uuid4().hex[:8]}", kind="builtin", options={})
        await self.signer.sign_once()
        assert await tasks.anchor_due()
        await self.signer.sign_once()
        async with self.services.gateway.database.as_role(roles.auditor) as connection:
            return (await read_head(connection, self.services.system.log_id)).size

    async def published(self, policy: WitnessPolicy | None) -> Published | None:
        roles = self.services.installation.roles
        async with self.services.gateway.database.as_role(roles.auditor) as connection:
            return await read_published_checkpoint(connection, self.services.system, keys=self.keys, policy=policy)

    async def system_entries(self) -> list[bytes]:
        roles = self.services.installation.roles
        log_id = self.services.system.log_id
        async with self.services.gateway.database.as_role(roles.auditor) as connection:
            size = (await read_head(connection, log_id)).size
            return await read_entries(connection, log_id, from_index=0, to_index=size)

    async def metrics(self) -> str:
        return format_metrics(await measure_anchoring(self.services, now=now()))


@asynccontextmanager
async def open_site(database: str, installation: Provisioned, directory: Path, **settings: str) -> AsyncIterator[Site]:
    async with start_services(database, installation, directory, **settings) as services:
        signer = await open_signer(services.installation)
        await signer.sign_once()
        acme = await found_tenant(services, name="acme", identity="ada@acme.example")
        yield Site(services=services, signer=signer, acme=acme, directory=directory)


@pytest.fixture
async def site(database: str, installation: Provisioned, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(database, installation, tmp_path) as site:
        yield site


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        yield client


def make_witness(site: Site, number: int) -> tuple[Path, VerifierKey]:
    """Make a witness that knows the system log, and return its directory and key."""
    path = site.directory / f"witness{number}"
    create_witness(path, name=f"w{number}.example/w", algorithms=[ED25519_COSIGNATURE])
    WitnessStore(path, RealDisk()).add_log(site.services.system.origin, list(site.keys))
    with open_witness(path, clock=lambda: 1) as witness:
        return path, witness.verifier_keys[0]


@asynccontextmanager
async def serve_witness(path: Path) -> AsyncIterator[str]:
    with open_witness(path, clock=lambda: int(now().timestamp())) as witness:
        async with serve(witness_app(witness)) as url:
            yield url


def policy_of(witnesses: Sequence[tuple[VerifierKey, str]], *, threshold: int) -> WitnessPolicy:
    named = tuple(PolicyWitness(name=f"w{n}", key=key, url=url) for n, (key, url) in enumerate(witnesses))
    group = PolicyGroup(name="quorum", threshold=threshold, members=tuple(one.name for one in named))
    return WitnessPolicy(logs=(), witnesses=named, groups=(group,), quorum="quorum")


def tasks_of(site: Site, client: httpx.AsyncClient, policy: WitnessPolicy | None = None) -> AnchoringTasks:
    authority = load_authority(site.services.installation.settings)
    return AnchoringTasks(site.services, policy=policy, authority=authority, client=client)


async def test_without_a_policy_the_newest_signed_checkpoint_is_published(
    site: Site, client: httpx.AsyncClient
) -> None:
    size = await site.advance(tasks := tasks_of(site, client))
    published = await site.published(None)
    assert published is not None
    assert (published.checkpoint.size, published.cosigned_by, published.token) == (size, (), None)
    assert await site.published(WitnessPolicy(logs=(), witnesses=(), groups=(), quorum=UNSAFE_NO_QUORUM)) == published
    assert (await tasks.cosign_due(), await tasks.stamp_due()) == (False, False)
    text = await site.metrics()
    assert f'lakeproof_system_log_checkpoint_size{{stage="published"}} {size}\n' in text
    assert "lakeproof_unanchored_logs{} 0\n" in text


async def test_nothing_is_published_before_the_quorum_has_cosigned(site: Site, client: httpx.AsyncClient) -> None:
    (one, one_key), (two, two_key) = make_witness(site, 1), make_witness(site, 2)
    size = await site.advance(tasks_of(site, client))
    async with serve_witness(one) as one_url:
        waiting = policy_of([(one_key, one_url), (two_key, NOWHERE)], threshold=2)
        tasks = tasks_of(site, client, waiting)
        assert not await tasks.cosign_due()
        assert await site.published(waiting) is None  # one has cosigned, and that is too few
    # The first one is away now: what it has said was kept, and it need not be asked again.
    async with serve_witness(two) as two_url:
        policy = policy_of([(one_key, NOWHERE), (two_key, two_url)], threshold=2)
        tasks = tasks_of(site, client, policy)
        assert await tasks.cosign_due()
        published = await site.published(policy)
        assert published is not None
        assert (published.checkpoint.size, published.cosigned_by) == (size, ("w1.example/w", "w2.example/w"))
        assert policy.check(published.note, logs=site.keys).checkpoint == published.checkpoint
        assert await tasks.cosign_due()  # nothing is new, nobody is asked
    # Both away, and the log grows: what is published stays where it was.
    grown = await site.advance(tasks)
    assert grown > size
    assert not await tasks.cosign_due()
    assert await site.published(policy) == published
    newest = await site.published(None)
    assert newest is not None
    assert newest.checkpoint.size == grown


async def test_witnesses_follow_the_log_as_it_grows(site: Site, client: httpx.AsyncClient) -> None:
    path, key = make_witness(site, 1)
    async with serve_witness(path) as url:
        tasks = tasks_of(site, client, policy := policy_of([(key, url)], threshold=1))
        for _ in range(3):
            size = await site.advance(tasks)
            assert await tasks.cosign_due()
            published = await site.published(policy)
            assert published is not None
            assert published.checkpoint.size == size
        # A process that starts knows nothing of what the witness has cosigned: it is told, and proves the rest.
        size = await site.advance(tasks)
        assert await tasks_of(site, client, policy).cosign_due()
    published = await site.published(policy)
    assert published is not None
    assert published.checkpoint.size == size


async def test_how_each_witness_is_is_told_to_operators_and_to_tenants(
    database: str, installation: Provisioned, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    file = tmp_path / "policy"
    async with open_site(database, installation, tmp_path, witness_policy=str(file)) as site:
        services, (signs, signing) = site.services, make_witness(site, 1)
        create_witness(tmp_path / "stranger", name="stranger.example/w", algorithms=[ED25519_COSIGNATURE])
        with open_witness(tmp_path / "stranger", clock=lambda: 1) as stranger:
            refusing = stranger.verifier_keys[0]  # it knows no log
        away = make_witness(site, 3)[1]
        async with (
            serve_witness(signs) as url,
            serve_witness(tmp_path / "stranger") as stranger_url,
            open_gateway(services, site.acme) as gateway,
        ):
            policy = policy_of([(signing, url), (refusing, stranger_url), (away, NOWHERE)], threshold=1)
            file.write_bytes(policy.format())
            unasked = (await gateway.http.get("/v1/status")).json()["witnesses"]
            assert {each["state"] for each in unasked} == {"not asked"}
            await site.advance(tasks := tasks_of(site, client, policy))
            assert await tasks.cosign_due()
            answer = await gateway.http.get("/v1/status")
            told = LogStatusShown.model_validate_json(answer.text)
            assert told.witnesses is not None
            w0, w1, w2 = told.witnesses
            assert (w0.state, w1.state, w2.state) == ("cosigned", "refused", "away")
            assert (w0.size, w0.behind_s, w0.lags, w0.trouble) == (told.anchored_size, 0, False, "")
            assert (w1.size, w1.cosigned_at, w1.trouble) == (None, None, "it refused the newest checkpoint")
            assert 0 < w1.behind_s < 60 > w2.behind_s > 0
            page = await overview_of(gateway)
            assert page.count("it refused the newest checkpoint") == 1
            assert "it did not answer" in page
        roles = services.installation.roles
        async with services.gateway.database.as_role(roles.auditor) as connection:
            overview = await read_overview(services.installation, connection)
        messages = {each.name: each.message for each in overview.witnesses}
        assert messages["w0"] == "cosigned"
        assert messages["w1"].startswith("HTTP 404")
        for private in (messages["w1"], messages["w2"], NOWHERE):
            assert private not in answer.text + page, "an answer about the system log is not for tenants"
        # The one that has signed is away, too: what it has cosigned last stays, and it lags after a while.
        await site.advance(tasks)
        assert not await tasks.cosign_due()
        async with services.gateway.database.as_role(roles.auditor) as connection:
            later = now() + timedelta(minutes=5)
            after = await read_vouching(services.installation, connection, site.acme.log_id, now=later)
        assert after["anchored_size"] > told.anchored_size
        assert [(one["state"], one["size"], one["lags"]) for one in after["witnesses"]] == [
            ("away", told.anchored_size, True),
            ("away", None, True),
            ("away", None, True),
        ]
        file.write_text("no policy")
        async with services.gateway.database.as_role(roles.auditor) as connection:
            unread = await read_vouching(services.installation, connection, site.acme.log_id, now=now())
        assert unread["witnesses"] is None


async def overview_of(gateway: Gateway) -> str:
    """Return the first page of the console."""
    form = {"key": gateway.acme.key.secret}
    login = await gateway.http.post("/console/login", data=form, headers={"sec-fetch-site": "same-origin"})
    cookie = login.headers["set-cookie"].partition(";")[0]
    return (await gateway.http.get("/console", headers={"cookie": cookie})).text


async def test_another_policy_asks_again_and_is_judged_anew(site: Site, client: httpx.AsyncClient) -> None:
    path, key = make_witness(site, 1)
    await site.advance(tasks_of(site, client))
    async with serve_witness(path) as url:
        assert await tasks_of(site, client, policy_of([(key, url)], threshold=1)).cosign_due()
    stranger = make_witness(site, 2)[1]
    assert await site.published(policy_of([(stranger, NOWHERE)], threshold=1)) is None


async def test_a_stored_cosignature_that_was_changed_is_not_published(
    site: Site, client: httpx.AsyncClient, database: str
) -> None:
    path, key = make_witness(site, 1)
    await site.advance(tasks_of(site, client))
    async with serve_witness(path) as url:
        policy = policy_of([(key, url)], threshold=1)
        assert await tasks_of(site, client, policy).cosign_due()
    change(database, "UPDATE ledger.cosignatures SET signature = overlay(signature PLACING %s FROM 20)", b"other")
    with pytest.raises(BrokenError) as caught:
        await site.published(policy)
    assert caught.value.fault is Fault.SIGNATURE


async def test_a_broken_anchor_in_the_system_log_ends_the_task(
    site: Site, client: httpx.AsyncClient, database: str
) -> None:
    await site.advance(tasks := tasks_of(site, client))
    broken = "UPDATE ledger.entries SET entry = overlay(entry PLACING %s FROM position(%s in entry)) WHERE type = %s"
    change(database, broken, b'"rook"', b'"root"', "logs.anchored")
    with pytest.raises(ExceptionGroup) as caught:
        await tasks.run(asyncio.Event())
    assert caught.group_contains(BrokenError, match="anchor fault")


async def test_a_stamped_and_cosigned_checkpoint_anchors_the_tenants_log(
    database: str, installation: Provisioned, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    authority = make_authority(tmp_path / "authority")
    roots = authority.directory / "root.pem"
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve_authority(authority))
        settings = {"time_stamp_url": url, "time_stamp_roots": str(roots), "time_stamp_policy": STAMP_POLICY}
        site = await stack.enter_async_context(open_site(database, installation, tmp_path, **settings))
        path, key = make_witness(site, 1)
        policy = policy_of([(key, await stack.enter_async_context(serve_witness(path)))], threshold=1)
        tasks = tasks_of(site, client, policy)
        size = await site.advance(tasks)
        assert await tasks.cosign_due()
        assert await tasks.stamp_due()
        assert not await tasks.stamp_due()  # it is not yet time for the next
        published = await site.published(policy)
        assert published is not None
        assert published.token is not None
        anchors = anchors_of(await site.system_entries())[site.acme.origin]
        judged = judge_witnessing(
            published.note,
            origin=site.acme.origin,
            anchors=anchors,
            keys=site.keys,
            pinned=Pinned(policy=policy, stamp_roots=parse_roots(authority.root), stamp_policy=STAMP_POLICY),
            token=published.token,
        )
        assert (judged.kinds, judged.size) == ((WitnessKind.COSIGNED, WitnessKind.STAMPED), anchors[-1].size)
        assert judged.by == ("w0", "CN=test tsa")
        await site.advance(tasks)
        assert not await tasks.stamp_due()
        assert await tasks.cosign_due()
        later = await site.published(policy)
        assert later is not None
        assert later.stamped is not None
        assert (later.token, later.stamped.size) == (None, size)  # the stamp is on the one before
        assert f'{{stage="stamped"}} {size}\n' in await site.metrics()
        # An auditor is given the log as far as it was stamped, with the stamp, and judges it without the database.
        exported = tmp_path / "system"
        async with site.services.gateway.database.as_role(site.services.gateway.roles.auditor) as connection:
            made = await export_stamped_log(connection, site.services.system, exported, keys=site.keys, policy=policy)
    pinned = Pinned(policy=policy, stamp_roots=parse_roots(authority.root), stamp_policy=STAMP_POLICY)
    report = verify_directory(exported, site.keys)
    token = (exported / STAMP_FILE).read_bytes()
    told = judge_directory(exported, report, trusted=site.keys, pinned=pinned, token=token)
    assert (made.checkpoint.size, told.witnessed_size, told.unchecked) == (size, size, (STAMP_FILE,))
    assert told.witnessed_by[0].startswith("cosigned and stamped, ")
    with pytest.raises(LedgerError):
        judge_directory(exported, report, trusted=site.keys, pinned=pinned, token=token[:-1] + bytes([token[-1] ^ 1]))


async def test_an_authority_that_is_away_is_asked_again(
    database: str,
    installation: Provisioned,
    tmp_path: Path,
    client: httpx.AsyncClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    authority = make_authority(tmp_path / "authority")
    settings = {"time_stamp_url": NOWHERE, "time_stamp_roots": str(authority.directory / "root.pem")}
    async with open_site(database, installation, tmp_path, **settings) as site:
        tasks = tasks_of(site, client)
        await site.advance(tasks)
        assert not await tasks.stamp_due()
        assert not await tasks.stamp_due()
        told = [record.message for record in caplog.records if record.name == "lakeproof.serving.anchoring"]
    assert len(told) == 1  # once as long as it is the same
    assert "no answer of the time-stamping authority" in told[0]


async def test_up_anchors_by_itself(database: str, installation: Provisioned, tmp_path: Path) -> None:
    quick = {"anchor_interval_s": "0.05", "checkpoint_interval_s": "0.05"}
    nothing_else = {"port": "0", "streams": "0", "detect": "0"}
    async with (
        start_services(database, installation, tmp_path, **quick, **nothing_else) as services,
        serving(services) as served,
        httpx.AsyncClient(timeout=PATIENCE_S) as client,
        asyncio.timeout(60),
    ):
        acme = await found_tenant(services, name="acme", identity="ada@acme.example")
        bell = services.notifier.subscribe()
        roles = services.installation.roles
        while True:
            bell.clear()
            async with services.gateway.database.as_role(roles.auditor) as connection:
                head = await read_head(connection, services.system.log_id)
                entries = await read_entries(connection, services.system.log_id, from_index=0, to_index=head.size)
            if acme.origin in anchors_of(entries):
                break
            await bell.wait()
        measured = (await client.get(f"{served.url}/metrics")).text
    assert 'lakeproof_system_log_checkpoint_size{stage="published"}' in measured


# The command


@pytest.mark.parametrize("as_json", [False, True])
async def test_anchors_shows_how_far_each_log_is_anchored(site: Site, client: httpx.AsyncClient, as_json: bool) -> None:
    size = await site.advance(tasks_of(site, client))

    operator = Operator(installation=site.services.installation)
    done = await asyncio.to_thread(operator.run, "anchors", *(["--json"] if as_json else []))
    assert done.exit_code == 0, done.output
    if as_json:
        told = json.loads(done.stdout)
        assert told["system"] == {
            "origin": site.services.system.origin,
            "size": size,
            "witnessed": False,
            "published_size": size,
            "cosigned_by": [],
            "witnesses": [],
            "stamp": None,
        }
        (log,) = told["logs"]
        assert (log["origin"], log["size"]) == (site.acme.origin, log["anchored_size"])
        return
    lines = done.stdout.splitlines()
    assert lines[0] == f"system log {site.services.system.origin}"
    assert f"published  {size} entries" in lines
    assert "stamped    never" in lines
    assert any((site.acme.origin in line and "anchored 0 s ago" in line) or "anchored" in line for line in lines)


# Settings


def test_what_is_configured_and_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    def settings(**given: str) -> Settings:
        environment = {f"LAKEPROOF_{name.upper()}": value for name, value in given.items()}
        return load_settings(environment, directory=tmp_path)

    (tmp_path / "policy").write_text("quorum nobody\n")
    (tmp_path / "roots").write_text("none")
    for policy in ("policy", "missing"):
        with pytest.raises(SettingsError, match="LAKEPROOF_WITNESS_POLICY"):
            load_policy(settings(witness_policy=policy))
    with pytest.raises(SettingsError, match="LAKEPROOF_TIME_STAMP_ROOTS"):
        load_authority(settings(time_stamp_url="http://tsa.example"))
    with pytest.raises(SettingsError, match="certificates in PEM"):
        load_authority(settings(time_stamp_url="http://tsa.example", time_stamp_roots="roots"))
    roots = str(make_authority(tmp_path / "authority").directory / "root.pem")
    with pytest.raises(SettingsError, match="object identifier"):
        load_authority(settings(time_stamp_url="http://tsa.example", time_stamp_roots=roots, time_stamp_policy="x"))
    for url in ("http://127.0.0.1:99999/secret", "http://user:secret/x@h/", "http://xn--zz--/", "tsa.example"):
        with pytest.raises(SettingsError, match="LAKEPROOF_TIME_STAMP_URL") as caught:
            load_authority(settings(time_stamp_url=url, time_stamp_roots=roots))
        assert "secret" not in str(caught.value)
    key = cosigners()[0].verifier_key.format()
    for url in ("http://127.0.0.1:99999/", "http://xn--zz--/", "w.example"):
        (tmp_path / "policy").write_text(f"witness elsewhere {key} {url}\nquorum elsewhere\n")
        with pytest.raises(SettingsError, match=r"LAKEPROOF_WITNESS_POLICY.*elsewhere"):
            load_policy(settings(witness_policy="policy"))
    assert load_policy(settings()) is None
    assert load_authority(settings()) is None
