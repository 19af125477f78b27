# SPDX-License-Identifier: Apache-2.0
"""
What `bench/looking.py` asks: every route of the read API and every page of the console, about a busy tenant.

Lists are asked for at their start, in their middle and at their end, with filters that match often, rarely and never;
things by the most used one and by one that is used as most are. The operator sees all, `some` one table in ten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from fastapi.routing import APIRoute

from bench.busy_tenant import ALIAS, NAMESPACE
from gateway.console.routers import ROUTERS

OPERATOR: Final = "operator"
SOME: Final = "some"
"""A caller whose rules show the tables whose number ends in 7."""
HOT: Final = "t0"
"""The table that has most commits, runs and snapshots, and from which most tables are made."""
USUAL: Final = "t7"
PAGE: Final = 500
"""Rows that are asked for at a time on the way to the middle of a list."""
READ_API: Final = re.compile(
    r"/v1/(log/|anchors|tables|decisions/|findings|lineage/|runs|impact/|traverse/|status|evidence|dead-letters|projections)"
)
WITHOUT: Final = {
    *("/v1/log/follow", "/console/log/follow"),  # without an end: `bench/looking.py` measures them to the first entry
    *("/v1/evidence/{job}", "/v1/evidence/{job}/file", "/v1/dead-letters/replay"),  # of jobs that were begun before
    *("/console/operate/evidence/{job}/file", "/console/operate/replays"),
    *("/console/login/at/{name}", "/console/login/at/{name}/answer", "/console/login/link"),  # on the way to a provider
}
"""What is not asked for here."""
ALONE: Final = (
    *("/v1/log/stats", "/v1/anchors", "/v1/status", "/v1/dead-letters", "/v1/evidence", "/v1/projections"),
    *("/console", "/console/login", "/console/terms", "/console/policies", "/console/policies/_new"),
    *("/console/policies/_replay", "/console/restrictions", "/console/restrictions/_new", "/console/operate"),
    *("/console/operate/keys", "/console/operate/catalogs", "/console/operate/evidence", "/console/operate/verifier"),
    *("/console/operate/tenant", "/console/access-rules", "/console/access-rules/_who", "/console/access-rules/_what"),
)
"""Routes without anything to choose."""

MOVING: Final = "0000"
"""Stands in a path for an index that moves."""
STEP: Final = 997
"""So many entries are between the places of a request that moves, of which none was read before."""

Answer = Callable[[str], Any]
"""Returns what a path is answered to the operator, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Plain SQL that reads the rows of the same page."""

    query: str
    parameters: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One thing that is asked: which route, at which place or with which filter, and by whom."""

    route: str
    what: str
    path: str
    caller: str = OPERATOR
    peer: Peer | None = None
    moves_from: int | None = None

    def path_of(self, number: int) -> str:
        """Return the path of the request of that number: one that moves is about another place each time."""
        if self.moves_from is None:
            return self.path
        return self.path.replace(MOVING, str(self.moves_from + number * STEP))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are in the log: its number and size, and indices of decisions near its start, middle and end."""

    log_id: int
    size: int
    decisions: Mapping[str, int]
    middle_time: str


def looks(place: Place, answer: Answer) -> Iterator[Look]:
    """Yield all that is asked; `answer` finds the middle of lists."""
    yield from _entries(place)
    yield from _lists(place, answer)
    yield from _things(place)
    yield from _pages(place)


def not_asked(asked: Sequence[Look], openapi: Mapping[str, Any]) -> list[str]:
    """Return the routes of the read API, and pages of the console, that nothing is asked of."""
    paths = openapi["paths"]
    routes = {path for path, methods in paths.items() if "get" in methods and READ_API.match(path)}
    of_console = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    pages = {route.path for route in of_console if "GET" in (route.methods or ())}
    return sorted((routes | pages) - {look.route for look in asked} - WITHOUT)


def _entries(place: Place) -> Iterator[Look]:
    middle = place.size // 2
    asked: Mapping[str, Mapping[str, object]] = {
        "newest": {},
        "oldest": {"order": "oldest"},
        "from the middle": {"order": "oldest", "from": MOVING},
        "before a time": {"before": place.middle_time},
        "type, often": {"type": "trigger.received"},
        "type, rarely, middle": {"type": "commit.decided", "before": place.middle_time},
        "type, rarely, from the middle": {"order": "oldest", "from": MOVING, "type": "commit.decided"},
        "type, never": {"type": "policy.retired"},
        "family, rarely": {"type": "detection.*"},
        "key, hot": {"key": f"table:{ALIAS}/{NAMESPACE}/{HOT}"},
        "key, rarely": {"key": f"table:{ALIAS}/{NAMESPACE}/{USUAL}"},
        "as of the middle": {"as_of": middle},
        "actor": {"actor": f"{3:032x}"},
    }
    for what, parameters in asked.items():
        peer = None
        if what in {"newest", "type, rarely, middle", "key, rarely"}:
            type_, key = parameters.get("type"), parameters.get("key")
            end = middle if "before" in parameters else place.size
            peer = Peer(
                query="SELECT index, entry FROM ledger.entries WHERE log_id = %s AND index < %s AND index >= %s"
                " AND (%s::text IS NULL OR type = %s) AND (%s::text IS NULL OR key = %s) ORDER BY index DESC LIMIT 100",
                parameters=(place.log_id, end, end - 20_000, type_, type_, key, key),
            )
        for caller in (OPERATOR, SOME) if what not in {"actor", "type, never"} else (OPERATOR,):
            yield Look(
                route="/v1/log/entries",
                what=what,
                path=_path("/v1/log/entries", parameters),
                caller=caller,
                peer=peer if caller == OPERATOR else None,
                moves_from=middle if parameters.get("from") == MOVING else None,
            )
    for where, index in place.decisions.items():
        yield Look(
            route="/v1/log/entries/{index}",
            what=f"a decision, {where}",
            path=f"/v1/log/entries/{index}",
            peer=Peer(
                query="SELECT entry FROM ledger.entries WHERE log_id = %s AND index = %s",
                parameters=(place.log_id, index),
            ),
        )


def _lists(place: Place, answer: Answer) -> Iterator[Look]:
    plain_tables = Peer(
        query="SELECT n.* FROM projections.table_names AS n"
        " JOIN projections.live AS l USING (log_id, generation, projection)"
        " WHERE n.log_id = %s AND n.projection = 'findings' AND n.is_current ORDER BY n.key COLLATE \"C\" LIMIT 100",
        parameters=(place.log_id,),
    )
    middle, (first,) = place.size // 2, answer("/v1/tables?limit=1")["tables"]
    tables: Mapping[str, Mapping[str, object]] = {
        "start": {},
        "middle": {"cursor": middle_of(answer, "/v1/tables")},
        "name, often": {"name": "t1"},
        "name, never": {"name": "nobody"},
        "finding, often": {"finding": "email"},
        "finding, never": {"finding": "phone"},
        "tag, often": {"tag": "pii"},
        "tag, never": {"tag": "phone"},
        "owner of all": {"owner": first["owner"]["actor"]},
        "owner of none": {"owner": "nobody@example.com"},
        "catalog": {"catalog": ALIAS},
        "as of the middle": {"as_of": middle},
        "500 a page": {"limit": 500},
    }
    for what, parameters in tables.items():
        for caller in (OPERATOR, SOME):
            if not (what == "middle" and caller == SOME):  # a cursor is good for whoever asks, but one shows enough
                peer = plain_tables if what == "start" and caller == OPERATOR else None
                yield Look(
                    route="/v1/tables", what=what, path=_path("/v1/tables", parameters), caller=caller, peer=peer
                )
    plain_findings = Peer(
        query="SELECT f.* FROM projections.findings AS f WHERE f.log_id = %s AND f.generation = (SELECT generation"
        " FROM projections.live AS l WHERE l.projection = 'findings' AND l.log_id = f.log_id)"
        " ORDER BY f.index DESC LIMIT 100",
        parameters=(place.log_id,),
    )
    findings: Mapping[str, Mapping[str, object]] = {
        "newest": {},
        "middle": {"cursor": middle_of(answer, "/v1/findings")},
        "kind, often": {"kind": "email"},
        "kind, never": {"kind": "phone"},
        "confidence, never": {"confidence": 93},
        "state, often": {"state": "open"},
        "state, never": {"state": "confirmed"},
        "as of the middle": {"as_of": middle},
        "table, hot": {"table": f"{ALIAS}.{NAMESPACE}.{HOT}"},
        "table": {"table": f"{ALIAS}.{NAMESPACE}.{USUAL}"},
    }
    for what, parameters in findings.items():
        for caller in (OPERATOR, SOME) if what in {"newest", "kind, never", "table"} else (OPERATOR,):
            peer = plain_findings if what == "newest" and caller == OPERATOR else None
            yield Look(
                route="/v1/findings", what=what, path=_path("/v1/findings", parameters), caller=caller, peer=peer
            )
    yield Look(route="/v1/runs", what="start", path="/v1/runs")
    yield Look(route="/v1/runs", what="middle", path=_path("/v1/runs", {"cursor": middle_of(answer, "/v1/runs")}))
    yield Look(route="/v1/projections/{projection}", what="the graph", path="/v1/projections/graph")
    of_usual = answer(_path("/v1/findings", findings["table"]))["findings"][0]["index"]
    for caller in (OPERATOR, SOME):
        yield Look(route="/v1/findings/{finding}", what="of a table", path=f"/v1/findings/{of_usual}", caller=caller)
    for route in ALONE:
        yield Look(route=route, what="", path=route)


def _things(place: Place) -> Iterator[Look]:
    for name, what in ((HOT, "hot"), (USUAL, "usual")):
        key, under = f"table:{ALIAS}/{NAMESPACE}/{name}", f"{ALIAS}/{NAMESPACE}/{name}"
        of = "{alias}/{namespace}/{table}"
        plain_history = Peer(
            query="SELECT c.* FROM projections.commits AS c WHERE c.log_id = %s AND c.generation = (SELECT generation"
            " FROM projections.live AS l WHERE l.projection = 'commits' AND l.log_id = c.log_id) AND c.key = %s"
            " ORDER BY c.index DESC LIMIT 100",
            parameters=(place.log_id, key),
        )
        asked: Sequence[tuple[str, str, str]] = (
            (f"/v1/tables/{of}", "", f"/v1/tables/{under}"),
            (f"/v1/tables/{of}/history", "", f"/v1/tables/{under}/history"),
            (f"/v1/tables/{of}/history", ", as of the middle", f"/v1/tables/{under}/history?as_of={place.size // 2}"),
            (f"/v1/tables/{of}/findings", "", f"/v1/tables/{under}/findings"),
            (f"/v1/tables/{of}/lineage", "", f"/v1/tables/{under}/lineage"),
            (f"/v1/tables/{of}/lineage", ", 5 hops", f"/v1/tables/{under}/lineage?hops=5"),
            (f"/v1/tables/{of}/policies", "", f"/v1/tables/{under}/policies"),
            (f"/v1/tables/{of}/timeline", "", f"/v1/tables/{under}/timeline"),
            (f"/v1/tables/{of}/graph", "", f"/v1/tables/{under}/graph"),
            (f"/v1/tables/{of}/graph", ", runs that read it", f"/v1/tables/{under}/graph?label=READ_FROM&direction=in"),
            (f"/v1/tables/{of}/schema-history", "", f"/v1/tables/{under}/schema-history"),
            (f"/v1/impact/{of}", "", f"/v1/impact/{under}"),
            (f"/v1/impact/{of}", ", 5 hops", f"/v1/impact/{under}?hops=5"),
            (f"/v1/traverse/{{preset}}/{of}", ", impact", f"/v1/traverse/impact_analysis/{under}"),
            (f"/v1/traverse/{{preset}}/{of}", ", personal data", f"/v1/traverse/pii_propagation/{under}"),
            (
                f"/v1/traverse/{{preset}}/{of}",
                ", personal data, 5 hops",
                f"/v1/traverse/pii_propagation/{under}?hops=5",
            ),
            ("/v1/lineage/{dataset}", "", f"/v1/lineage/{ALIAS}.{NAMESPACE}.{name}"),
        )
        for route, how, path in asked:
            peer = plain_history if route.endswith("/history") and not how else None
            yield Look(route=route, what=f"{what}{how}", path=path, peer=peer)
            if name == USUAL and not route.endswith("/policies"):
                yield Look(route=route, what=f"{what}{how}", path=path, caller=SOME)
    for where, index in place.decisions.items():
        route = "/v1/decisions/{decision}"
        yield Look(route=route, what=where, path=f"/v1/decisions/{index}")
        yield Look(route=f"{route}/explanation", what=where, path=f"/v1/decisions/{index}/explanation")


def _pages(place: Place) -> Iterator[Look]:
    end = place.decisions["end"]
    table = "/console/tables/{alias}/{namespace}/{table}"
    operate = "/console/operate/{name}.{form}"
    hot, usual = (f"/console/tables/{ALIAS}/{NAMESPACE}/{name}" for name in (HOT, USUAL))
    target = f"{ALIAS}.{NAMESPACE}.{USUAL}"
    committing, as_some = {"operation": "table.commit", "target": target}, {"target": target, "roles": SOME}
    asked: Sequence[tuple[str, str, str]] = (
        ("/console/log", "newest", "/console/log"),
        ("/console/log", "type, never", "/console/log?type=policy.retired"),
        ("/console/log", "before a time", _path("/console/log", {"before": place.middle_time})),
        ("/console/log/{index}", "a decision", f"/console/log/{end}"),
        ("/console/log/{index}/proof", "a decision", f"/console/log/{end}/proof"),
        ("/console/log/{index}/check", "a decision", f"/console/log/{end}/check?seen={place.size // 2}"),
        ("/console/decisions/{decision}", "", f"/console/decisions/{end}"),
        ("/console/tables", "start", "/console/tables"),
        ("/console/tables", "name, never", "/console/tables?name=nobody"),
        (table, "hot", hot),
        (table, "hot, who may do what", f"{hot}?access=yes"),
        (table, "hot, columns of lineage", f"{hot}?columns=yes"),
        (table, "usual", usual),
        (f"{table}/commits.{{form}}", "JSON", f"{hot}/commits.json"),
        ("/console/findings", "newest", "/console/findings"),
        ("/console/findings", "open", "/console/findings?state=open"),
        ("/console/{name}.{form}", "tables, JSON", "/console/tables.json"),
        ("/console/policies/{policy_id}", "", "/console/policies/p1"),
        ("/console/policies/{policy_id}/edit", "", "/console/policies/p1/edit"),
        ("/console/policies/_drafts.{form}", "CSV", "/console/policies/_drafts.csv"),
        ("/console/restrictions/_drafts.{form}", "CSV", "/console/restrictions/_drafts.csv"),
        ("/console/access-rules/{rule_id}", "", f"/console/access-rules/{SOME}"),
        ("/console/access-rules/_who.{form}", "a commit, JSON", _path("/console/access-rules/_who.json", committing)),
        ("/console/access-rules/_what.{form}", "of a role, JSON", _path("/console/access-rules/_what.json", as_some)),
        ("/console/operate/projections/{projection}", "", "/console/operate/projections/graph"),
        ("/console/operate/projections/{projection}/replace", "", "/console/operate/projections/graph/replace"),
        (operate, "keys, JSON", "/console/operate/keys.json"),
        ("/console/operate/tenant.{form}", "JSON", "/console/operate/tenant.json"),
        ("/console/static/{name}", "a script", "/console/static/proof.mjs"),
    )
    for route, what, path in asked:
        yield Look(route=route, what=what, path=path)
    yield Look(route="/console/tables", what="start", path="/console/tables", caller=SOME)
    yield Look(route=table, what="usual", path=usual, caller=SOME)


def middle_of(answer: Answer, path: str) -> str:
    """Return the cursor that stands in the middle of a list."""
    cursors: list[str] = []
    found: dict[str, Any] = {"cursor": ""}
    while (cursor := found["cursor"]) is not None:
        found = answer(_path(path, {"limit": PAGE, **({"cursor": cursor} if cursor else {})}))
        if found["cursor"] is not None:
            cursors.append(found["cursor"])
    return cursors[len(cursors) // 2] if cursors else ""


def _path(path: str, parameters: Mapping[str, object]) -> str:
    given = {name: value for name, value in parameters.items() if value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def shown_path(path: str) -> str:
    """Return a path as the results have it: cursors are long, and of this tenant alone."""
    return re.sub(r"cursor=[^&]*", "cursor=…", path)
