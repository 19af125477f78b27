# SPDX-License-Identifier: Apache-2.0
"""
The openCypher of agents: what it has is written anew from its tokens, and everything else is refused at its place.
"""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agents.cypher import (
    DEPTH_MAX,
    HOPS_MAX,
    ITEMS_MAX,
    MATCH_HOPS_MAX,
    ROWS_MAX,
    SKIP_MAX,
    TEXT_LENGTH_MAX,
    TOKENS_MAX,
    Written,
    write_query,
)
from gateway.agents.graph_query import PARAMETERS_MAX, TIMEOUT_S
from gateway.errors import BadRequestError
from testkit.environment import PROJECT
from testkit.system.documents import blocks_of

TAKEN = {
    "MATCH (t:Table) RETURN t.key": "MATCH (v_t:Table) RETURN v_t.key LIMIT 101",
    "match (t) where t.key = $key return t.key as k limit 3": (
        "MATCH (v_t) WHERE v_t.key = $p_key RETURN v_t.key AS v_k LIMIT 3"
    ),
    "MATCH (t:Table)-[:LINEAGE_OF]->(u)<-[r:READ_FROM|PRODUCED]-(x:Run), (y)-[]-(z) RETURN label(u), count(*)": (
        "MATCH (v_t:Table)-[:LINEAGE_OF]->(v_u)<-[v_r:READ_FROM|PRODUCED]-(v_x:Run), (v_y)-[]-(v_z) "
        "RETURN label(v_u), count(*) LIMIT 101"
    ),
    "MATCH (a)--(b)-->(c)<--(d) RETURN a.key": "MATCH (v_a)-[]-(v_b)-[]->(v_c)<-[]-(v_d) RETURN v_a.key LIMIT 101",
    "MATCH (t:Table) WHERE NOT t.a >= 1 AND (t.b <> $x OR t.c IS NOT NULL) OR t.d IS NULL RETURN t.e": (
        "MATCH (v_t:Table) WHERE NOT v_t.a >= 1 AND (v_t.b <> $p_x OR v_t.c IS NOT NULL) OR v_t.d IS NULL "
        "RETURN v_t.e LIMIT 101"
    ),
    "MATCH (t) WHERE NOT (t.a = 1 OR NOT (((t.b < 2))) AND (t.c = 3 AND t.d = 4)) RETURN t.e": (
        "MATCH (v_t) WHERE NOT (v_t.a = 1 OR NOT v_t.b < 2 AND v_t.c = 3 AND v_t.d = 4) RETURN v_t.e LIMIT 101"
    ),
    "MATCH (t:Table)-[:HAS_SNAPSHOT]->(s) WITH t, max(s.index) AS last, count(DISTINCT s.key) AS n ORDER BY last DESC "
    "SKIP 1 LIMIT $n WHERE n > 2 MATCH (t)-[:HAS_COLUMN]->(c) WITH DISTINCT t.key AS k, n "
    "RETURN DISTINCT k, n ORDER BY k": (
        "MATCH (v_t:Table)-[:HAS_SNAPSHOT]->(v_s) WITH v_t, max(v_s.index) AS v_last, count(DISTINCT v_s.key) AS v_n "
        "ORDER BY v_last DESC SKIP 1 LIMIT $p_n WHERE v_n > 2 MATCH (v_t)-[:HAS_COLUMN]->(v_c) "
        "WITH DISTINCT v_t.key AS v_k, v_n AS v_n RETURN DISTINCT v_k, v_n ORDER BY v_k LIMIT 101"
    ),
}


@pytest.mark.parametrize("query", TAKEN)
def test_a_query_is_written_anew_with_names_that_are_no_words_of_another_language(query: str) -> None:
    assert write_query(query).text == TAKEN[query]


def test_columns_and_parameters_are_told() -> None:
    query = "MATCH (t:Table)-[]-(u) WHERE t.a = $x RETURN t.key, count( * ) AS n SKIP $s LIMIT $x"
    written = write_query(query)
    assert (written.columns, set(written.parameters), written.hops) == (("t.key", "n"), {"x", "s"}, 1)
    assert written.counts == {"s": SKIP_MAX, "x": ROWS_MAX}


ATTACKS = [
    # Out of the quotes that hold the query, or behind a comment.
    "MATCH (t) RETURN t.key $lakeproof$) AS (a agtype); DROP TABLE x --",
    "MATCH (t) RETURN t.key $$",
    "MATCH (t) RETURN t.key $$ , $$",
    "MATCH (t) WHERE t.key = $a$b RETURN t.key",
    "MATCH (t) /* RETURN */ RETURN t.key",
    "MATCH (t) // x\n RETURN t.key",
    "MATCH (t) RETURN t.key -- x",
    "MATCH (t) RETURN t.key; MATCH (u) RETURN u.key",
    # Quotes and escapes.
    "MATCH (t) WHERE t.key = 'x' RETURN t.key",
    'MATCH (t) WHERE t.key = "x" RETURN t.key',
    "MATCH (`t`) RETURN `t`.key",
    "MATCH (t) WHERE t.key = E'\\x27' RETURN t.key",
    "MATCH (t) RETURN t.\\u006bey",
    # What looks like something else, and control characters.
    "MATCH (t\u0443) RETURN t\u0443.key",
    "MATCH (t) RETURN t\uff0ekey",
    "MATCH (t)\u00a0RETURN t.key",
    "MATCH (t)\u2028RETURN t.key",
    "MATCH (t) RETURN t.key\x00",
    "\ufeffMATCH (t) RETURN t.key",
    "M\u0410TCH (t) RETURN t.key",
    # Other clauses.
    "CREATE (t:Table) RETURN t.key",
    "MATCH (t) SET t.key = 1 RETURN t.key",
    "MATCH (t) DELETE t",
    "MATCH (t) DETACH DELETE t",
    "MATCH (t) REMOVE t.key RETURN t.key",
    "MERGE (t:Table) RETURN t.key",
    "CALL pg_sleep(10)",
    "MATCH (t) CALL db.labels() YIELD x RETURN x",
    "LOAD CSV FROM $x AS row RETURN row",
    "OPTIONAL MATCH (t) RETURN t.key",
    "UNWIND $x AS y RETURN y",
    "MATCH (t) RETURN t.key UNION MATCH (u) RETURN u.key",
    "MATCH (t) FOREACH (x IN $y | CREATE (z)) RETURN t.key",
    "EXPLAIN MATCH (t) RETURN t.key",
    "USE g_1 MATCH (t) RETURN t.key",
    # Paths of any length, and functions.
    "MATCH (a)-[*]->(b) RETURN a.key",
    "MATCH (a)-[:LINEAGE_OF*1..5]->(b) RETURN a.key",
    "MATCH p = (a)-[]->(b) RETURN p",
    "MATCH p = shortestPath((a)-[]->(b)) RETURN p",
    "MATCH (t) RETURN pg_sleep(10)",
    "MATCH (t) RETURN pg_catalog.pg_sleep(10)",
    "MATCH (t) RETURN t.pg_sleep(10)",
    "MATCH (t) RETURN ag_catalog.load_labels_from_file(1)",
    "MATCH (t) RETURN properties(t)",
    "MATCH (t) RETURN keys(t)",
    "MATCH (t) RETURN collect(t.key)",
    "MATCH (t) RETURN count(count(t.key))",
    "MATCH (t) RETURN label(label(t))",
    "MATCH (t) WHERE exists((t)-[]->()) RETURN t.key",
    "MATCH (t) WHERE (t)-[]->() RETURN t.key",
    "MATCH (t) WHERE t.key =~ $x RETURN t.key",
    "MATCH (t) WHERE t.key STARTS WITH $x RETURN t.key",
    "MATCH (t) WHERE t.key IN $x RETURN t.key",
    "MATCH (t) RETURN t.key + 1",
    "MATCH (t) RETURN [x IN t.levels | x]",
    "MATCH (t) RETURN CASE WHEN t.key = 1 THEN 2 END",
    "MATCH (t) RETURN t.key::text",
    "MATCH (t) RETURN t['key']",
    "MATCH (t {key: $key}) RETURN t.key",
    "MATCH (t) RETURN t {.*}",
    "MATCH (t) RETURN *",
    "MATCH (t) RETURN t",
    "MATCH (t)-[r]->(u) RETURN r",
    "MATCH (t) WHERE t = $x RETURN t.key",
    "MATCH (t) RETURN count(t)",
    # Names that are nothing.
    "MATCH (t:Tables) RETURN t.key",
    "MATCH (t:table) RETURN t.key",
    "MATCH (t:_ag_label_vertex) RETURN t.key",
    "MATCH (t)-[:Table]->(u) RETURN t.key",
    "MATCH (t) RETURN u.key",
    "MATCH (t) RETURN key",
    "MATCH (t) WITH t.key AS k RETURN t.key",
    "MATCH (t)-[r]->(u) WITH t RETURN r.x",
    "MATCH (t)-[t]->(u) RETURN u.key",
    "MATCH (match) RETURN match.key",
    "MATCH (t) RETURN t.null",
    "MATCH (t) RETURN t.key, t.key",
    "RETURN 1",
    "MATCH (t)",
    "MATCH (a)<-[]->(b) RETURN a.key",
    "MATCH (t) RETURN t.key LIMIT -1",
    "MATCH (t) RETURN t.key LIMIT 1.5",
    "MATCH (t) RETURN t.key LIMIT 1 + 1",
    "MATCH (t) RETURN t.key LIMIT t.x",
    "MATCH (t) RETURN 0x10",
    "MATCH (t) RETURN 1e9",
    "MATCH (t) RETURN 99999999999999999999",
    "MATCH (t) RETURN $1",
    "",
    "   ",
]


@pytest.mark.parametrize("query", ATTACKS)
def test_everything_else_is_refused_at_its_place(query: str) -> None:
    with pytest.raises(BadRequestError, match=r"query: line \d+, column \d+: expected .+, found .+") as error:
        write_query(query)
    assert str(error.value).isprintable()


def test_a_refusal_says_what_may_stand_there_and_where() -> None:
    for query, words in (
        ("MATCH (t)\n  CREATE (u) RETURN t.key", "line 2, column 3: expected MATCH, WITH or RETURN"),
        ("MATCH (a)-[*]->(b) RETURN a.key", "line 1, column 12: expected ] (each hop is written out"),
        ("MATCH (t:Tabel) RETURN t.key", "column 10: expected one of Catalog, Namespace, Table,"),
        ("MATCH (t) RETURN keys(t)", "column 18: expected one of the functions count, label, max"),
        ("MATCH (t) RETURN t", "expected a property of t: t.name, found the end"),
        ("MATCH (t) WHERE t.key = 'x' RETURN t.key", "column 25: expected a name, a whole number, $parameter"),
    ):
        with pytest.raises(BadRequestError) as error:
            write_query(query)
        assert words in str(error.value)


def hops(count: int) -> str:
    return "MATCH (a)" + "-[]->()" * count + " RETURN a.key"


AT_BOUNDS = {
    "hops": (hops(MATCH_HOPS_MAX), hops(MATCH_HOPS_MAX + 1)),
    "hops of several patterns": (
        "MATCH (a)-[]-(b)-[]-(c), (d)-[]-(e)-[]-(f) MATCH (c)-[]-(g) RETURN a.key",
        "MATCH (a)-[]-(b)-[]-(c), (d)-[]-(e)-[]-(f) MATCH (c)-[]-(g)-[]-(h) RETURN a.key",
    ),
    "text": (
        "MATCH (a) RETURN a.key".ljust(TEXT_LENGTH_MAX),
        "MATCH (a) RETURN a.key".ljust(TEXT_LENGTH_MAX + 1),
    ),
    "tokens": (
        "MATCH (a) WHERE a.b = 1" + " OR a.b = 1" * 64 + " RETURN a.key LIMIT 1",
        "MATCH (a) WHERE a.b = 1" + " OR a.b = 1" * 65 + " RETURN a.key LIMIT 1",
    ),
    "nesting": (
        "MATCH (a) WHERE " + "(" * DEPTH_MAX + "a.b = 1" + ")" * DEPTH_MAX + " RETURN a.key",
        "MATCH (a) WHERE " + "(" * (DEPTH_MAX + 1) + "a.b = 1" + ")" * (DEPTH_MAX + 1) + " RETURN a.key",
    ),
    "columns": (
        "MATCH (a) RETURN " + ", ".join(f"a.b{n}" for n in range(ITEMS_MAX)),
        "MATCH (a) RETURN " + ", ".join(f"a.b{n}" for n in range(ITEMS_MAX + 1)),
    ),
    "rows": (f"MATCH (a) RETURN a.b LIMIT {ROWS_MAX}", f"MATCH (a) RETURN a.b LIMIT {ROWS_MAX + 1}"),
    "skipped": (f"MATCH (a) RETURN a.b SKIP {SKIP_MAX}", f"MATCH (a) RETURN a.b SKIP {SKIP_MAX + 1}"),
    "names": (f"MATCH ({'a' * 63}) RETURN {'a' * 63}.b", f"MATCH ({'a' * 64}) RETURN {'a' * 64}.b"),
}


@pytest.mark.parametrize("bound", AT_BOUNDS)
def test_a_query_is_taken_at_a_bound_and_refused_beyond_it(bound: str) -> None:
    taken, refused = AT_BOUNDS[bound]
    write_query(taken)
    with pytest.raises(BadRequestError):
        write_query(refused)


def test_the_bound_of_tokens_is_that_of_the_code() -> None:
    taken, refused = (re.findall(r"\w+|\S", query) for query in AT_BOUNDS["tokens"])
    assert len(taken) <= TOKENS_MAX < len(refused)


def test_the_documented_query_is_taken_and_the_documented_bounds_are_those_of_the_code() -> None:
    ((_, query),) = blocks_of("docs/agents.md", "cypher")
    assert write_query(query).columns == ("source", "w.index", "w.operation")
    page = " ".join((PROJECT / "docs" / "agents.md").read_text(encoding="utf-8").split())
    hops = f"{HOPS_MAX} relationships in a query, {MATCH_HOPS_MAX} of them in one `MATCH`"
    others = f"{ITEMS_MAX} columns, {PARAMETERS_MAX} parameters, {ROWS_MAX} rows, {TIMEOUT_S} seconds"
    assert f"{TEXT_LENGTH_MAX:,} characters, {hops}, {others}." in page


_WORDS = st.sampled_from(
    [
        *("MATCH", "WHERE", "RETURN", "WITH", "ORDER BY", "LIMIT", "SKIP", "DISTINCT", "AS", "AND", "OR", "NOT", "IS"),
        *("(t)", "(t:Table)", "(", ")", "-[]->", "-", "[", "]", ">", "<", "t", "t.key", "$x", "=", "1", ",", ".", "*"),
        *("count(*)", "label(t)", "NULL", "'", '"', "$", "$$", "--", "/*", ";", "{", "}", "\\", "\x00", "\u0430"),
    ]
)
_SAFE = re.compile(r"[A-Za-z0-9_ ()\[\]:,.=<>|*$-]*")


@given(st.lists(_WORDS, max_size=30).map(" ".join) | st.text(max_size=100))
def test_whatever_is_written_has_only_characters_that_end_no_quote_and_begin_no_comment(text: str) -> None:
    written: Written | None = None
    with suppress(BadRequestError):
        written = write_query(text)
    if written is not None:
        assert _SAFE.fullmatch(written.text)
        assert "--" not in written.text
        assert not re.search(r"\$(?!p_[A-Za-z_])", written.text)
        assert written.text.count("LIMIT") >= 1
