# SPDX-License-Identifier: Apache-2.0
"""
Writes `docs/policy-variables.md`: what policies may name, from the code that describes it.

A test compares the page with the code, compiles each example, and judges it on a commit.

Run: `python -m testkit.policy_variables_page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gateway.policy.classifications import CLASSIFICATION_CHARACTERS_MAX, CLASSIFICATIONS_MAX
from gateway.policy.reference import (
    COMMIT,
    EXTENSIONS,
    FINDINGS,
    LINEAGE,
    MACROS,
    OF_TABLES,
    PRINCIPAL,
    REQUEST,
    STANDARD,
    TABLE,
    Described,
)
from projections.lineage.upstream import BEHIND_S_MAX, REACHED_MAX, UPSTREAM_TABLES_MAX
from projections.relational.current_findings import BEHIND_ENTRIES_MAX, FINDINGS_MAX
from testkit.environment import PROJECT

PAGE: Final = PROJECT / "docs" / "policy-variables.md"
HEAD: Final = """\
# What policies may name

A policy is an expression of CEL that is true for a commit that it allows. This page has every variable and function,
each with an example that compiles. `python -m testkit.policy_variables_page` writes it from
`gateway/policy/reference.py`.

- Every field is always there: what a table does not have is empty (`''`, `0`, `[]`, `{}`). The keys of maps are names
  that users choose: ask with `in` before you read one.
- A time is a text in the form of RFC 3339, always in UTC: `age(x)` and `timestamp(x)` read it. There is no clock: a
  policy that is judged again sees the same `request.time`.
- A field that is not on this page is refused when an expression is saved, with line, column and the nearest name, also
  behind `has`, in `x['field']` and of the elements of lists: `result.columns.all(c, !has(c.docs))`.
- Snapshot ids, and numbers beyond 53 bits, are texts. Numbers of two types are not compared: `size(x) == 1.0` and
  `findings.columns.all(f, f.confidence < 0.9)` are refused when they are saved.
- What `fields`, `ref_list`, `snapshots`, `statistics`, the lists of changes, `groups`, `attributes`, `time` and
  `address` hold is looked up only where a policy in force names it, and `findings` and `lineage` only for commits that
  such a policy is for. A policy that names `request.time` or `age` is judged anew each time; others are not while what
  they read stays the same.
- An error (a key that is missing, an element outside of a list) lets nothing pass: the commit is answered with 503.
- An expression has at most 16 KiB (a quote, a backslash or a line end counts as two bytes), 2,048 names, values and
  signs, and 32 brackets that are open at once.
"""
OF_BOTH: Final = """\
The table or view before the commit, and as it would be after it: each row holds for both. A created table has an empty
`table`, a dropped one an empty `result`, and a namespace has neither.
"""
OF_DETECTION: Final = f"""\
What detection has found in the table, under whatever name it had then: `findings` is found by the table's uuid. It is
true as of the log: the read model `findings`, and the entries that it does not have yet. If that read model is more
than {BEHIND_ENTRIES_MAX:,} entries behind the log, or a table has more than {FINDINGS_MAX:,} findings, a policy that
reads `findings` cannot be judged: the commit is answered with 503. A new table has no findings, and neither have views
and namespaces. Detection scans what was committed: a commit is never judged by what itself adds.
"""
OF_LINEAGE: Final = f"""\
What the table was made from, as jobs have reported it (OpenLineage), and what detection knows of that. Lineage knows
tables by name: it counts under each name that the table has, or had and no other table has had since. It is as the read
model `lineage` has it, which may be a little behind the log: `lineage.as_of` says how far it is. The commit is answered
with 503 if it is more than {BEHIND_ENTRIES_MAX:,} entries behind, if it misses what was reported more than
{BEHIND_S_MAX:g} s ago, if there are more than {UPSTREAM_TABLES_MAX} tables, or if more than {REACHED_MAX:,} tables and
data sets have to be looked at. The record of the decision has what was known.

How those tables are classified (`lineage.classified`) is what their metadata files say now, which are read for policies
that name it. It is known of tables of built-in catalogs. It is not known (`known` is false) of a table of a foreign
catalog, of one that is gone or whose file cannot be read, and of one with more than {CLASSIFICATIONS_MAX} different
classifications, or with one of over {CLASSIFICATION_CHARACTERS_MAX} characters. A policy that has to be sure asks for
`known`.

There is no variable `contract`, because there are no contracts yet.
"""
OPERATORS: Final = """\
Operators are those of CEL: `&&`, `!`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `+`, `-`, `*`, `/`, `%`, `? :`, `x.f`,
`x[i]`, and *or*, which is written `||`. *And* and *or* absorb an error if the other side settles the matter.
"""
BOUNDS: Final = """\
These are of cel-go's extension libraries. A text that they give has at most 1,048,576 characters, a list at most
100,000 elements. Places in a text count characters from 0.
"""


def page() -> str:
    """
    Return the page as it should be.
    """
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield HEAD
    yield "## `table` and `result`\n"
    yield OF_BOTH
    yield from _table("field", TABLE, prefix="")
    for variable, fields in (("commit", COMMIT), ("principal", PRINCIPAL), ("request", REQUEST)):
        yield f"## `{variable}`\n"
        yield from _table("field", fields, prefix=f"{variable}.")
    yield "## `findings`\n"
    yield OF_DETECTION
    yield from _table("field", FINDINGS, prefix="findings.")
    yield "## `lineage`\n"
    yield OF_LINEAGE
    yield from _table("field", LINEAGE, prefix="lineage.")
    yield "## Functions of tables and times\n"
    yield from _table("function", OF_TABLES)
    yield "## Functions of CEL\n"
    yield OPERATORS
    yield from _table("function", STANDARD)
    yield "## Macros\n"
    yield from _table("macro", MACROS)
    yield "## Functions of extensions\n"
    yield BOUNDS
    yield from _table("function", EXTENSIONS)


def _table(what: str, rows: Sequence[Described], *, prefix: str | None = None) -> Iterator[str]:
    """Yield the lines of a table; a function's type says its name, too."""
    if prefix is None:
        yield f"| {what} | meaning | example |"
        yield "|---|---|---|"
    else:
        yield f"| {what} | type | meaning | example |"
        yield "|---|---|---|---|"
    for row in rows:
        first = f"`{row.type}`" if prefix is None else f"`{prefix}{row.name}` | {row.type}"
        yield f"| {first} | {row.words} | `{row.example.replace('|', chr(92) + '|')}` |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
