# SPDX-License-Identifier: Apache-2.0
"""
The tamper matrix: how many random changes of each class verification finds, with the right class and the right index.

Claim: of `--instances` random changes of each class (bit flips in every column, entries removed, moved, repeated, taken
from another tenant, logs cut off, set back, removed or rewritten with the key and without, tiles, checkpoints, parts,
salts, NULL in every column, indexes that lie; exported directories, proofs and bundles) all are found, each with its
class and the first bad index. A log that was not changed, or that was restored, raises no alarm.

Half of the instances are verified entry by entry (*exact*), half with the compiled kernel (*fast*), by turns. The bench
counts the pages that the kernel has accepted; in an unchanged log it must be all of them, because a kernel that
silently stayed away would leave the fast path untested. (Proofs and bundles have no pages: all are exact.)

Tables derived from the logs, and the schema, roles, grants and settings, are changed in a home that a gateway has used,
and found by `verify --deep`, which names the place instead of an index.

The classes are in `testkit/ledger/tampering/*.py` and `testkit/lakeproof/deep_home.py`, on real PostgreSQL. Every
instance has its own random generator, named after class and number: one that fails can be repeated. `--processes`
worlds work at once.

Run: `python -m bench.tamper --instances 10000`. Results are kept by class, so that classes can be run one by one.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.measuring import circumstances, options, publish
from bench.servers import embedded_server
from lakeproof.provision import provision
from ledger.errors import Fault
from testkit.lakeproof.deep_home import CHANGES, Home, used
from testkit.ledger.tampering.classes import CLASSES
from testkit.ledger.tampering.files import FILES, Export, run_file_instance
from testkit.ledger.tampering.instances import (
    EFFORTS,
    EXACT,
    FAST,
    Instance,
    Verdict,
    World,
    faulty,
    run_instance,
    seeded,
)
from testkit.ledger.tampering.kernel import counted_pages, pages_of
from testkit.ledger.tampering.proofs import KINDS, make_bundle, make_proof, run_proof_instance
from testkit.ledger.tampering.world import open_world
from testkit.servers.gateways import open_gateway, start_services
from testkit.servers.policy_engine import close_shared_engine

PROOFS = tuple(f"{kind} bit" for kind in KINDS)
DEEP = {f"deep {number}: {change.where.strip()}": change for number, change in enumerate(CHANGES, start=1)}
NAMES = (*CLASSES, *FILES, *PROOFS, *DEEP)
CONTROL_EVERY = 100
"""Instances between two checks that everything was restored."""
WRONG_KEPT_MAX = 20


@dataclass(slots=True, kw_only=True)
class Count:
    """What became of the instances of one class."""

    instances: int = 0
    found: int = 0
    named: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    efforts: Counter[str] = field(default_factory=Counter)
    pages_accepted: int = 0
    controls: int = 0
    elapsed_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def add(self, instance: Instance) -> None:
        self.instances += 1
        self.found += instance.verdict.fault is not None
        self.named += instance.ok
        self.faults[str(instance.verdict.fault)] += 1
        self.efforts[instance.effort] += 1
        self.pages_accepted += instance.pages_accepted
        if not instance.ok and len(self.wrong) < WRONG_KEPT_MAX:
            self.wrong.append(str(instance))

    def join(self, other: Count) -> None:
        self.instances += other.instances
        self.found += other.found
        self.named += other.named
        self.faults += other.faults
        self.efforts += other.efforts
        self.pages_accepted += other.pages_accepted
        self.controls += other.controls
        self.elapsed_s += other.elapsed_s
        self.wrong += other.wrong[: WRONG_KEPT_MAX - len(self.wrong)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one process does: every `of`-th instance of each class, beginning with the `number`-th."""

    admin_dsn: str
    names: tuple[str, ...]
    instances: int
    number: int
    of: int

    def numbers(self) -> Iterator[int]:
        return iter(range(self.number, self.instances, self.of))


def take(turn: Turn) -> dict[str, Count]:
    """Take a turn, with databases and a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        counts: dict[str, Count] = {}
        if any(name not in DEEP for name in turn.names):
            files = {PROOFS[0]: make_proof(seeded("proof")), PROOFS[1]: make_bundle(Path(directory) / "story")}
            counts |= asyncio.run(_take(turn, _database(turn, "tamper"), files, Path(directory)))
        if any(name in DEEP for name in turn.names):
            try:
                counts |= asyncio.run(_take_deep(turn, _database(turn, "tamper_deep"), Path(directory)))
            finally:
                close_shared_engine()
        return counts


def _database(turn: Turn, name: str) -> str:
    database = f"{name}_{turn.number}"
    with psycopg.connect(turn.admin_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    return make_conninfo(turn.admin_dsn, dbname=database)


async def _take_deep(turn: Turn, dsn: str, directory: Path) -> dict[str, Count]:
    """Change a table derived from the logs of a home, and check that `verify --deep` names the place."""
    installation = provision(dsn, login_password=secrets.token_urlsafe())
    counts: dict[str, Count] = {}
    async with (
        start_services(dsn, installation, directory) as services,
        open_gateway(services) as gateway,
        used(gateway) as home,
    ):
        for name in (name for name in turn.names if name in DEEP):
            count = counts[name] = Count()
            began_s = time.perf_counter()
            for number in turn.numbers():
                count.add(await _deep_instance(home, name, number))
            for log in (home.acme, home.system):
                await home.check(log)
            count.controls += 1
            count.elapsed_s = time.perf_counter() - began_s
            print(f"{turn.number} {name}: {count.named} of {count.instances}, {count.elapsed_s:.0f} s", flush=True)
    return counts


async def _deep_instance(home: Home, name: str, number: int) -> Instance:
    change = DEEP[name]
    where, fault = await home.verdict(change)
    verdict = Verdict(fault if where.startswith(change.where) or fault is None else None, text=where)
    return Instance(name=name, number=number, tampered=faulty(change.fault, detail=change.statement), verdict=verdict)


async def _take(turn: Turn, dsn: str, files: dict[str, bytes], directory: Path) -> dict[str, Count]:
    installation = provision(dsn, login_password=secrets.token_urlsafe())
    (directory / "home").mkdir()
    export = Export(directory / "export")
    counts: dict[str, Count] = {}
    async with open_world(dsn, installation, directory / "home") as world:
        await _control(world, export)
        for name in (name for name in turn.names if name not in DEEP):
            count = counts[name] = Count()
            began_s = time.perf_counter()
            for done, number in enumerate(turn.numbers(), start=1):
                if name in CLASSES:
                    count.add(await run_instance(world, name, CLASSES[name], number))
                elif name in FILES:
                    count.add(run_file_instance(export, name, number))
                else:
                    count.add(run_proof_instance(name.removesuffix(" bit"), files[name], number))
                if done % CONTROL_EVERY == 0:
                    await _control(world, export)
                    count.controls += 1
            await _control(world, export)
            count.controls += 1
            count.elapsed_s = time.perf_counter() - began_s
            print(f"{turn.number} {name}: {count.named} of {count.instances}, {count.elapsed_s:.0f} s", flush=True)
    return counts


async def _control(world: World, export: Export) -> None:
    """
    Check that nothing is said against what is as it was: neither now nor, hence, before the changes in between.

    And that fast is fast: the kernel accepts every page of every log.
    """
    await world.execute("VACUUM ANALYZE ledger.entries, ledger.parts, ledger.tiles, ledger.heads, ledger.checkpoints")
    for log in world.logs:
        for effort, pages in ((EXACT, 0), (FAST, pages_of(*(world.logs[name].size for name in {log, "system"})))):
            with counted_pages() as accepted:
                report = await world.verify(log, effort=effort)
            assert (report.size, accepted.pages) == (world.logs[log].size, pages), (log, accepted.pages, pages)
    clean = faulty(held=tuple(export.state.notes.values()))
    for effort, pages in ((EXACT, 0), (FAST, pages_of(export.state.size))):
        with counted_pages() as accepted:
            verdict = export.verdict(clean, effort=effort)
        assert (verdict.fault, accepted.pages) == (None, pages), (verdict, accepted.pages, pages)


def campaign(names: tuple[str, ...], instances: int, processes: int) -> dict[str, Count]:
    """Run the instances in so many processes."""
    counts = {name: Count() for name in names}
    with embedded_server() as admin_dsn:
        turns = [
            Turn(admin_dsn=admin_dsn, names=names, instances=instances, number=number, of=processes)
            for number in range(processes)
        ]
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            for found in pool.map(take, turns):
                for name, count in found.items():
                    counts[name].join(count)
    return counts


def joined(path: Path, counts: dict[str, Count]) -> dict[str, Any]:
    """
    Return the findings, together with those of earlier runs for other classes, if these say how they were found.
    """
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known: dict[str, Any] = found.get("classes", {})
    classes: dict[str, Any] = {name: one for name, one in known.items() if name in NAMES and "efforts" in one}
    measured = circumstances()
    for name, count in counts.items():
        classes[name] = {
            "instances": count.instances,
            "found": count.found,
            "class_and_index_right": count.named,
            "faults": dict(sorted(count.faults.items())),
            "efforts": dict(sorted(count.efforts.items())),
            "pages_accepted_by_the_kernel": count.pages_accepted,
            "clean_controls": count.controls,
            "process_s": round(count.elapsed_s, 1),
            "wrong": count.wrong,
            "measured_at": measured["measured_at"],
        }
    return {
        "bench": "tamper",
        "classes_in_all": len(NAMES),
        "classes_run": len(classes),
        "instances": sum(one["instances"] for one in classes.values()),
        "found": sum(one["found"] for one in classes.values()),
        "class_and_index_right": sum(one["class_and_index_right"] for one in classes.values()),
        "efforts": {name: sum(one["efforts"].get(name, 0) for one in classes.values()) for name in EFFORTS},
        "pages_accepted_by_the_kernel": sum(one["pages_accepted_by_the_kernel"] for one in classes.values()),
        "faults_known": sorted(Fault),
        "process_s": round(sum(one["process_s"] for one in classes.values()), 1),
        **measured,
        "classes": {name: classes[name] for name in NAMES if name in classes},
    }


def main() -> None:
    """Run the campaign; ends with 1 if a change was missed or misnamed."""
    parser = options("tamper", __doc__)
    parser.add_argument("--instances", type=int, default=10_000, help="of each class")
    parser.add_argument("--classes", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help="only these")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    counts = campaign(tuple(arguments.classes), arguments.instances, arguments.processes)
    publish(joined(arguments.results, counts), arguments.results)
    wrong = [text for count in counts.values() for text in count.wrong]
    for text in wrong:
        print(text)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
