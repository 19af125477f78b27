# SPDX-License-Identifier: Apache-2.0
"""
How long the read API and the console take on a large tenant: a log of 10 million entries, 10,000 tables, and a graph of
a million edges.

Claims: with one connection, 95 of 100 answers of each route are there after 100 ms at most, and each page of the
console after 150 ms, with at most 300 KB; whatever filter, and wherever in the log.

The tenant is founded as users do, its tables are created by requests, and then it is filled (`bench/busy_tenant.py`).
`lakeproof up` starts anew, with its default settings but for detection, and every route is asked through a socket
(`bench/looks.py`), by one connection and by eight at once. The peer is plain SQL over psycopg that reads the rows of
the same page, as the owner of the database: what the database itself costs, without rights, JSON or HTTP. Statements
are counted in the server's log, as `bench/gateway/inside.py` does.

Before that, a small tenant of the same kind is verified, and each of its read models and its graph is built again from
its log by `lakeproof projections rebuild`, which compares the two.

Run: `python -m bench.looking`; `--entries 1000000 --tables 1000 --edges 100000` for a tenth of it. The last line is
JSON with all figures; the exit code is 1 if an answer was wrong.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench.busy_tenant import NAMESPACE, Sizes, fill
from bench.gateway.inside import BEFORE_THE_ANSWER, counting
from bench.gateway.installation import Command, Up, command_in, commit_of, database_of, up_in
from bench.gateway.target import SETUP_THREADS, Catalog, schema, set_properties
from bench.history import POLICIES
from bench.latencies import latencies
from bench.looks import OPERATOR, SOME, Look, Place, looks, not_asked, shown_path
from bench.measuring import circumstances_on, options, publish
from bench.servers import directory_until_exit
from ledger.store.read import Log, find_log

GOAL_MS: Final = 100.0
PAGE_GOAL_MS: Final = 150.0
PAGE_GOAL_BYTES: Final = 300 * 1024
COLUMNS: Final = 10
CONNECTIONS: Final = (1, 8)
WARM: Final = 2
REQUESTS: Final = 60
REQUESTS_MIN: Final = 20
"""Fewer are sent if all take longer than `SECONDS`, but not fewer than this."""
SECONDS: Final = 3.0
COUNTED: Final = 3
"""Requests of each in which statements are counted."""
TIMEOUT_S: Final = 60.0
SMALL: Final = Sizes(entries=4_000, tables=20, edges=2_000)
KEYS: Final = {SOME: "'some' in roles && op.startsWith('READ_') && path.matches('^sales[.]t[0-9]*7$')"}
"""The rule of each caller that is not the operator."""


READ_MODELS: Final = {
    "commits": ("commits",),
    "findings": ("scans", "findings", "alerts"),
    "lineage": ("lineage_runs", "lineage_edges"),
}
"""Tables whose rows are counted, by projection."""
LAST_DECISION: Final = (
    "SELECT index FROM ledger.entries WHERE log_id = %s AND index < %s AND type = 'commit.decided'"
    " ORDER BY index DESC LIMIT 1"
)
OF_LIVE: Final = (
    "SELECT count(*) FROM {} JOIN projections.live USING (log_id, generation)"
    " WHERE log_id = %(log_id)s AND projection = %(projection)s"
)
LABELS: Final = (
    "SELECT g.name, l.name FROM ag_catalog.ag_label AS l JOIN ag_catalog.ag_graph AS g ON g.graphid = l.graph"
    " WHERE l.kind = %s AND l.name !~ '^_ag_' AND strpos(g.name, %s) > 0"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A tenant that is filled: its name, its tables' uuids, and the keys of its callers."""

    name: str
    uuids: Sequence[str]
    keys: dict[str, str]


class Client:
    """One connection of one caller, kept open. Not for several threads."""

    def __init__(self, url: str, caller: Caller) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_S)
        self._caller = caller

    def ask(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        self._connection.request("GET", path, headers=self._caller.headers(path))
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def first_entry_ms(self, path: str) -> float:
        """Return how long the first entry takes on a stream of events, which is closed then."""
        began = time.perf_counter()
        self._connection.request("GET", path, headers=self._caller.headers(path))
        answer = self._connection.getresponse()
        while not answer.readline().startswith(b"data:"):
            pass
        took_ms = (time.perf_counter() - began) * 1000
        self._connection.close()
        return took_ms

    def close(self) -> None:
        """Close it."""
        self._connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: a key for programs, and the cookie of a session of the console."""

    key: str
    cookie: str

    def headers(self, path: str) -> dict[str, str]:
        """The headers of a request."""
        return {"Cookie": self.cookie} if path.startswith("/console") else {"Authorization": f"Bearer {self.key}"}


def log_in(url: str, key: str) -> Caller:
    """Return a caller who has logged in at the console."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT_S)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    connection.request("POST", "/console/login", body=f"key={key}", headers=headers)
    cookie = connection.getresponse().headers["Set-Cookie"].partition(";")[0]
    connection.close()
    return Caller(key=key, cookie=cookie)


def found(up: Up, tables: int, say: Callable[[str], None]) -> Busy:
    """Found a tenant with policies, a caller who sees some tables, and so many tables."""
    name, target = up.new_tenant()
    with target.connect() as catalog:
        keys = {OPERATOR: str(target.key)}
        for caller, rule in KEYS.items():
            catalog.ask("POST", "/v1/access-rules", {"id": caller, "effect": "permit", "expression": rule})
            issued = catalog.ask("POST", "/v1/keys", {"identity": f"{caller}@{name}.example", "roles": [caller]})
            keys[caller] = issued["secret"]
        catalog.make_namespace(NAMESPACE)
        with ThreadPoolExecutor(SETUP_THREADS) as executor:
            uuids = list(executor.map(lambda number: _table(catalog, number), range(tables)))
        for number, expression in enumerate(POLICIES):
            catalog.ask("POST", "/v1/policies", {"id": f"p{number}", "expression": expression, "message": "no"})
        with suppress(RuntimeError):  # it is refused: a decision by these policies, which others are made after
            catalog.commit(NAMESPACE, "t0", [set_properties(note="a")])
    say(f"{name}: {tables:,} tables")
    return Busy(name=name, uuids=uuids, keys=keys)


def _table(catalog: Catalog, number: int) -> str:
    made = catalog.ask("POST", catalog.target.path(NAMESPACE), {"name": f"t{number}", "schema": schema(COLUMNS)})
    return str(made["metadata"]["table-uuid"])


async def log_of(dsn: str, number: int) -> Log:
    """Return the log of the tenant that was founded as the `number`-th."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        rows = await connection.execute("SELECT origin FROM ledger.logs WHERE tenant IS NOT NULL ORDER BY log_id")
        origins = [origin for (origin,) in await rows.fetchall()]
        return await find_log(connection, origins[number])


def fill_tenant(dsn: str, log: Log, busy: Busy, sizes: Sizes, say: Callable[[str], None]) -> float:
    """Fill a tenant; return how long it took, in seconds."""
    began = time.monotonic()
    with psycopg.connect(dsn) as connection:
        ((projector,),) = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname ~ '^lp_[0-9a-f]{8}_projector$'"
        ).fetchall()

    def progress(done: int, of: int) -> None:
        say(f"{busy.name}: {done / of:.0%} of {sizes.entries:,} entries after {time.monotonic() - began:.0f} s")

    asyncio.run(fill(dsn, log, busy.uuids, sizes, projector=projector, progress=progress))
    return round(time.monotonic() - began, 1)


def check_small(command: Command, busy: Busy, log: Log) -> dict[str, Any]:
    """Verify a tenant's log, and compare all of its read models with what projecting the log gives."""
    command.run("ledger", "verify", "--log", log.origin)
    names = ("commits", "metrics", "catalogs", "lineage", "findings", "graph")
    for name in names:
        command.run("projections", "rebuild", name, "--tenant", busy.name)
    return {"entries": SMALL.entries, "verified": True, "digests_equal": list(names)}


def contents(dsn: str, log: Log) -> dict[str, int]:
    """Return how much a tenant has, counted."""
    assert log.tenant is not None
    with psycopg.connect(dsn) as connection:

        def count(query: str | sql.Composed, **parameters: object) -> int:
            row = connection.execute(query, {"log_id": log.log_id, **parameters}).fetchone()
            return 0 if row is None else int(row[0])

        counted = {
            "entries": count("SELECT size FROM ledger.heads WHERE log_id = %(log_id)s"),
            "tables": count("SELECT count(*) FROM gateway.tables WHERE log_id = %(log_id)s"),
        }
        for projection, tables in READ_MODELS.items():
            for table in tables:
                query = sql.SQL(OF_LIVE).format(sql.Identifier("projections", table))
                counted[table] = count(query, projection=projection)
        for kind, name in (("e", "edges"), ("v", "vertices")):
            labels = connection.execute(LABELS, (kind, log.tenant.hex)).fetchall()
            queries = [sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(*label)) for label in labels]
            counted[name] = sum(map(count, queries))
        counted["database_mib"] = count("SELECT pg_database_size(current_database()) / 1048576")
    return counted


def place_of(dsn: str, log: Log) -> Place:
    """Return where decisions on tables are in the log: the last ones of its first tenth, of its half, and of all."""
    shares = {"start": 0.1, "middle": 0.5, "end": 1.0}
    with psycopg.connect(dsn) as connection:
        head = connection.execute("SELECT size FROM ledger.heads WHERE log_id = %s", (log.log_id,)).fetchone()
        assert head is not None
        size = int(head[0])
        decisions = {
            where: connection.execute(LAST_DECISION, (log.log_id, int(size * share))).fetchall()[0][0]
            for where, share in shares.items()
        }
        entry = "SELECT entry FROM ledger.entries WHERE log_id = %s AND index = %s"
        ((middle,),) = connection.execute(entry, (log.log_id, size // 2)).fetchall()
    middle_time = json.loads(bytes(middle))["recorded_at"]
    return Place(log_id=log.log_id, size=size, decisions=decisions, middle_time=middle_time)


def measure_look(
    url: str, caller: Caller, look: Look, *, connections: int, requests: int
) -> tuple[dict[str, float], int, set[int]]:
    """Return how long answers take with so many connections, the bytes of the largest, and the statuses."""
    took_ms: list[float] = []
    sizes: set[int] = set()
    statuses: set[int] = set()

    def ask_many(place: int) -> None:
        client = Client(url, caller)
        for number in range(WARM):
            client.ask(look.path_of(number))
        ends = time.monotonic() + SECONDS
        for number in range(-(-requests // connections)):
            if time.monotonic() > ends and number * connections >= REQUESTS_MIN:
                break
            path = look.path_of(WARM + number * connections + place)
            began = time.perf_counter()
            status, body = client.ask(path)
            took_ms.append((time.perf_counter() - began) * 1000)
            statuses.add(status)
            sizes.add(len(body))
        client.close()

    with ThreadPoolExecutor(connections) as executor:
        list(executor.map(ask_many, range(connections)))
    return {**latencies(took_ms), "requests": len(took_ms)}, max(sizes), statuses


def measure_peer(dsn: str, look: Look) -> dict[str, float] | None:
    """Return how long plain SQL takes for the rows of the same page."""
    if look.peer is None:
        return None
    took_ms: list[float] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(WARM + REQUESTS):
            began = time.perf_counter()
            connection.execute(look.peer.query.encode(), look.peer.parameters).fetchall()
            took_ms.append((time.perf_counter() - began) * 1000)
    return latencies(took_ms[WARM:])


def count_statements(
    up: Up, server_log: Path, dsn: str, callers: dict[str, Caller], asked: Sequence[Look]
) -> list[float]:
    """Return how many statements one request of each takes, in sessions that it waits for."""
    counts: list[float] = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        for setting, value in (("log_statement", "all"), ("log_line_prefix", "%a\t")):
            connection.execute(f"ALTER SYSTEM SET {setting} = '{value}'".encode())
        connection.execute("SELECT pg_reload_conf()")
        try:
            time.sleep(1)
            for look in asked:
                client = Client(up.url, callers[look.caller])
                client.ask(look.path_of(0))
                with counting(server_log) as counted:
                    for number in range(COUNTED):
                        client.ask(look.path_of(number))
                client.close()
                own = sum(count for (session, _), count in counted.items() if session in BEFORE_THE_ANSWER)
                counts.append(round(own / COUNTED, 1))
        finally:
            for setting in ("log_statement", "log_line_prefix"):
                connection.execute(f"ALTER SYSTEM RESET {setting}".encode())
            connection.execute("SELECT pg_reload_conf()")
    return counts


def measure(
    up: Up, dsn: str, server_log: Path, busy: Busy, log: Log, *, requests: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Ask all that is asked; return the figures."""
    callers = {name: log_in(up.url, key) for name, key in busy.keys.items()}
    place = place_of(dsn, log)

    def answer(path: str) -> Any:
        status, body = Client(up.url, callers[OPERATOR]).ask(path)
        assert status == 200, f"{path}: {status} {body[:300]!r}"
        return json.loads(body)

    asked, faults, rows = list(looks(place, answer)), list[str](), list[dict[str, Any]]()
    for number, look in enumerate(asked):
        row: dict[str, Any] = {"route": look.route, "what": look.what, "caller": look.caller}
        row["path"] = shown_path(look.path_of(0))
        for connections in CONNECTIONS:
            took, size, statuses = measure_look(
                up.url, callers[look.caller], look, connections=connections, requests=requests
            )
            row |= {str(connections): took, "bytes": size}
            if statuses != {200}:
                faults.append(f"{look.caller} {row['path']}: {sorted(statuses)}")
        if (peer := measure_peer(dsn, look)) is not None:
            row |= {"peer": peer, "to_peer": round(row["1"]["p50_ms"] / peer["p50_ms"], 2)}
        say(f"{number + 1} of {len(asked)}: {row['1']['p95_ms']:>9} ms  {look.caller} {row['path']}")
        rows.append(row)
    for row, count in zip(rows, count_statements(up, server_log, dsn, callers, asked), strict=True):
        row["statements"] = count
    follows = {
        where: latencies(
            [
                Client(up.url, callers[OPERATOR]).first_entry_ms(f"/v1/log/follow?from={int(place.size * share)}")
                for _ in range(REQUESTS_MIN)
            ]
        )
        for where, share in (("start", 0), ("middle", 0.5), ("end", 0.9999))
    }
    missed = [row for row in rows if row["1"]["p95_ms"] > (PAGE_GOAL_MS if _is_page(row) else GOAL_MS)]
    # A list as JSON or CSV is no page: it has as many rows as its route, which programs ask for.
    pages = [row for row in rows if _is_page(row) and not row["route"].endswith(".{form}")]
    too_large = [row for row in pages if row["bytes"] > PAGE_GOAL_BYTES]
    return {
        "looks": rows,
        "follow_first_entry": follows,
        "over_the_goal": [f"{row['caller']} {row['path']}: {row['1']['p95_ms']} ms" for row in missed],
        "pages_too_large": [f"{row['path']}: {row['bytes']} bytes" for row in too_large],
        "not_asked": not_asked(asked, answer("/openapi.json")),
        "faults": faults,
    }


def _is_page(row: dict[str, Any]) -> bool:
    return str(row["route"]).startswith("/console")


def run(program: Path, sizes: Sizes, *, requests: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Make the tenants, check the small one, measure the large one."""
    folder = directory_until_exit()
    command = command_in(folder, program)
    with up_in(folder, program) as up:
        small, large = found(up, SMALL.tables, say), found(up, sizes.tables, say)
        up.wait_until_quiet()
    with database_of(command) as server:
        logs = [asyncio.run(log_of(server.admin_dsn, number)) for number in (0, 1)]
        fill_tenant(server.admin_dsn, logs[0], small, SMALL, lambda _: None)
        checked = check_small(command, small, logs[0])
        say(f"the small tenant is as projecting makes it: {checked}")
        filled_s = fill_tenant(server.admin_dsn, logs[1], large, sizes, say)
        has = contents(server.admin_dsn, logs[1])
        say(f"filled in {filled_s} s: {has}")
    with database_of(command) as server, up_in(folder, program) as up:
        up.wait_until_quiet()
        figures = measure(up, server.admin_dsn, server.files.log, large, logs[1], requests=requests, say=say)
        return {
            "bench": "looking",
            "contents": has,
            "filled_s": filled_s,
            "small_tenant": checked,
            "read_models": "filled by the projections' own code; compared with projecting in the small tenant",
            "baseline": "plain SQL over psycopg for the rows of the same page",
            **figures,
            "complaints": up.complaints(),
            **circumstances_on(server.admin_dsn),
            "of": commit_of(program),
        }


def main() -> None:
    """Measure, publish, and exit with 1 if an answer was wrong."""
    parser = options("looking", __doc__)
    parser.add_argument("--entries", type=int, default=10_000_000, help="in the log")
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="in the graph, about")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="to each, by one connection and by eight")
    parser.add_argument(
        "--lakeproof", type=Path, default=Path(sys.executable).with_name("lakeproof"), help="the program measured"
    )
    given = parser.parse_args()
    sizes = Sizes(entries=given.entries, tables=given.tables, edges=given.edges)
    sizes.check()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", file=sys.stderr, flush=True)

    measured = run(given.lakeproof.absolute(), sizes, requests=given.requests, say=say)
    publish({**measured, "took_s": round(time.monotonic() - began)}, given.results)
    if measured["faults"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
