"""
The functions of Apache AGE that our queries call: all that the roles of an installation may execute in `ag_catalog`.

AGE lets PUBLIC execute everything, and some of its functions read any graph without checking a privilege, or crash the
server on NULL. `lakeproof/postgres/age_rights.py` revokes everything from PUBLIC and grants these lists by exact
signature: an overload, or a function that a later version adds, is granted to nobody.

PostgreSQL checks EXECUTE where a function is called: by name, by an operator, a cast or an aggregate, and to compare
values in GROUP BY, DISTINCT and hash joins. It does not check when a type reads or shows a value, when an index
compares, or for `cypher`, which AGE replaces by its query before planning: that query can call what its role may call,
and no more. The tests check both sides: all of our queries work with these lists, and without any one function of a
list one of them fails.
"""

from __future__ import annotations

from typing import Final

READER_FUNCTIONS: Final = (
    "agtype_access_operator(agtype[])",  # v.key, in openCypher and in the traversals' SQL
    "agtype_object_field_text(agtype,text)",  # the same as text, of thousands of vertices, in half the time
    "agtype_eq(agtype,agtype)",  # WHERE v.key = $key
    "agtype_ge(agtype,agtype)",  # >= in openCypher of agents, and NOT <, which PostgreSQL plans as that
    "agtype_gt(agtype,agtype)",  # v.to_index > w.as_of
    "agtype_le(agtype,agtype)",  # v.from_index <= w.as_of
    "agtype_lt(agtype,agtype)",  # w.index < $before
    "agtype_ne(agtype,agtype)",  # <> in openCypher of agents, and NOT =
    "graphid_eq(graphid,graphid)",  # joins of vertices with the ends of edges
    "_ag_enforce_edge_uniqueness2(graphid,graphid)",  # a pattern of two edges, such as (t)-->(c)-->(f)
    "_ag_enforce_edge_uniqueness3(graphid,graphid,graphid)",  # of three, in openCypher of agents
    "_ag_enforce_edge_uniqueness4(graphid,graphid,graphid,graphid)",  # of four
    "_label_name(oid,graphid)",  # label(v)
    'agtype_build_list("any")',  # [label(d), d.id, d.version]
    'age_collect("any")',  # collect(…)
    'age_max("any")',  # max(…) in openCypher of agents
    "int8_to_agtype(bigint)",  # what count(…) has counted, there
    'agtype_to_int8("any")',  # LIMIT $limit
    "agtype_to_text(agtype)",  # keys as text, in the traversals' SQL
)
"""
What a tenant's reader calls: `sql/graph.cypher`, what `sql/graph.sql` and `sql/neighbours.sql` read, and what agents
write (`gateway/agents/cypher.py`).

Only `_label_name` takes a graph, by its oid, and it tells a label's name: those are the same for every tenant.
"""

PROJECTOR_FUNCTIONS: Final = (
    "create_graph(name)",
    "create_vlabel(cstring,cstring)",
    "create_elabel(cstring,cstring)",
    "drop_graph(name,boolean)",
    "age_invalidate_graph_cache()",  # the trigger that AGE puts on each label's table
    "_graphid(integer,bigint)",  # the default of a label's column `id`
    "_label_id(name,name)",  # the same
    "agtype_access_operator(agtype[])",  # the indices over natural keys
    "agtype_concat(agtype,agtype)",  # properties over those that are there
    "agtype_eq(agtype,agtype)",
    "agtype_ne(agtype,agtype)",  # a row that would not change is not written
    "graphid_eq(graphid,graphid)",
    'agtype_to_int8("any")',
    "agtype_to_text(agtype)",
)
"""What the projector calls: `sql/graph.sql`."""

PROJECTOR_TYPES: Final = ("agtype", "graphid")
"""Types of the columns in a label's table. Without this right nobody else has tables of these types."""
