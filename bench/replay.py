# SPDX-License-Identifier: Apache-2.0
"""
How many recorded decisions a second `lakeproof policies replay` judges again.

Claim: at least 20,000 decisions a second on two cores, with PostgreSQL, the process that reads beside this one and
both worker processes on these, for ten policies of the usual kinds over a log of 100,000 decisions and their outcomes.

The decisions are real ones: a gateway takes commits of several tables, some of which a policy refuses, and appends each
again many times, with the payload parts that it had. So inputs repeat, as they do where engines try again and jobs run
every hour; how many distinct ones were evaluated is in the result. Each replay begins with no process, and knows
nothing. Payload parts are opened and checked against their commitments, metadata files against their SHA-256.

What else the machine did is in the result as its load before each measurement, and so is the processor time of this
process and of those that it has started: without others on the machine, half their sum and PostgreSQL's bounds the
speed.

The peer is cel-python's own interpreter, whose grammar we use: the same programs, compiled before, on the variables of
a sample of the same decisions, in this process, one core. It neither reads a log nor makes the variables.

Run: `python -m bench.replay --decisions 100000`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import celpy
from celpy.adapter import json_to_cel

from bench.measuring import circumstances_on, options, publish
from bench.servers import embedded_server
from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.replaying.application import replay_since
from gateway.replaying.evaluating import WORKERS
from gateway.replaying.replay import Proposed, Replayed
from gateway.replaying.variables import Known
from lakeproof.page_access import page_access
from lakeproof.provision import provision
from ledger.format.entry import parse_entry
from ledger.format.event import Event, Part, PreparedEvent, prepare
from ledger.format.sequence import Group
from ledger.store.read import read_entries, read_head, read_parts
from testkit.gateway.replays import LONG_AGO, rebuilt
from testkit.gateway.sales import NAMESPACES, SCHEMA, TABLES
from testkit.servers.gateways import Gateway, open_gateway, start_services

TABLES_COUNT: Final = 60
COMMITS: Final = 7
"""Of each table, after its creation; the last but one is refused."""
APPENDED_AT_ONCE: Final = 2_000
SAMPLE: Final = 100

IN_FORCE: Final = "!('forbidden' in result.properties)"
SIMPLE: Final = (
    "commit.operation != 'table.create' || result.columns.exists(c, c.name == 'tenant_id')",
    "commit.operation != 'table.drop' || 'data-eng' in principal.roles",
    "table.columns.all(c, result.columns.exists(r, r.id == c.id))",
    "commit.kind != 'table' || result.format_version >= 2",
    "!('secret' in result.properties)",
    "!commit.actions.exists(a, a == 'remove-snapshots' || a == 'remove-snapshot-ref')",
    "commit.namespace[0] != 'finance' || 'finance' in principal.roles",
    "commit.kind != 'table' || result.columns.all(c, !c.name.matches('^(ssn|iban)$') || c.doc != '')",
    "principal.source == 'api_key'",
    "commit.kind != 'table' || result.partition_fields.all(field, field.transform != 'void')",
)
WITH_BODY: Final = (
    *SIMPLE[:9],
    "commit.snapshots.all(s, s.operation != 'delete') && commit.updates.all(u, u.action != 'set-location')",
)
"""The same, but for one that reads what was sent, of which hardly two are equal in a log that did not repeat itself."""
OF_ENTRY: Final = tuple(SIMPLE[number] for number in (5, 6, 8))
"""Those that read neither metadata nor bodies."""


async def work(gateway: Gateway) -> None:
    """Have tables created and changed as engines do."""
    http = gateway.http
    admin, log_id = gateway.services.gateway.admin, gateway.acme.log_id
    await admin.create_policy(
        log_id, OPERATOR, policy_id="in-force", text=PolicyText(expression=IN_FORCE, message="no")
    )
    (await http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    fields = [
        *SCHEMA["fields"],
        {"id": 2, "name": "tenant_id", "type": "string", "required": False},
        *({"id": n, "name": f"column_{n}", "type": "string", "required": False} for n in range(3, 21)),
    ]
    for number in range(TABLES_COUNT):
        name = f"orders_{number}"
        body = {"name": name, "schema": {**SCHEMA, "fields": fields[: 5 + number % 15]}, "properties": {"owner": "ada"}}
        (await http.post(TABLES, json=body)).raise_for_status()
        for commit in range(COMMITS):
            is_refused = commit == COMMITS - 2
            updates: list[dict[str, Any]] = [
                {"action": "set-properties", "updates": {"forbidden" if is_refused else "run": str(commit)}}
            ]
            answer = await http.post(f"{TABLES}/{name}", json={"requirements": [], "updates": updates})
            assert answer.status_code == (403 if is_refused else 200), answer.text


async def stored_groups(gateway: Gateway) -> list[tuple[PreparedEvent, ...]]:
    """The groups of decisions that the log has, as events to append again."""
    parts, log_id = gateway.services.gateway, gateway.acme.log_id
    async with parts.database.as_role(parts.roles.projector) as connection:
        size = (await read_head(connection, log_id)).size
        entries = [parse_entry(one) for one in await read_entries(connection, log_id, from_index=0, to_index=size)]
        payloads = await read_parts(connection, log_id, from_index=0, to_index=size, opener=parts.opener)
    groups: dict[Any, list[PreparedEvent]] = {}
    for entry in entries:
        if entry.type.startswith("commit."):
            of_entry = payloads.get(entry.index, {}).values()
            event = Event(
                type=entry.type,
                version=entry.version,
                key=entry.key,
                actor=entry.actor,
                occurred_at=entry.occurred_at,
                data=entry.data,
                parts=tuple(Part(name=p.name, payload=p.payload, salt=p.salt, subject=p.subject) for p in of_entry),
            )
            groups.setdefault(entry.group_id, []).append(prepare(event))
    return [tuple(events) for events in groups.values()]


async def fill(gateway: Gateway, decisions: int) -> int:
    """Append what the log has again and again, until it has so many decisions; return how many."""
    groups, parts = await stored_groups(gateway), gateway.services.gateway
    count = len(groups)
    while count < decisions:
        for first in range(0, len(groups), APPENDED_AT_ONCE):
            some = [Group(id=parts.new_group_id(), then=events) for events in groups[first : first + APPENDED_AT_ONCE]]
            await asyncio.gather(*(parts.append(gateway.acme.log_id, group) for group in some))
        count += len(groups)
    return count


class Took(NamedTuple):
    """How long a replay took, and the processor time of this process and of those that it has started, in seconds."""

    wall_s: float
    own_s: float
    others_s: float


async def measure(gateway: Gateway, expressions: Sequence[str], rounds: int) -> tuple[Replayed, Took]:
    """Return what a replay found, and the least of each time that some took."""
    proposal = [Proposed(id=f"p{number}", expression=each) for number, each in enumerate(expressions)]
    tenant = gateway.acme.tenant
    replay = partial(
        replay_since,
        gateway.services.gateway,
        tenant,
        gateway.acme.log_id,
        proposal,
        since=LONG_AGO,
        access=page_access(gateway.services, tenant),
    )
    least, found = Took(*[float("inf")] * 3), None
    for _ in range(rounds):
        before = clocks()
        found = await replay()
        least = Took(*(min(old, now - then) for old, now, then in zip(least, clocks(), before, strict=True)))
    assert found is not None
    return found, least


def clocks() -> Took:
    """Return the times up to now. Processes that were started count once they have ended."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(time.perf_counter(), time.process_time(), others.ru_utime + others.ru_stime)


async def measure_peer(gateway: Gateway, expressions: Sequence[str]) -> float:
    """Return how many decisions a second cel-python evaluates, of a sample whose variables are made before."""
    environment = celpy.Environment(runner_class=celpy.InterpretedRunner)
    programs = [environment.program(environment.compile(expression)) for expression in expressions]
    sample = [
        {name: dict(one.members) for name, one in variables.items() if isinstance(one, Known)}
        for _, variables in (await rebuilt(gateway))[1 : SAMPLE + 1]
    ]
    began_s = time.perf_counter()
    for variables in sample:
        converted = {name: json_to_cel(value) for name, value in variables.items()}
        for program in programs:
            program.evaluate(converted)
    return len(sample) / (time.perf_counter() - began_s)


async def play(admin_dsn: str, directory: Path, decisions: int, rounds: int) -> dict[str, Any]:
    """Make the log, and replay it with three proposals."""
    provisioned = provision(admin_dsn, login_password=secrets.token_urlsafe())
    async with start_services(admin_dsn, provisioned, directory) as services, open_gateway(services) as gateway:
        await work(gateway)
        peers = {
            name: await measure_peer(gateway, each)
            for name, each in (("ten", SIMPLE), ("ten, one of the body", WITH_BODY), ("three of the entry", OF_ENTRY))
        }
        count = await fill(gateway, decisions)
        runs = []
        for name, expressions in (
            ("ten", SIMPLE),
            ("ten, one of the body", WITH_BODY),
            ("three of the entry", OF_ENTRY),
        ):
            load = os.getloadavg()[0]
            found, took = await measure(gateway, expressions, rounds)
            per_s = found.decisions / took.wall_s
            runs.append(
                {
                    "proposal": name,
                    "policies": len(expressions),
                    "decisions": found.decisions,
                    "seconds": round(took.wall_s, 2),
                    "processor_us_per_decision": round(1e6 * took.own_s / found.decisions, 1),
                    "processor_us_per_decision_of_others": round(1e6 * took.others_s / found.decisions, 1),
                    "load_before": round(load, 1),
                    "decisions_per_s": round(per_s),
                    "peer_decisions_per_s": round(peers[name]),
                    "ours_to_peer": round(per_s / peers[name], 1),
                    "counts": {change.value: number for change, number in sorted(found.counts.items())},
                    "evaluated": found.evaluated,
                }
            )
            print(runs[-1], flush=True)
    return {
        "bench": "replay",
        "decisions": count,
        "tables": TABLES_COUNT,
        "workers": WORKERS,
        "readers": 2,
        "rounds": rounds,
        "runs": runs,
        **circumstances_on(admin_dsn),
    }


def main() -> None:
    """Measure and write what was found."""
    parser = options("replay", __doc__)
    parser.add_argument("--decisions", type=int, default=100_000, help="in the log that is replayed")
    parser.add_argument("--rounds", type=int, default=3, help="of each proposal; the best counts")
    arguments = parser.parse_args()
    with embedded_server() as admin_dsn, tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(play(admin_dsn, Path(directory), arguments.decisions, arguments.rounds))
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
