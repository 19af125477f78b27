# SPDX-License-Identifier: Apache-2.0
"""
Kills, one after another, while clients commit; after each phase what it has made must agree.

A phase has tables of its own and twelve clients: four commit through each alias, a built-in one and two foreign ones.
Of four, two share a table and two have one each; every second one sends Idempotency-Keys. Kills are dealt from a
shuffled deck, so that each kind comes equally often. After a kill, the campaign starts again what nobody else would
(PostgreSQL, a foreign catalog, `lakeproof up` itself if it was the victim), waits until commits through all aliases are
acknowledged again, and kills the next.

After every fifth phase and after the last one, all tables so far are compared with the log, so that nothing is lost
later, and the log is verified.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, Final

from ledger.format.entry import Entry, parse_entry
from ledger.format.events import CommitDecided, CommitOutcome, CommitSettled, OutcomeEvidence, from_data
from testkit.crashes.agreement import Accepted, Intended, Told, check_agreement, unrecorded
from testkit.crashes.client import Plan
from testkit.crashes.clients import Clients, Said
from testkit.crashes.installation import ALIASES, BRANCH, BUILT_IN, FOREIGN, RECONCILE_AFTER_S, Installation

CLIENTS_OF_ALIAS: Final = 4
TABLES: Final = ("shared", "own-2", "own-3")
TABLE_OF: Final = ("shared", "shared", "own-2", "own-3")
"""The table of each of the clients of one alias."""
CLIENT_PAUSE_S: Final = 0.15
VERIFY_TIMEOUT_S: Final = 900.0
"""For the whole log, which has some 150,000 entries after 1,000 kills."""
ALL_CHECKED_EVERY: Final = 5
"""After how many phases everything is checked."""
MOMENT_TIMEOUT_S: Final = 10.0
ENTRY_TIMEOUT_S: Final = 2.0
RECOVERY_TIMEOUT_S: Final = 90.0
SETTLED_TIMEOUT_S: Final = 60.0
SETTLED_POLL_S: Final = 0.1
SETTLED_S: Final = 5.0
"""How soon after the restart, and after its deadline, a decision whose commit is in the table must be settled."""
BEFORE_S_MAX: Final = 0.1
"""Before a kill at a random moment, and between kills."""
LATE_S_MAX: Final = 0.004
"""After a request was sent: the kill may come this much later."""
DOWN_S_MAX: Final = 0.2
"""How long PostgreSQL or a foreign catalog stay away before they are started again."""
OK: Final = 200
SCHEMA: Final = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
ENTRIES: Final = """
SELECT entry FROM ledger.entries
WHERE log_id = %s AND index >= %s AND type IN ('commit.decided', 'commit.settled') ORDER BY index
"""
SIZE: Final = "SELECT size FROM ledger.heads WHERE log_id = %s"
IS_IN_THE_LOG: Final = b"SELECT 1 FROM ledger.entries WHERE log_id = %s AND index >= %s AND key = %s AND type = %s"
OPEN: Final = """
SELECT o.key, o.snapshots, extract(epoch FROM o.deadline), coalesce(l.looks, 0),
    round(extract(epoch FROM l.next_look_at - now()), 1)
FROM gateway.open_decisions AS o LEFT JOIN gateway.reconcile_looks AS l USING (log_id, key)
WHERE o.log_id = %s
"""


class Victim(StrEnum):
    """What is killed."""

    GATEWAY = "a gateway process"
    UPSTREAM = "Iceberg's REST server"
    NESSIE = "Nessie"
    POSTGRESQL = "PostgreSQL"
    BACKEND = "a backend of PostgreSQL"
    DUTY = "another process"
    SUPERVISOR = "the supervisor"
    EVERYTHING = "all of lakeproof up"


class Moment(StrEnum):
    """When it is killed."""

    RANDOM = "at random"
    SENT = "a request was sent"
    DECIDED = "the decision is in the log"
    SETTLED = "before the answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A kill; `alias` is that of the request at which it is aimed."""

    victim: Victim
    moment: Moment = Moment.RANDOM
    alias: str = FOREIGN


DECK: Final = (
    Kill(victim=Victim.GATEWAY),
    Kill(victim=Victim.GATEWAY, moment=Moment.SENT, alias=BUILT_IN),
    Kill(victim=Victim.GATEWAY, moment=Moment.SENT),
    Kill(victim=Victim.GATEWAY, moment=Moment.SENT, alias=BRANCH),
    Kill(victim=Victim.GATEWAY, moment=Moment.DECIDED),
    Kill(victim=Victim.GATEWAY, moment=Moment.DECIDED, alias=BRANCH),
    Kill(victim=Victim.GATEWAY, moment=Moment.SETTLED, alias=BUILT_IN),
    Kill(victim=Victim.GATEWAY, moment=Moment.SETTLED),
    Kill(victim=Victim.GATEWAY, moment=Moment.SETTLED, alias=BRANCH),
    Kill(victim=Victim.UPSTREAM),
    Kill(victim=Victim.UPSTREAM, moment=Moment.DECIDED),
    Kill(victim=Victim.NESSIE),
    Kill(victim=Victim.NESSIE, moment=Moment.DECIDED, alias=BRANCH),
    Kill(victim=Victim.POSTGRESQL, moment=Moment.SENT, alias=BUILT_IN),
    Kill(victim=Victim.POSTGRESQL, moment=Moment.DECIDED),
    Kill(victim=Victim.BACKEND, moment=Moment.SENT, alias=BUILT_IN),
    Kill(victim=Victim.BACKEND, moment=Moment.SETTLED),
    Kill(victim=Victim.DUTY),
    Kill(victim=Victim.SUPERVISOR),
    Kill(victim=Victim.EVERYTHING, moment=Moment.DECIDED),
)


def deal(count: int, chance: random.Random) -> list[Kill]:
    """Return so many kills: whole decks, each shuffled, and a part of the last one."""
    dealt: list[Kill] = []
    while len(dealt) < count:
        dealt += chance.sample(DECK, len(DECK))
    return dealt[:count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A kill that has happened: when, when commits were acknowledged again, and whether it cut its request off."""

    kill: Kill
    at_s: float
    recovered_s: float
    cut: bool | None


@dataclass(slots=True, kw_only=True)
class Found:
    """What a campaign has found so far."""

    killed: list[Killed] = field(default_factory=list)
    intended: dict[str, Intended] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    tables: dict[str, set[str]] = field(default_factory=dict)
    accepted: list[Accepted] = field(default_factory=list)
    decided: dict[tuple[str, str], tuple[str, datetime]] = field(default_factory=dict)
    """The hash of each decided request, and when it was recorded, by decision and key."""
    reconciled_after_s: list[float] = field(default_factory=list)
    """Of each commit that the reconciler found: how long after the decision's deadline its outcome was recorded."""
    settled_s: list[float] = field(default_factory=list)
    """Of each phase: how long after its end the last of its commits was recorded."""
    read_to: int = 0
    phases: int = 0
    violations: list[str] = field(default_factory=list)


class Campaign:
    """A campaign against one installation; `say` prints progress."""

    def __init__(self, installation: Installation, *, seed: int, say: Callable[[str], None]) -> None:
        self._installation = installation
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._seed = seed
        self._say = say
        self._clients: Clients
        self._expected_starts = installation.started
        self.found = Found()

    def run(self, kills: Sequence[Kill], *, phase_size: int, until_s: float | None = None) -> None:
        """Make these kills in phases, and check after each; begin no phase after `until_s` on the monotonic clock."""
        for first in range(0, len(kills), phase_size):
            if until_s is not None and time.monotonic() > until_s:
                break
            namespace = self._play(kills[first : first + phase_size])
            if self.found.phases % ALL_CHECKED_EVERY:
                self._check(partial(_is_in, namespace))
            else:
                self._check_all()
        if self.found.phases % ALL_CHECKED_EVERY:
            self._check_all()

    def _play(self, kills: Sequence[Kill]) -> str:
        """Play one phase; return the namespace of its tables."""
        found, number = self.found, self.found.phases
        namespace = f"p{number}"
        self._make_tables(namespace)
        self._clients = Clients(list(self._plans(namespace)))
        try:
            self._await_commits(time.monotonic(), "the clients have started")
            for kill in kills:
                killed = self._kill(kill)
                found.killed.append(killed)
                cut = {True: ", its request was cut off", False: ", too late for its request", None: ""}[killed.cut]
                away_s = killed.recovered_s - killed.at_s
                self._say(f"{len(found.killed)}: {kill.victim}, {kill.moment}{cut}; all well after {away_s:.1f} s")
            found.violations += self._clients.stop()
        finally:
            self._clients.kill()
        found.phases += 1
        self._take_down(namespace)
        return namespace

    def _make_tables(self, namespace: str) -> None:
        for alias in ALIASES:
            base = f"/v1/iceberg/{alias}/namespaces"
            self._installation.ask("POST", base, {"namespace": [namespace]})
            for table in TABLES:
                self._installation.ask("POST", f"{base}/{namespace}/tables", {"name": table, "schema": SCHEMA})

    def _plans(self, namespace: str) -> Iterator[Plan]:
        for number in range(len(ALIASES) * CLIENTS_OF_ALIAS):
            alias, seat = ALIASES[number // CLIENTS_OF_ALIAS], number % CLIENTS_OF_ALIAS
            yield Plan(
                number=number,
                host="127.0.0.1",
                port=self._installation.port,
                path=f"/v1/iceberg/{alias}/namespaces/{namespace}/tables/{TABLE_OF[seat]}",
                key=self._installation.key,
                has_idempotency_keys=seat % 2 == 0,
                sees_history=alias != BRANCH,
                pause_s=CLIENT_PAUSE_S,
                seed=f"{self._seed} {namespace} {number}",
            )

    # Kills

    def _kill(self, kill: Kill) -> Killed:
        time.sleep(self._chance.uniform(0, BEFORE_S_MAX))
        self._make_ready(kill)
        first = len(self._clients.said)
        backend = self._installation.backend() if kill.victim is Victim.BACKEND else None
        aimed, gateway = (None, None) if kill.moment is Moment.RANDOM else self._await_moment(kill)
        at_s = time.monotonic()
        self._end(kill.victim, gateway if backend is None else backend)
        self._start_again(kill.victim)
        self._await_commits(time.monotonic(), f"{kill.victim} was killed ({kill.moment})")
        return Killed(kill=kill, at_s=at_s, recovered_s=time.monotonic(), cut=self._was_cut(aimed, first))

    def _make_ready(self, kill: Kill) -> None:
        """Wait until there is something to kill."""
        if kill.victim is Victim.GATEWAY:
            self._installation.up.until(lambda: bool(self._installation.gateways()))

    def _await_moment(self, kill: Kill) -> tuple[Said | None, int | None]:
        """Wait until the moment of a kill has come for a request; return the line about it, and the gateway with it."""
        clients = [number for number in self._clients.plans if ALIASES[number // CLIENTS_OF_ALIAS] == kill.alias]
        client = self._chance.choice(clients)
        by_port: dict[int, int | None] = {}

        def is_sent(said: Said) -> bool:
            return said.client == client and said.what == "sent"

        # Which process holds a connection takes too long to find out once a request has been sent: look before.
        before = self._clients.wait_for(is_sent, timeout_s=MOMENT_TIMEOUT_S)
        if before is not None:
            by_port[before.port] = self._installation.gateway_of(before.port)
        with self._installation.connect() as connection:
            row = connection.execute(SIZE.encode(), (self._installation.log_id,)).fetchone()
            size = 0 if row is None else int(row[0])
            sent = self._clients.wait_for(is_sent, timeout_s=MOMENT_TIMEOUT_S)
            if sent is None:
                return None, None
            if kill.moment is Moment.SENT:
                time.sleep(self._chance.uniform(0, LATE_S_MAX))
            else:
                event = CommitDecided.TYPE if kill.moment is Moment.DECIDED else CommitSettled.TYPE
                where = (self._installation.log_id, size, self._key_of(client), event)
                deadline_s = time.monotonic() + ENTRY_TIMEOUT_S
                while connection.execute(IS_IN_THE_LOG, where).fetchone() is None and time.monotonic() < deadline_s:
                    pass
        return sent, by_port.get(sent.port)

    def _end(self, victim: Victim, chosen: int | None) -> None:
        """Kill a victim: of several, the process that was `chosen`, else one at random."""
        installation = self._installation
        match victim:
            case Victim.GATEWAY:
                running = installation.gateways() if chosen is None else [chosen]
                if running:
                    installation.kill(self._chance.choice(running))
            case Victim.UPSTREAM:
                installation.upstream.kill()
            case Victim.NESSIE:
                installation.nessie.kill()
            case Victim.POSTGRESQL:
                installation.kill_postmaster()
            case Victim.BACKEND:
                installation.kill_backend(installation.backend() if chosen is None else chosen)
            case Victim.DUTY:
                duties = sorted(installation.duties().items())
                if duties:
                    installation.kill(self._chance.choice(duties)[1])
            case Victim.SUPERVISOR:
                installation.kill_supervisor()
            case Victim.EVERYTHING:
                installation.kill_everything()

    def _start_again(self, victim: Victim) -> None:
        """Start again what nobody else would."""
        installation = self._installation
        match victim:
            case Victim.UPSTREAM:
                time.sleep(self._chance.uniform(0, DOWN_S_MAX))
                installation.upstream.start()
            case Victim.NESSIE:
                time.sleep(self._chance.uniform(0, DOWN_S_MAX))
                installation.nessie.start()
            case Victim.POSTGRESQL:
                time.sleep(self._chance.uniform(0, DOWN_S_MAX))
                installation.start_server()
            case Victim.SUPERVISOR | Victim.EVERYTHING:
                self._check_nothing_is_left()
                installation.start_up()
                self._expected_starts += 1
            case _:
                pass

    def _await_commits(self, since_s: float, what: str) -> None:
        """Wait until a commit through each alias that was sent after `since_s` is acknowledged."""
        for alias in ALIASES:
            begun: set[str] = set()

            def is_acknowledged(said: Said, alias: str = alias, begun: set[str] = begun) -> bool:
                if ALIASES[said.client // CLIENTS_OF_ALIAS] != alias or said.at_s < since_s:
                    return False
                if said.what == "sent":
                    begun.add(said.snapshot)
                return said.what == "told" and said.status == OK and said.snapshot in begun

            first = max(0, len(self._clients.said) - 100)
            if self._clients.wait_for(is_acknowledged, timeout_s=RECOVERY_TIMEOUT_S, after=first) is None:
                self.found.violations.append(f"{alias}: no commit in {RECOVERY_TIMEOUT_S:g} s after {what}")
        if self._installation.up.process.poll() is not None:
            self.found.violations.append(f"lakeproof up has ended by itself: {self._installation.up.lines[-5:]}")
            self._installation.start_up()

    def _was_cut(self, aimed: Said | None, first: int) -> bool | None:
        """Tell whether the request at which a kill was aimed was not answered as if nothing had happened."""
        if aimed is None:
            return None
        answers = (s for s in self._clients.said[first:] if s.snapshot == aimed.snapshot and s.at_s >= aimed.at_s)
        answer = next((said for said in answers if said.what == "told"), None)
        return answer is None or answer.status == 0 or answer.status >= 500

    def _key_of(self, client: int) -> str:
        """Return the log's key of a client's table."""
        _, _, _, alias, _, namespace, _, table = self._clients.plans[client].path.split("/")
        return f"table:{alias}/{namespace}/{table}"

    # Checks

    def _take_down(self, namespace: str) -> None:
        """Keep what the clients of a phase have said."""
        found = self.found
        for said in self._clients.said:
            match said.what:
                case "intends":
                    table, has_key = self._key_of(said.client), said.more[0] is not None
                    intended = Intended(client=said.client, table=table, has_idempotency_key=has_key)
                    found.intended[said.snapshot] = intended
                case "told":
                    status, error, shows_it = said.more
                    found.told.append(Told(snapshot=said.snapshot, status=status, shows_it=shows_it, error=error))
        found.said += self._clients.said
        found.tables |= {f"table:{alias}/{namespace}/{table}": set() for alias in ALIASES for table in TABLES}

    def _check_all(self) -> None:
        self._check(lambda _: True)
        self._verify()

    def _check(self, is_read: Callable[[str], bool]) -> None:
        """Check what must hold after a phase; of the tables, those are read again that `is_read` says of their keys."""
        found, began_s = self.found, time.monotonic()
        self._check_nothing_is_left()
        self._read_tables(is_read)
        self._read_log()
        self._await_settled(time.time())
        wrong = check_agreement(found.intended, found.told, accepted=found.accepted, tables=found.tables)
        found.violations += [each for each in wrong if each not in found.violations]
        if self._installation.started != self._expected_starts:
            found.violations.append("lakeproof up was started again although it was not killed")
        there, checked_s = sum(map(len, found.tables.values())), time.monotonic() - began_s
        self._say(
            f"phase {found.phases}: {there:,} commits in {len(found.tables)} tables, {len(found.accepted):,} accepted "
            f"outcomes in the log, {len(found.reconciled_after_s)} of them by the reconciler, the last one after "
            f"{found.settled_s[-1]:.1f} s; "
            f"{len(found.violations)} violations (checked in {checked_s:.1f} s)"
        )
        for text in found.violations:
            self._say(f"VIOLATION {text}")
        for text, count in self._installation.complaints().items():
            self._say(f"{count} tracebacks: {text}")

    def _check_nothing_is_left(self) -> None:
        for process in self._installation.left_behind():
            self.found.violations.append(f"process {process.pid} was left behind: {process.command}")

    def _read_tables(self, is_read: Callable[[str], bool]) -> None:
        """Read tables: each from its catalog itself, and where the gateway says that its metadata is."""
        for key in filter(is_read, self.found.tables):
            alias, namespace, table = key.removeprefix("table:").split("/")
            shown = self._installation.ask("GET", f"/v1/iceberg/{alias}/namespaces/{namespace}/tables/{table}")
            location, self.found.tables[key] = self._installation.state(alias, namespace, table)
            if shown["metadata-location"] != location:
                text = f"{key}: the gateway shows {shown['metadata-location']}, the catalog has {location}"
                self.found.violations.append(text)

    def _read_log(self) -> None:
        """Read what the log has got."""
        found = self.found
        for (data,) in self._installation.query(ENTRIES, self._installation.log_id, found.read_to):
            entry: Entry = parse_entry(bytes(data))
            found.read_to = entry.index + 1
            if entry.type == CommitDecided.TYPE:
                decided = from_data(CommitDecided, entry.data)
                if entry.group_id is not None:
                    found.decided[str(entry.group_id), entry.key] = (decided.request, entry.recorded_at)
                continue
            settled = from_data(CommitSettled, entry.data)
            if settled.outcome is not CommitOutcome.ACCEPTED:
                continue
            request, at = found.decided[settled.decision, entry.key]
            found.accepted.append(
                Accepted(index=entry.index, table=entry.key, snapshots=settled.snapshots, request=request)
            )
            if settled.evidence is OutcomeEvidence.RECONCILED:
                found.reconciled_after_s.append((entry.recorded_at - at).total_seconds() - RECONCILE_AFTER_S)

    def _await_settled(self, since_s: float) -> None:
        """
        Wait until every commit in a table is recorded: each must be 5 s after its deadline and after `since_s`.

        One that no decision is open for will never be; the comparison names it.
        """
        found, began_s = self.found, time.monotonic()
        late: dict[str, str] = {}
        while left := unrecorded(found.accepted, found.tables):
            rows = self._installation.query(OPEN, self._installation.log_id)
            is_open = {(key, each): (float(due_s), more) for key, snapshots, due_s, *more in rows for each in snapshots}
            for table, snapshot in left & is_open.keys():
                due_s, (looks, next_s) = is_open[table, snapshot]
                if time.time() - max(since_s, due_s) > SETTLED_S and snapshot not in late:
                    late[snapshot] = (
                        f"{table}: snapshot {snapshot} is there, its decision is open and was looked at {looks} times; "
                        f"its deadline was {time.time() - due_s:.1f} s ago, the next look is in {next_s} s"
                    )
            if not left & is_open.keys() or time.monotonic() - began_s > SETTLED_TIMEOUT_S:
                self._read_log()  # what was open a moment ago may have been settled by now
                break
            time.sleep(SETTLED_POLL_S)
            self._read_log()
        found.settled_s.append(time.monotonic() - began_s)
        found.violations += late.values()

    def _verify(self) -> None:
        done = self._installation.up.command("ledger", "verify", "--deep", "--json", timeout_s=VERIFY_TIMEOUT_S)
        if done.returncode:
            self.found.violations.append(f"the log does not verify: {done.stdout[-1000:]}{done.stderr[-1000:]}")

    # Figures

    def figures(self) -> dict[str, Any]:
        """Return what was found."""
        found = self.found
        statuses = {alias: Counter[str]() for alias in ALIASES}
        for said in found.said:
            if said.what == "told":
                statuses[ALIASES[said.client // CLIENTS_OF_ALIAS]][str(said.status or "no answer")] += 1
        told = Counter(one.snapshot for one in found.told)
        return {
            "kills": len(found.killed),
            "phases": found.phases,
            "clients": len(ALIASES) * CLIENTS_OF_ALIAS,
            "commits": sum(map(len, found.tables.values())),
            "accepted": len(found.accepted),
            "reconciled": len(found.reconciled_after_s),
            "reconciled_after_deadline_s": _middle_and_most(found.reconciled_after_s or [0.0]),
            "settled_after_s_max": round(max(found.settled_s, default=0.0), 1),
            "answers": {alias: dict(sorted(counts.items())) for alias, counts in statuses.items()},
            "repeated_requests": sum(count > 1 for count in told.values()),
            "given_up": sum(said.what == "gives up" for said in found.said),
            "by_victim": self._by_victim(),
            "tracebacks": self._installation.complaints().total(),
            "violations": found.violations,
        }

    def _by_victim(self) -> dict[str, dict[str, Any]]:
        """Return the kills of each kind of victim, and the longest pauses of acknowledged commits that followed."""
        at_s: dict[str, list[float]] = {alias: [] for alias in ALIASES}
        for said in self.found.said:
            if said.what == "told" and said.status == OK:
                at_s[ALIASES[said.client // CLIENTS_OF_ALIAS]].append(said.at_s)
        kinds: defaultdict[str, list[Killed]] = defaultdict(list)
        for killed in self.found.killed:
            kinds[killed.kill.victim].append(killed)
        found = {}
        for victim in (each.value for each in Victim if each.value in kinds):
            pauses = {alias: [_longest_pause_s(one, at_s[alias]) for one in kinds[victim]] for alias in ALIASES}
            aimed = [one for one in kinds[victim] if one.cut is not None]
            found[victim] = {
                "kills": len(kinds[victim]),
                "aimed": len(aimed),
                "cut_off": sum(bool(one.cut) for one in aimed),
                **{f"{alias}_pause_s": _middle_and_most(each) for alias, each in pauses.items()},
            }
        return found


def _is_in(namespace: str, key: str) -> bool:
    return key.split("/")[1] == namespace


def _longest_pause_s(killed: Killed, acknowledged_s: Sequence[float]) -> float:
    """Return the longest time between two acknowledged commits from a kill until all was well again."""
    between = sorted(each for each in acknowledged_s if killed.at_s < each <= killed.recovered_s)
    return max(later - earlier for earlier, later in pairwise([killed.at_s, *between, killed.recovered_s]))


def _middle_and_most(waits_s: Sequence[float]) -> dict[str, float]:
    return {"p50": round(statistics.median(waits_s), 2), "max": round(max(waits_s), 2)}


def format_table(figures: dict[str, Any]) -> str:
    """Return the pauses by victim as a table."""
    head = ("victim", "kills", "cut off", *(f"{alias}, {which}" for alias in ALIASES for which in ("p50", "max")))
    rows = [head] + [
        (
            victim,
            str(one["kills"]),
            f"{one['cut_off']} of {one['aimed']}",
            *(f"{one[f'{alias}_pause_s'][which]:.2f} s" for alias in ALIASES for which in ("p50", "max")),
        )
        for victim, one in figures["by_victim"].items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
