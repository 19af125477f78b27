# SPDX-License-Identifier: Apache-2.0
"""
How many entries per second are verified, compared with the unavoidable work, and with doing it entry by entry.

Claim: on one core at least 700,000 entries of about 500 bytes per second from a directory, and 250,000 from PostgreSQL
(where the server uses a second core); from a checkpoint on, 10,000 new entries of a log of 10 million in under 200 ms
without the kernel, which is the default for so few, and in a third of that if the kernel is loaded. Everything is
verified: bytes, chain, groups, times, leaf hashes, tiles, the signed root, and in PostgreSQL the derived columns.

Baselines: *hash* is hashlib's SHA-256 over the same entries and nothing else, which every verifier needs; *exact* is
our own path that checks each entry by itself and names what is wrong, without the compiled kernel.

The logs are written here, chained and signed, without an Appender. Each figure is the best of three, because other load
on the machine can only slow it down; `per_cpu_s` counts the time of this process alone. `--large` also writes and
measures the log of 10 million (9 GB, five minutes); without it, the result of an earlier run is kept.

Run: `python -m bench.verify`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from bench.append_sides import example_event
from bench.measuring import circumstances, circumstances_on, options, publish
from bench.servers import embedded_server
from lakeproof.provision import create_tenant_log, provision
from ledger.files.directory import CHECKPOINT_FILE, LogDirectory, bundle_addresses
from ledger.format.canonical import Json
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.entry import Branch, format_entry
from ledger.format.event import Event, PreparedEvent, prepare, random_group_id
from ledger.format.merkle import leaf_hash
from ledger.format.note import Ed25519Signer, VerifierKey, sign_note
from ledger.format.tiles import (
    TILE_WIDTH,
    Pending,
    Tile,
    bundle_path,
    complete_tiles,
    edge_addresses,
    format_bundle,
    frontier_of,
    tile_path,
)
from ledger.format.verification import VerificationReport
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from ledger.verify.database import verify_database
from ledger.verify.directory import verify_directory
from ledger.verify.workers import Effort

ENTRIES = 1_000_000
LARGE, NEW = 10_000_000, 10_000
ROUNDS = 3
ORIGIN = "logs.example/00112233445566778899aabbccddeeff"
TIME = datetime(2026, 3, 1, 12, tzinfo=UTC)
SIGNED_AT = "2026-03-01T12:00:00.000000Z"

EXACT = Effort(kernel_entries_min=2**62)
EFFORTS = {"1 process": Effort(), "2 processes": Effort(processes=2, processes_entries_min=0)}


def small_event() -> PreparedEvent:
    """Return an event that makes an entry of about 500 bytes."""
    data: dict[str, Json] = {"bucket": "lake", "key": "sales/orders/data/00000-17.parquet", "size": 1234567}
    return prepare(
        Event(
            type="trigger.received",
            version=1,
            key="table:lake/sales/orders",
            actor="system",
            occurred_at=TIME,
            data=data,
        )
    )


def bundles(event: PreparedEvent, count: int, origin: str) -> Iterator[tuple[list[bytes], list[bytes], list[UUID]]]:
    """Yield entries, leaf hashes and group ids of a log of this event alone, 256 at a time."""
    previous = bytes(32)
    for first in range(0, count, TILE_WIDTH):
        entries, leaves, ids = [], [], []
        for index in range(first, min(first + TILE_WIDTH, count)):
            group_id = random_group_id(now_ms=1_700_000_000_000 + index, random=os.urandom(10))
            entry = format_entry(
                event.event,
                log=origin,
                index=index,
                previous=previous,
                recorded_at=SIGNED_AT,
                group_id=group_id,
                branch=Branch.THEN,
                of=1,
                position=0,
            )
            previous = leaf_hash(entry)
            entries.append(entry)
            leaves.append(previous)
            ids.append(group_id)
        yield entries, leaves, ids


class Growing:
    """The tree of a log that is being written, and its signer."""

    def __init__(self, origin: str) -> None:
        self.signer = Ed25519Signer.from_seed(name=origin, seed=bytes(32))
        self.size = 0
        self.edge: Pending = ()

    def add(self, leaves: Sequence[bytes]) -> list[Tile]:
        tiles, self.edge = complete_tiles(size=self.size, pending=self.edge, leaves=leaves)
        self.size += len(leaves)
        return tiles

    def note(self) -> bytes:
        root = frontier_of(self.edge).root()
        checkpoint = Checkpoint(origin=self.signer.name, size=self.size, root=root)
        return sign_note(format_checkpoint(checkpoint), [self.signer])


def write_directory(path: Path, event: PreparedEvent, count: int) -> VerifierKey:
    """Write the export of a log; returns its key."""
    tree = Growing(ORIGIN)

    def write(name: str, data: bytes) -> None:
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    for (entries, leaves, _), place in zip(bundles(event, count, ORIGIN), bundle_addresses(count), strict=True):
        write(bundle_path(*place), format_bundle(entries))
        for tile in tree.add(leaves):
            write(tile_path(tile.level, tile.index), tile.pack())
    for level, index, width in edge_addresses(count):
        write(tile_path(level, index, width), b"".join(tree.edge[level]))
    write(CHECKPOINT_FILE, tree.note())
    return tree.signer.verifier_key


def write_rows(
    admin_dsn: str, log_id: int, origin: str, event: PreparedEvent, count: int, notes_at: Sequence[int]
) -> dict[int, bytes]:
    """Make a log one of these entries, by COPY and as the owner; returns and stores signed notes at these sizes."""
    tree = Growing(origin)
    notes: dict[int, bytes] = {}
    tiles: list[Tile] = []
    last = bytes(32)
    with psycopg.connect(admin_dsn) as connection, connection.cursor() as cursor:
        statement = (
            "COPY ledger.entries (log_id, index, entry, leaf, type, key, is_control, group_id) FROM STDIN BINARY"
        )
        with cursor.copy(statement) as copy:
            copy.set_types(["int4", "int8", "bytea", "bytea", "text", "text", "bool", "uuid"])
            for entries, leaves, ids in bundles(event, count, origin):
                for entry, leaf, group_id in zip(entries, leaves, ids, strict=True):
                    copy.write_row((log_id, tree.size, entry, leaf, event.type, event.key, False, group_id))
                    tiles += tree.add([leaf])
                    if tree.size in notes_at:
                        notes[tree.size] = tree.note()
                last = leaves[-1]
        with cursor.copy("COPY ledger.tiles (log_id, level, tile, hashes, root) FROM STDIN") as copy:
            for tile in tiles:
                copy.write_row((log_id, tile.level, tile.index, tile.pack(), tile.root()))
        cursor.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, recorded_at = %s WHERE log_id = %s",
            (count, last, frontier_of(tree.edge).pack(), TIME, log_id),
        )
        for size, note in notes.items():
            cursor.execute("INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", (log_id, size, note))
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) ledger.entries, ledger.tiles")
    return notes


def best(verify: Callable[[], VerificationReport]) -> dict[str, float]:
    """Return the figures of the fastest of three rounds, after one that loads the kernel."""
    rounds: list[tuple[float, float, VerificationReport]] = []
    for _ in range(1 + ROUNDS):
        cpu_s = time.process_time()
        report = verify()
        rounds.append((report.elapsed_s, time.process_time() - cpu_s, report))
    elapsed_s, cpu_s, report = min(rounds[1:], key=lambda done: done[0])
    return figures(report.size - report.first, elapsed_s, min(done[1] for done in rounds[1:]))


def figures(count: int, elapsed_s: float, cpu_s: float) -> dict[str, float]:
    return {
        "per_s": round(count / elapsed_s),
        "per_cpu_s": round(count / cpu_s),
        "elapsed_ms": round(1000 * elapsed_s, 1),
    }


def hash_alone(path: Path, count: int) -> dict[str, float]:
    """Measure the baseline: SHA-256 of every entry, which is in memory."""
    directory = LogDirectory(path)
    took_s = cpu_s = 0.0
    for index, width in bundle_addresses(count):
        prefixed = [b"\x00" + entry for entry in directory.read_bundle(index, width)]
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        for entry in prefixed:
            sha256(entry).digest()
        took_s += time.perf_counter() - began_s
        cpu_s += time.process_time() - began_cpu_s
    return figures(count, took_s, cpu_s)


def measure_directory(event: PreparedEvent, count: int) -> dict[str, Any]:
    path = Path(tempfile.mkdtemp(prefix="lp-bench-"))
    try:
        keys = [write_directory(path, event, count)]
        few = count // 10  # enough for a baseline that takes as long for each
        return {
            "hash": hash_alone(path, count),
            "exact": exact_of(path, event, few),
            **{name: best(lambda: verify_directory(path, keys, effort=effort)) for name, effort in EFFORTS.items()},  # noqa: B023
        }
    finally:
        shutil.rmtree(path)


def exact_of(path: Path, event: PreparedEvent, count: int) -> dict[str, float]:
    keys = [write_directory(path / "few", event, count)]
    try:
        return best(lambda: verify_directory(path / "few", keys, effort=EXACT))
    finally:
        shutil.rmtree(path / "few")


class Server:
    """A database with logs of one event each."""

    def __init__(self, admin_dsn: str) -> None:
        self._admin_dsn = admin_dsn
        self._installation = provision(admin_dsn, login_password=secrets.token_urlsafe())
        self.auditor_dsn = self._installation.as_role(self._installation.roles.auditor)

    def write(self, event: PreparedEvent, count: int, notes_at: Sequence[int]) -> tuple[str, dict[int, bytes]]:
        tenant = uuid4()
        log_id = create_tenant_log(self._admin_dsn, self._installation, tenant)
        origin = self._installation.origin(tenant)
        return origin, write_rows(self._admin_dsn, log_id, origin, event, count, notes_at)

    def verify(self, origin: str, effort: Effort, *, since: bytes | None = None) -> VerificationReport:
        return asyncio.run(self._verify(origin, effort, since))

    async def _verify(self, origin: str, effort: Effort, since: bytes | None) -> VerificationReport:
        connection: Connection
        async with await psycopg.AsyncConnection.connect(self.auditor_dsn, autocommit=True) as connection:
            log: Log = await find_log(connection, origin)
            key = Ed25519Signer.from_seed(name=origin, seed=bytes(32)).verifier_key
            return await verify_database(
                connection, log, [key], since=since, effort=effort, workers_dsn=self.auditor_dsn
            )

    def measure(self, event: PreparedEvent, count: int) -> dict[str, Any]:
        origin, _ = self.write(event, count, [count])
        few, _ = self.write(event, count // 10, [count // 10])
        return {
            "exact": best(lambda: self.verify(few, EXACT)),
            **{name: best(lambda: self.verify(origin, effort)) for name, effort in EFFORTS.items()},  # noqa: B023
        }

    def measure_since(self, event: PreparedEvent, count: int, new: int) -> dict[str, Any]:
        """Measure what is done by default, without the kernel, and with it, as in a process that has loaded it."""
        origin, notes = self.write(event, count, [count - new, count])
        since = notes[count - new]
        efforts = {"since": Effort(), "since, kernel": Effort(kernel_entries_min=0)}
        return {name: best(lambda: self.verify(origin, effort, since=since)) for name, effort in efforts.items()}  # noqa: B023


def main() -> None:
    """Measure and print."""
    parser = options("verify", __doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--large", type=int, nargs="?", const=LARGE, help="entries of the log for --since")
    arguments = parser.parse_args()
    count = arguments.entries
    events = {"500 bytes": small_event(), "1 KB": example_event()}
    found: dict[str, Any] = {"bench": "verify", "entries": count, "directory": {}, "database": {}}
    for name, event in events.items():
        found["directory"][name] = measure_directory(event, count)
        show("directory", name, found["directory"][name])
    with embedded_server() as admin_dsn:
        server = Server(admin_dsn)
        for name, event in events.items():
            found["database"][name] = server.measure(event, count)
            show("postgresql", name, found["database"][name])
        if arguments.large:
            measured = server.measure_since(events["500 bytes"], arguments.large, NEW)
            at = circumstances()["measured_at"]
            found["since"] = {"entries": arguments.large, "new": NEW, **measured, "measured_at": at}
            show("postgresql", f"{NEW:,} new", measured)
        elif arguments.results.exists():
            found["since"] = json.loads(arguments.results.read_text(encoding="utf-8")).get("since")
        found |= {"load": os.getloadavg(), **circumstances_on(admin_dsn)}
    publish(found, arguments.results)


def show(source: str, size: str, figures: dict[str, dict[str, float]]) -> None:
    for name, figure in figures.items():
        rates = f"{figure['per_s']:>9,}/s {figure['per_cpu_s']:>9,} per CPU second"
        print(f"{source:<10} {size:<9} {name:<12} {rates} {figure['elapsed_ms']:>9,} ms")


if __name__ == "__main__":
    main()
