# SPDX-License-Identifier: Apache-2.0
"""
Alerts: raised once per column and kind, delivered at least once under a stable id, told without a single value.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from ledger.format.event import format_key
from ledger.format.events import AlertDelivered, AlertRaised, DetectionFound, DetectionKind
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import Log
from projections.egress.client import open_client
from projections.egress.rules import EgressRules
from streams.errors import StreamError
from streams.handler import OutboxMessage
from streams.handlers.alerts import AlertReceipt, Alerts, alert_id, slack_message
from streams.processing.sender import Sender
from streams.sinks.webhook import ID_HEADER, NOT_ALLOWED, WEBHOOK, WebhookSink
from streams.state.outbox import Delivered, QueuedMessage, Rejected, RetryLater
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.traps import set_trap
from testkit.streams.answering import NOON, happened, noon
from testkit.streams.world import World, running, until

CUSTOMERS = "table:lake/crm/customers"
LOG = Log(log_id=1, origin="logs.example/0", tenant=None, reader=None)


@dataclass
class Receiver:
    """What a webhook's server has received; its next answers are those given, then 200."""

    answers: list[Response] = field(default_factory=list)
    received: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    hanging: asyncio.Event | None = None
    """Until it is set, nobody is answered."""

    def app(self) -> FastAPI:
        """Return the server's application."""
        app = FastAPI()

        @app.post("/hook")
        async def hook(request: Request) -> Response:
            self.received.append((request.headers[ID_HEADER], json.loads(await request.body())))
            if self.hanging is not None:
                await self.hanging.wait()
            return self.answers.pop(0) if self.answers else Response("ok")

        return app


@asynccontextmanager
async def sink_to(receiver: Receiver, *, timeout_s: float = 10) -> AsyncIterator[WebhookSink]:
    """Yield a sink to a real server on loopback."""
    async with serve(receiver.app()) as url, open_client(LOOPBACK) as client:
        yield WebhookSink(f"{url}/hook", client, clock=noon, timeout_s=timeout_s)


def outgoing(id_: str = "x", key: str = CUSTOMERS, attempts: int = 0) -> QueuedMessage:
    message = OutboxMessage(sink=WEBHOOK, id=id_, key=key, payload=b'{"text":"t"}')
    return QueuedMessage(message=message, log=LOG, attempts=attempts)


async def test_a_finding_is_raised_delivered_and_told(world: World, finding: DetectionFound) -> None:
    log, receiver = await world.new_log(), Receiver()
    await world.tell(log, happened(finding, key=CUSTOMERS))
    await world.catch_up(log, Alerts(clock=noon))
    (raised,) = await world.entries(log, AlertRaised.TYPE)
    assert raised.key == CUSTOMERS
    assert raised.data["finding"] == str((await world.entries(log, DetectionFound.TYPE))[0].group_id)
    async with sink_to(receiver) as sink:
        receipts = {WEBHOOK: AlertReceipt(clock=noon)}
        await Sender(world.dsn, [sink], world.append, receipts=receipts).drain()
    ((id_, message),) = receiver.received
    assert id_ == f"{log.origin}/{raised.group_id}"
    assert set(message) == {"text", "blocks"}
    for part in ("ssn", "lake.crm.customers", "us_ssn"):
        assert part in str(message["text"])
    for part in ("9,990 of 10,000", finding.snapshot, "92 %"):
        assert part in str(message["blocks"])
    (delivered,) = await world.entries(log, AlertDelivered.TYPE)
    assert delivered.data == {"alert": str(raised.group_id), "attempt": 1, "sink": WEBHOOK}
    assert not await world.has_row("SELECT FROM streams.outbox")


async def test_later_snapshots_of_the_same_column_and_kind_raise_nothing(world: World, finding: DetectionFound) -> None:
    log = await world.new_log()
    other_kind = replace(finding, kind=DetectionKind.PHONE)
    again = [replace(finding, snapshot=str(number), matches=number) for number in range(3)]
    await world.tell(log, *(happened(each, key=CUSTOMERS) for each in (finding, *again)))
    await world.catch_up(log, Alerts(clock=noon))
    await world.tell(log, *(happened(each, key=CUSTOMERS) for each in (*again, other_kind)))
    await world.catch_up(log, Alerts(clock=noon), batch_max=1)
    raised = await world.entries(log, AlertRaised.TYPE)
    assert [(each.data["kind"], each.data["snapshot"]) for each in raised] == [
        ("us_ssn", finding.snapshot),
        ("phone", finding.snapshot),
    ]
    assert len(await world.rows("SELECT id FROM streams.outbox")) == 2


async def test_what_is_below_92_percent_raises_nothing(world: World, finding: DetectionFound) -> None:
    log = await world.new_log()
    await world.tell(log, *(happened(replace(finding, confidence_percent=percent)) for percent in (55, 65, 91)))
    await world.catch_up(log, Alerts(clock=noon))
    assert await world.entries(log, AlertRaised.TYPE) == []


async def test_without_a_webhook_an_alert_is_in_the_log_alone_and_is_not_delivered_later(
    world: World, finding: DetectionFound
) -> None:
    log = await world.new_log()
    await world.tell(log, happened(finding))
    await world.catch_up(log, Alerts(clock=noon, sink=None))
    await world.tell(log, happened(replace(finding, snapshot="8")))
    await world.catch_up(log, Alerts(clock=noon))
    assert len(await world.entries(log, AlertRaised.TYPE)) == 1
    assert not await world.has_row("SELECT FROM streams.outbox")


class DeathError(BaseException):
    """Ends whatever runs, as the end of a process would."""


async def test_an_alert_whose_position_was_lost_is_still_delivered(world: World, finding: DetectionFound) -> None:
    log = await world.new_log()
    await world.tell(log, happened(finding), happened(replace(finding, snapshot="8")))

    async def append(log_id: int, group: Group) -> Appended | Stale:
        await world.append(log_id, group)
        raise DeathError

    runner = world.runner(Alerts(clock=noon), append=append, lease_s=0.1)
    with pytest.raises(DeathError):
        await runner.catch_up(log.log_id, 2)
    assert len(await world.entries(log, AlertRaised.TYPE)) == 1
    await world.catch_up(log, Alerts(clock=lambda: NOON + timedelta(hours=1)))
    assert len(await world.entries(log, AlertRaised.TYPE)) == 1
    ((id_,),) = await world.rows("SELECT id FROM streams.outbox")
    assert id_ == f"{log.origin}/{alert_id(finding)}"


async def test_two_tenants_with_the_same_finding_are_both_told(world: World, finding: DetectionFound) -> None:
    logs = [await world.new_log(), await world.new_log()]
    for log in logs:
        await world.tell(log, happened(finding))
        await world.catch_up(log, Alerts(clock=noon))
    ids = await world.rows("SELECT id FROM streams.outbox ORDER BY log_id")
    assert [id_ for (id_,) in ids] == [f"{log.origin}/{alert_id(finding)}" for log in logs]


async def test_an_alert_that_the_webhook_took_late_is_told_with_its_attempt(
    world: World, finding: DetectionFound
) -> None:
    log, receiver = await world.new_log(), Receiver(answers=[Response(status_code=503), Response(status_code=429)])
    await world.tell(log, happened(finding, key=CUSTOMERS))
    await world.catch_up(log, Alerts(clock=noon))
    async with sink_to(receiver) as sink:
        receipts = {WEBHOOK: AlertReceipt(clock=noon)}
        async with running(Sender(world.dsn, [sink], world.append, receipts=receipts, poll_s=0.02)):

            async def is_told() -> bool:
                await world.rows("UPDATE streams.outbox SET due_at = '-infinity'")
                return bool(await world.entries(log, AlertDelivered.TYPE))

            await until(is_told)
    assert len({id_ for id_, _ in receiver.received}) == 1
    (delivered,) = await world.entries(log, AlertDelivered.TYPE)
    assert delivered.data["attempt"] == len(receiver.received) == 3


@pytest.mark.parametrize("name", ["<!channel>", "a&b", "*bold* `code`", "line\nbreak", "ü" * 3_000, "\u202e"])
def test_names_are_told_as_text_and_never_parsed(finding: DetectionFound, name: str) -> None:
    key = format_key("table", ["lake", name, name])
    message = slack_message(key, replace(finding, column=name))
    assert not {"<", ">"} & set(str(message["text"]))
    texts = [str(message["text"])]
    assert isinstance(message["blocks"], list)
    for block in message["blocks"]:
        assert isinstance(block, dict)
        for text in [block.get("text"), *block.get("fields", ())]:
            if text is not None:
                assert isinstance(text, dict)
                assert text["type"] == "plain_text"
                texts.append(str(text["text"]))
    assert max(map(len, texts)) <= 2_100
    json.dumps(message)


@pytest.mark.parametrize("status", [200, 201, 204])
async def test_any_2xx_is_taken(status: int) -> None:
    async with sink_to(Receiver(answers=[Response(status_code=status)])) as sink:
        assert await sink.send([outgoing()]) == [Delivered()]


@pytest.mark.parametrize("status", [400, 403, 404, 410, 301, 307])
async def test_what_will_not_change_is_refused_with_what_the_receiver_says(status: int) -> None:
    headers = {"Location": "/elsewhere"} if status in {301, 307} else {}
    receiver = Receiver(answers=[Response("invalid_blocks" * 100, status_code=status, headers=headers)])
    async with sink_to(receiver) as sink:
        (answer,) = await sink.send([outgoing()])
    assert isinstance(answer, Rejected)
    assert answer.reason.startswith(f"answered {status}: invalid_blocks")
    assert len(answer.reason) < 350
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    ("value", "after_s"),
    [
        (None, None),
        ("7", 7.0),
        ("0", 0.0),
        ("999999999999999999999", 3_600.0),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 20 Nov 2099 11:00:00 GMT", 3_600.0),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("Fri, 99 Nov 2026 99:00:00 GMT", None),
    ],
)
@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_what_may_change_is_postponed_as_long_as_the_receiver_asks(
    status: int, value: str | None, after_s: float | None
) -> None:
    headers = {} if value is None else {"Retry-After": value}
    sink = WebhookSink(
        "http://hook.example/secret",
        httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(status, headers=headers))),
        clock=lambda: datetime(2026, 11, 20, 12, tzinfo=UTC),
    )
    assert await sink.send([outgoing()]) == [RetryLater(f"answered {status}", after_s)]


async def test_nothing_of_a_key_is_sent_behind_what_is_postponed() -> None:
    receiver = Receiver(answers=[Response(status_code=500)])
    async with sink_to(receiver) as sink:
        answers = await sink.send([outgoing("1", "a"), outgoing("2", "a"), outgoing("3", "b")])
    assert [type(answer) for answer in answers] == [RetryLater, RetryLater, Delivered]
    assert [id_ for id_, _ in receiver.received] == ["1", "3"]


async def test_a_receiver_that_hangs_or_is_gone_is_tried_again_and_the_url_stays_secret() -> None:
    receiver = Receiver(hanging=asyncio.Event())
    async with sink_to(receiver, timeout_s=0.05) as sink:
        (hung,) = await sink.send([outgoing()])
        assert receiver.hanging is not None
        receiver.hanging.set()
    async with open_client(LOOPBACK) as client:
        nowhere = WebhookSink("http://127.0.0.1:1/secret", client, clock=noon)
        (nobody,) = await nowhere.send([outgoing()])
    for answer in (hung, nobody):
        assert isinstance(answer, RetryLater)
        assert "secret" not in answer.reason
        assert "127.0.0.1" not in answer.reason


@pytest.mark.parametrize("url", ["", "hook", "ftp://hook.example/x", "file:///etc/passwd", "http://", "https://[::1/x"])
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(StreamError, match="expected http:// or https://") as caught:
        WebhookSink(url, httpx.AsyncClient(), clock=noon)
    assert "passwd" not in str(caught.value)


def test_the_stable_id_is_of_table_column_and_kind(finding: DetectionFound) -> None:
    same = [replace(finding, snapshot="1"), replace(finding, matches=1), replace(finding, ruleset="2")]
    others = [
        replace(finding, column="ssn2"),
        replace(finding, kind=DetectionKind.IBAN),
        replace(finding, table_uuid="5f0c9d1e-0000-4000-8000-000000000002"),
    ]
    assert {alert_id(each) for each in same} == {alert_id(finding)}
    assert len({alert_id(each) for each in (finding, *others)}) == 4


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "169.254.169.254", "[::1]", "10.0.0.1"])
async def test_a_webhook_at_an_address_that_is_not_allowed_is_said_early_and_never_asked(host: str) -> None:
    rules = EgressRules.parse("public")
    with set_trap() as trap:
        async with open_client(rules) as client:
            sink = WebhookSink(f"http://{host}:{trap.port}/secret", client, clock=noon)
            with pytest.raises(StreamError, match="LAKEPROOF_UPSTREAMS_ALLOWED") as refused:
                sink.check_egress(rules)
            assert await sink.send([outgoing()]) == [RetryLater(NOT_ALLOWED)]
        assert trap.caught() == 0
    assert host not in str(refused.value)


async def test_a_webhook_whose_name_leads_inside_is_never_asked() -> None:
    rules = EgressRules.parse("public")
    with set_trap() as trap:
        async with open_client(rules, resolve=lambda _host, _port: ["127.0.0.1"]) as client:
            sink = WebhookSink(f"http://hook.example:{trap.port}/secret", client, clock=noon)
            sink.check_egress(rules)
            assert await sink.send([outgoing()]) == [RetryLater(NOT_ALLOWED)]
        assert trap.caught() == 0


async def test_a_webhook_that_redirects_is_not_followed() -> None:
    with set_trap() as trap:
        receiver = Receiver(answers=[Response(status_code=307, headers={"location": trap.url})])
        async with sink_to(receiver) as sink:
            (answer,) = await sink.send([outgoing()])
        assert isinstance(answer, Rejected)
        assert trap.caught() == 0
