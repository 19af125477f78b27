# SPDX-License-Identifier: Apache-2.0
"""
Writes `docs/policy-language.md`: how the language of policies relates to CEL, counted over the corpus of expressions.

Nothing is evaluated here. A test compares the page with the corpus, and other tests compare the corpus with what is
evaluated, so none of them can change alone.

Run: `python -m testkit.policy_language_page`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from textwrap import fill
from typing import Final

from testkit.environment import PROJECT
from testkit.gateway.cel_corpus import CORPUS, NOT_CEL, OPTIONAL, Entry, Group

PAGE: Final = PROJECT / "docs" / "policy-language.md"
WIDTH: Final = 120
EXAMPLES_MAX: Final = 3
"""Of expressions for one reason."""
DEFINITION: Final = "https://github.com/google/cel-spec/blob/master/doc/langdef.md"


def page(corpus: Sequence[Group]) -> str:
    """Return the page for a corpus."""
    return "\n".join([*_head(corpus), "", *_differences(corpus), "", *_numbers(corpus), ""])


def _head(corpus: Sequence[Group]) -> Iterator[str]:
    entries = _entries(corpus)
    yield "# The language of policies and access rules"
    yield ""
    yield from _paragraph(
        f"Expressions are written in the Common Expression Language, [CEL]({DEFINITION}), with its operators, its "
        "macros (`has`, `all`, `exists`, `exists_one`, `map`, `filter`) and its standard functions. "
        "[policy-variables.md](policy-variables.md) lists them, with the extensions that there are. A corpus of "
        f"{len(entries):,} expressions says for each what the language definition gives, and tests compare it with "
        "what is evaluated here: by the functions that expressions are compiled to, by an interpreter that is written "
        "apart from them, "
        "and by the processes that judge commits."
    )
    yield ""
    yield from _paragraph(
        "An expression that has no value in CEL has none here: it is an error, and a commit that depends on it is not "
        "decided. What can be seen before is refused when the expression is saved, with line and column: what is not "
        "CEL, names and functions that do not exist, literals out of range, patterns that are not RE2's, and "
        "programs that cannot end in true or false. So is everything that is nested more deeply than the limit."
    )


def _differences(corpus: Sequence[Group]) -> Iterator[str]:
    reasons: dict[str, list[Entry]] = {}
    for entry in _entries(corpus):
        if entry.differs:
            reasons.setdefault(entry.why, []).append(entry)
    yield "## Where we differ from CEL"
    yield ""
    yield from _paragraph(
        f"{sum(map(len, reasons.values()))} of the expressions give something else here, for {len(reasons)} reasons. "
        "None gives another value of the same type: they are refused, or an error, or additions."
    )
    yield ""
    yield "| in CEL | here | why |"
    yield "|---|---|---|"
    for why, entries in reasons.items():
        first = sorted(entries, key=lambda entry: len(entry.expression))[:EXAMPLES_MAX]
        given = "; ".join(f"{_code(entry.expression)} is {_code(entry.language)}" for entry in first)
        here = ", ".join(_code(entry.ours) for entry in first) if first[0].ours else "refused when saved"
        yield f"| {given} | {here} | {why} |"


def _numbers(corpus: Sequence[Group]) -> Iterator[str]:
    entries = _entries(corpus)
    others = sum(bool(entry.celpy) for entry in entries)
    yield "## The corpus"
    yield ""
    yield from _paragraph(
        f"cel-python {version('cel-python')}, whose grammar and times are used here, gives something else than the "
        f"definition on {others} of the expressions. Each of these results is recorded in "
        "`testkit/gateway/cel_corpus.py`, so that an upgrade which changes one is noticed. *Refused* counts what has "
        "no value in CEL and is refused when it is saved."
    )
    yield ""
    yield "| expressions about | section of the definition | number | cel-python differs | refused | we differ |"
    yield "|---|---|---:|---:|---:|---:|"
    for group in corpus:
        yield f"| {group.title} | {group.section} | {' | '.join(_counts(group.entries))} |"
    yield f"| all | | {' | '.join(_counts(entries))} |"


def _counts(entries: Sequence[Entry]) -> Iterator[str]:
    yield f"{len(entries):,}"
    yield str(sum(bool(entry.celpy) for entry in entries))
    yield str(sum(entry.refused is not None and not entry.differs for entry in entries))
    yield str(sum(entry.differs for entry in entries))


def _entries(corpus: Sequence[Group]) -> list[Entry]:
    return [entry for group in corpus for entry in group.entries]


def _paragraph(text: str) -> list[str]:
    return fill(text, width=WIDTH, break_long_words=False, break_on_hyphens=False).splitlines()


def _code(text: str) -> str:
    """Return a span of code that can stand in a table."""
    if text in {NOT_CEL, OPTIONAL}:
        return text
    ticks = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}".replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(page(CORPUS), encoding="utf-8")
