# SPDX-License-Identifier: Apache-2.0
"""
The part of openCypher that agents may write. Pure: a text in, another text out that has only what is known here.

The text that is run is made of the tokens that were recognised, never of the text that came: comments, quotes, escapes
and characters beyond ASCII are no tokens, names of labels and functions are those of a list, and variables, aliases and
parameters get a prefix, so that none is a word of another language. Values come as parameters alone. Everything else is
refused, with its place and what may stand there.

A query is clauses `MATCH … WHERE …` and `WITH …`, and one `RETURN` at the end, each with `ORDER BY`, `SKIP` and `LIMIT`
where openCypher has them. Relationships are counted over the whole query: each is a hop, and a second MATCH takes the
fifth. There is no `collect`: one row would be as long as the graph is large.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from gateway.errors import BadRequestError
from projections.graph.labels import EdgeLabel, VertexLabel

TEXT_LENGTH_MAX: Final = 4_000
TOKENS_MAX: Final = 400
HOPS_MAX: Final = 5
MATCH_HOPS_MAX: Final = 4
"""In one MATCH: for more, AGE tells edges from each other by a function that takes anything."""
DEPTH_MAX: Final = 10
"""Of parentheses and NOT in a condition."""
ITEMS_MAX: Final = 20
"""Columns of an answer, names that a WITH hands on, keys of an ORDER BY."""
ROWS_MAX: Final = 100
SKIP_MAX: Final = 10_000
FUNCTIONS: Final = ("count", "label", "max")
_WORDS: Final = frozenset(
    {
        *("MATCH", "WHERE", "WITH", "RETURN", "ORDER", "BY", "SKIP", "LIMIT"),
        *("AS", "DISTINCT", "ASC", "DESC", "AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE"),
    }
)
"""Words of the language: nothing is called so, in whatever case."""
_TOKEN: Final = re.compile(
    r"[ \t\r\n]+|(?P<name>[A-Za-z_][A-Za-z0-9_]{0,62})(?![A-Za-z0-9_])|(?P<number>0|[1-9][0-9]{0,14})(?![A-Za-z0-9_])"
    r"|(?P<mark><=|>=|<>|[()\[\]:,.=<>|*$-])"
)
_COMPARED: Final = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Written:
    """
    A query to run: `text`, with the parameters `p_<name>`, and the names of its columns.

    `counts` is what a parameter of SKIP or LIMIT may be at most; `hops` are the query's relationships.
    """

    text: str
    columns: tuple[str, ...]
    parameters: frozenset[str]
    counts: Mapping[str, int]
    hops: int


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "name" else ""


def write_query(text: str) -> Written:
    """
    Return what is run for a query.

    Raises:
        BadRequestError: at the place where it is none; says what may stand there.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise BadRequestError(f"expected at most {TEXT_LENGTH_MAX} characters, found {len(text)}", field="query")
    return _Query(text, _tokens(text)).written()


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            allowed = "a name, a whole number, $parameter or one of ( ) [ ] : , . = <> < <= > >= | - *"
            what = (
                "values go into parameters" if text[at] in "'\"`" else "the query has no other characters or comments"
            )
            raise _refused(text, at, f"{allowed}: {what}", repr(text[at]))
        if found.lastgroup is not None:
            tokens.append(_Token(found.lastgroup, found[0], at))
            if len(tokens) > TOKENS_MAX:
                raise _refused(text, at, f"at most {TOKENS_MAX} tokens", "more")
        at = found.end()
    return [*tokens, _Token("end", "", len(text))]


def _refused(text: str, at: int, expected: str, found: str) -> BadRequestError:
    line, column = text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1
    return BadRequestError(f"line {line}, column {column}: expected {expected}, found {found:.80}", field="query")


@dataclass(frozen=True, slots=True)
class _Condition:
    """
    A condition, and how strongly its operator binds: OR (0), AND (1), NOT (2), a comparison (3).

    AGE takes a comparison in parentheses for a value, which a tenant's reader may not turn into a condition. So there
    are none but those that it needs.
    """

    text: str
    binds: int

    def within(self, binds: int) -> str:
        """Return it as a part of a condition whose operator binds so strongly."""
        return self.text if self.binds >= binds else f"({self.text})"


@dataclass(slots=True)
class _Query:
    """Reads one query from left to right and writes it anew."""

    source: str
    tokens: list[_Token]
    place: int = 0
    vertices: set[str] = field(default_factory=set)
    """Variables of vertices that are bound here."""
    edges: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    """Aliases that are bound here."""
    parameters: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    """What a parameter of SKIP or LIMIT may be at most."""
    hops: int = 0
    made: list[str] = field(default_factory=list)

    def written(self) -> Written:
        """Return the query as it is run."""
        columns: tuple[str, ...] = ()
        while not columns:
            if self._take("MATCH"):
                self._match()
            elif self._take("WITH"):
                self._with()
            elif self._take("RETURN"):
                if not (self.vertices or self.values):
                    self._refuse("a MATCH before it", at=self.place - 1)
                columns = self._return()
            else:
                self._refuse("MATCH, WITH or RETURN (no other clause may be used)")
        if self._now.kind != "end":
            self._refuse("the end of the query")
        return Written(
            text=" ".join(self.made),
            columns=columns,
            parameters=frozenset(self.parameters),
            counts=self.counts,
            hops=self.hops,
        )

    def _match(self) -> None:
        before = self.hops
        patterns = [self._pattern(before)]
        while self._take(","):
            patterns.append(self._pattern(before))
        self.made.append(f"MATCH {', '.join(patterns)}")
        self._where()

    def _where(self) -> None:
        if self._take("WHERE"):
            self.made.append(f"WHERE {self._condition(0).text}")

    def _pattern(self, hops_before: int) -> str:
        made = self._vertex()
        while self._now.text in {"-", "<"}:
            self.hops += 1
            if self.hops > HOPS_MAX:
                self._refuse(f"at most {HOPS_MAX} relationships in the whole query")
            if self.hops - hops_before > MATCH_HOPS_MAX:
                self._refuse(f"at most {MATCH_HOPS_MAX} relationships in one MATCH")
            made += self._edge() + self._vertex()
        return made

    def _vertex(self) -> str:
        self._expect("(", "a vertex: ( with a variable, a colon and a label, or none of them")
        variable = self._bound(self.vertices, self.edges) if self._now.kind == "name" else ""
        label = f":{self._label(VertexLabel)}" if self._take(":") else ""
        self._expect(")", ") (properties are compared in WHERE)")
        return f"({variable}{label})"

    def _edge(self) -> str:
        is_back = self._take("<")
        self._expect("-", "- after <")
        inner = ""
        if self._take("["):
            variable = self._bound(self.edges, self.vertices) if self._now.kind == "name" else ""
            labels: list[str] = []
            if self._take(":"):
                labels.append(self._label(EdgeLabel))
                while self._take("|"):
                    self._take(":")
                    labels.append(self._label(EdgeLabel))
            self._expect("]", "] (each hop is written out: paths of variable length are not taken)")
            inner = variable + (f":{'|'.join(labels)}" if labels else "")
        self._expect("-", "- behind ]")
        is_on = self._take(">")
        if is_back and is_on:
            self._refuse("an arrow in one direction", at=self.place - 1)
        return f"{'<' if is_back else ''}-[{inner}]-{'>' if is_on else ''}"

    def _label(self, kind: type[VertexLabel | EdgeLabel]) -> str:
        known = [each.value for each in kind]
        if self._now.text not in known:
            self._refuse(f"one of {', '.join(known)}")
        return self._next().text

    def _bound(self, own: set[str], others: set[str]) -> str:
        token = self._name("a variable")
        if token.text in others or token.text in self.values:
            self._refuse(f"a name that {token.text} is not given to already", at=self.place - 1)
        own.add(token.text)
        return f"v_{token.text}"

    def _with(self) -> None:
        is_distinct = self._take("DISTINCT")
        items: list[str] = []
        vertices: set[str] = set()
        values: set[str] = set()
        while True:
            start = self._now
            if start.text in self.vertices and self._peek(1).text != ".":
                self._next()
                vertices.add(start.text)
                items.append(f"v_{start.text}")
            else:
                value = self._value()
                is_alias = start.text in self.values and self.tokens[self.place - 1] is start
                if is_alias and self._now.word != "AS":
                    name = start.text
                else:
                    self._expect("AS", "AS and a name for what the WITH hands on")
                    name = self._name("a name").text
                values.add(name)
                items.append(f"{value} AS v_{name}")
            if len(items) > ITEMS_MAX:
                self._refuse(f"at most {ITEMS_MAX} names")
            if not self._take(","):
                break
        if len({*vertices, *values}) != len(items):
            self._refuse("each name once", at=self.place - 1)
        self.vertices, self.edges, self.values = vertices, set(), values
        self.made.append(f"WITH {'DISTINCT ' if is_distinct else ''}{', '.join(items)}")
        self._order()
        self._cut("SKIP", SKIP_MAX)
        self._cut("LIMIT", SKIP_MAX)
        self._where()

    def _return(self) -> tuple[str, ...]:
        is_distinct = self._take("DISTINCT")
        items: list[str] = []
        columns: list[str] = []
        aliases: set[str] = set()
        while True:
            start = self._now
            value = self._value()
            shown = self.source[start.at : self.tokens[self.place - 1].at + len(self.tokens[self.place - 1].text)]
            if self._take("AS"):
                shown = self._name("a name").text
                aliases.add(shown)
                value = f"{value} AS v_{shown}"
            if shown in columns:
                self._refuse("columns of different names (AS gives one)", at=self.place - 1)
            items.append(value)
            columns.append(shown)
            if len(items) > ITEMS_MAX:
                self._refuse(f"at most {ITEMS_MAX} columns")
            if not self._take(","):
                break
        self.values |= aliases - self.vertices - self.edges
        self.made.append(f"RETURN {'DISTINCT ' if is_distinct else ''}{', '.join(items)}")
        self._order()
        self._cut("SKIP", SKIP_MAX)
        if not self._cut("LIMIT", ROWS_MAX):
            self.made.append(f"LIMIT {ROWS_MAX + 1}")
        return tuple(columns)

    def _order(self) -> None:
        if not self._take("ORDER"):
            return
        self._expect("BY", "BY")
        keys: list[str] = []
        while True:
            key = self._value()
            if self._now.word in {"ASC", "DESC"}:
                key += f" {self._next().word}"
            keys.append(key)
            if len(keys) > ITEMS_MAX:
                self._refuse(f"at most {ITEMS_MAX} keys")
            if not self._take(","):
                break
        self.made.append(f"ORDER BY {', '.join(keys)}")

    def _cut(self, word: str, most: int) -> bool:
        if not self._take(word):
            return False
        expected = f"a whole number of at most {most}, or a $parameter"
        token = self._now
        if token.kind == "number":
            if int(self._next().text) > most:
                self._refuse(expected, at=self.place - 1)
            self.made.append(f"{word} {token.text}")
        elif token.text == "$":
            made = self._parameter()
            name = made.removeprefix("$p_")
            self.counts[name] = min(most, self.counts.get(name, most))
            self.made.append(f"{word} {made}")
        else:
            self._refuse(expected)
        return True

    def _condition(self, depth: int) -> _Condition:
        parts = [self._all(depth)]
        while self._take("OR"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else _Condition(" OR ".join(each.text for each in parts), binds=0)

    def _all(self, depth: int) -> _Condition:
        parts = [self._one(depth)]
        while self._take("AND"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else _Condition(" AND ".join(each.within(1) for each in parts), binds=1)

    def _one(self, depth: int) -> _Condition:
        if depth > DEPTH_MAX:
            self._refuse(f"a condition nested at most {DEPTH_MAX} deep")
        if self._take("NOT"):
            return _Condition(f"NOT {self._one(depth + 1).within(2)}", binds=2)
        if self._take("("):
            made = self._condition(depth + 1)
            self._expect(")", "AND, OR or )")
            return made
        left = self._value()
        if self._take("IS"):
            is_not = self._take("NOT")
            self._expect("NULL", "NULL, or NOT NULL")
            return _Condition(f"{left} IS {'NOT ' if is_not else ''}NULL", binds=3)
        if self._now.text not in _COMPARED:
            self._refuse(f"one of {' '.join(_COMPARED)}, IS NULL or IS NOT NULL")
        return _Condition(f"{left} {self._next().text} {self._value()}", binds=3)

    def _value(self) -> str:
        """Return a parameter, a number, a truth value, a property, an alias or a function of one."""
        token = self._now
        if token.text == "$":
            return self._parameter()
        if token.kind == "number" or token.word in {"TRUE", "FALSE", "NULL"}:
            return self._next().text.lower()
        if token.kind != "name" or token.word in _WORDS:
            self._refuse("a property (variable.name), an alias, a function, a whole number or a $parameter")
        if self._peek(1).text == "(":
            return self._function()
        self._next()
        if token.text in self.values and self._now.text != ".":
            return f"v_{token.text}"
        if token.text not in self.vertices | self.edges:
            self._refuse("a variable or alias that a clause before has bound", at=self.place - 1)
        self._expect(".", f"a property of {token.text}: {token.text}.name")
        return f"v_{token.text}.{self._name('the name of a property').text}"

    def _function(self) -> str:
        token = self._next()
        name = token.text.lower()
        if name not in FUNCTIONS:
            self._refuse(f"one of the functions {', '.join(FUNCTIONS)}", at=self.place - 1)
        self._expect("(", "(")
        if name == "label":
            variable = self._name("a variable of a vertex")
            if variable.text not in self.vertices:
                self._refuse("a variable of a vertex", at=self.place - 1)
            made = f"label(v_{variable.text})"
        elif name == "count" and self._take("*"):
            made = "count(*)"
        else:
            is_distinct = self._take("DISTINCT")
            if self._peek(1).text == "(" and self._now.word != "LABEL":
                self._refuse("no function within a function, but for label")
            made = f"{name}({'DISTINCT ' if is_distinct else ''}{self._value()})"
        self._expect(")", ")")
        return made

    def _parameter(self) -> str:
        self._expect("$", "a $parameter")
        name = self._name("the name of a parameter").text
        self.parameters.add(name)
        return f"$p_{name}"

    def _name(self, what: str) -> _Token:
        if self._now.kind != "name" or self._now.word in _WORDS:
            self._refuse(what)
        return self._next()

    @property
    def _now(self) -> _Token:
        return self.tokens[self.place]

    def _peek(self, ahead: int) -> _Token:
        return self.tokens[min(self.place + ahead, len(self.tokens) - 1)]

    def _next(self) -> _Token:
        token = self._now
        self.place += 1
        return token

    def _take(self, text: str) -> bool:
        """Take a word (given in capitals) or mark, if it is the next one."""
        token = self._now
        is_it = token.word == text if text.isalpha() else token.text == text
        self.place += is_it
        return is_it

    def _expect(self, text: str, expected: str) -> None:
        if not self._take(text):
            self._refuse(expected)

    def _refuse(self, expected: str, *, at: int | None = None) -> NoReturn:
        token = self._now if at is None else self.tokens[at]
        raise _refused(self.source, token.at, expected, repr(token.text) if token.text else "the end")
