# SPDX-License-Identifier: Apache-2.0
"""
Compiled expressions, and their evaluation on one set of variables.

Guarantee: `judge` yields one result for each program, in their order, and `Outcome.ALLOW` only if the expression gave
exactly the boolean true. Whatever one program does, short of ending the process, the others are judged.

Compiled programs are cached by tenant, kind and text, bounded in number and in the length of their texts. The tenant
with the most loses its own least recently used one first, so that no tenant displaces another's programs. Variables are
checked at most once per call, and only the fields that some program of the call reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import lark
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError, CELSyntaxError, CELUnsupportedError

from gateway.policy.cel.check import Needs, check
from gateway.policy.cel.columns import COLUMNS, ByColumns, by_columns
from gateway.policy.cel.compile import UNKNOWN, Compiled, NoValueError, compile_tree
from gateway.policy.cel.elements import check_elements
from gateway.policy.cel.inspection import Taken, inspection_of
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.literals import check_literals
from gateway.policy.cel.natives import check_json
from gateway.policy.cel.numbers import check_numbers
from gateway.policy.cel.parse import Node, parse
from gateway.policy.cel.row_filters import written_in
from gateway.policy.cel.rule_reader import formula_of
from gateway.policy.cel.trace import Trace
from gateway.policy.cel.values import Value
from gateway.policy.engine import ACCESS_RULE, OUTCOME_LETTERS, Outcome, PolicyNotCompiledError
from gateway.policy.inspected import Branch, Inspection
from gateway.policy.restrictions.written import Written
from gateway.policy.rule_formulas import Formula
from gateway.policy.table import UnreadableMetadataError, plain_json
from gateway.policy.variables import AS_REQUESTED

COMPILED_MAX: Final = 2_048
COMPILED_CHARACTERS_MAX: Final = 262_144
"""Over all cached texts. A program takes some hundred bytes of the worker's memory per character."""

_FAILURES: Final = (
    CELEvalError,
    CELParseError,
    CELSyntaxError,
    CELUnsupportedError,
    lark.exceptions.LarkError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,  # among them RecursionError
    StopIteration,
    TypeError,
    UnreadableMetadataError,
    ValueError,
)
"""Errors that cel-python may raise on an expression. Anything else is a bug here, and ends the process."""

_WORDS: Final[Sequence[tuple[type[BaseException], str]]] = (
    (MemoryError, "needs more memory than a judging may use"),
    (RecursionError, "is nested too deeply"),
    (ZeroDivisionError, "divides by zero"),
    (IndexError, "takes an element outside of a list"),
    (LookupError, "reads a field or key that does not exist"),
    (TypeError, "uses an operation on a type that does not have it"),
    (AttributeError, "uses an operation on a type that does not have it"),
    (ValueError, "holds or computes a value that cannot be converted or is out of range"),
    (ArithmeticError, "computes a value that is out of range"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """
    The result of one program; `exhausted` if it ran out of memory, after which the process should end. `letter` is that
    of its outcome, so that nothing is looked up for each of many. `taken` are the values of its branches
    (`inspection.Taken`), if they were asked for.
    """

    outcome: Outcome
    detail: str = ""
    exhausted: bool = False
    taken: int = 0
    letter: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "letter", OUTCOME_LETTERS[self.outcome])


HOLDS: Final = Result(Outcome.ALLOW)
HOLDS_NOT: Final = Result(Outcome.DENY)


@dataclass(frozen=True, slots=True)
class _Compiled:
    program: Compiled
    needs: Needs
    by_columns: ByColumns | None = None
    taken: Taken | None = None


@dataclass(slots=True)
class _Kept:
    """The cached programs of one tenant, least recently used first, and the length of their texts."""

    compiled: OrderedDict[tuple[str, str, bool], _Compiled] = field(default_factory=OrderedDict)
    characters: int = 0


class Programs:
    """Compiles and judges. For one thread only, except `interruption`, which another thread may set."""

    def __init__(
        self, *, compiled_max: int = COMPILED_MAX, compiled_characters_max: int = COMPILED_CHARACTERS_MAX
    ) -> None:
        self.interruption = Interruption()
        self._compiled_max = compiled_max
        self._compiled_characters_max = compiled_characters_max
        self._kept: dict[int, _Kept] = {}

    def check(self, expression: str, *, kind: str) -> None:
        """
        Check that `expression` compiles as this `kind` of program, and that it may be saved as one. It is not cached.

        Raises:
            PolicyNotCompiledError: if it does not; carries the place.
        """
        _compile(expression, self.interruption, kind=kind, checked=_checked_new)

    def inspect(self, expression: str, *, kind: str, zero: Mapping[str, Any]) -> Inspection:
        """
        Return what is known of `expression`; `zero` are the variables of an empty commit.

        Raises:
            PolicyNotCompiledError: if it does not compile; carries the place.
        """
        with _bounded_depth():
            tree, needs = _checked_new(expression, self.interruption, kind=kind)
            return inspection_of(tree, needs, kind=kind, zero=zero)

    def cover(self, expression: str, activations: Sequence[Mapping[str, Any]], *, kind: str) -> tuple[Branch, ...]:
        """
        Return the branches of `expression`, with the values that they took on `activations`.

        Raises:
            PolicyNotCompiledError: if it does not compile; carries the place.
            JudgingStopped: once `interruption` is set.
        """
        with _bounded_depth():
            compiled = _compile_covered(expression, self.interruption, kind=kind, checked=_checked_new)
        for activation in activations:
            _judge(compiled, _Variables(activation, [compiled.needs], self.interruption))
        return compiled.taken.branches() if compiled.taken is not None else ()

    def read_condition(self, expression: str, *, kind: str) -> Written:
        """
        Return what is written in a row filter, or in the condition of a mask; `kind` says which.

        Raises:
            PolicyNotCompiledError: if it is none; carries the place.
        """
        with _bounded_depth():
            return written_in(parse(expression, self.interruption), kind=kind)

    def read_rule(self, expression: str) -> Formula:
        """
        Return what an access rule in force says, as a formula.

        Raises:
            PolicyNotCompiledError: if it does not compile; carries the place.
            JudgingStopped: once `interruption` is set.
        """
        with _bounded_depth():
            tree, _ = _checked_kept(expression, self.interruption, kind=ACCESS_RULE)
            return formula_of(tree, self.interruption)

    def judge(
        self,
        programs: Sequence[tuple[str, str]],
        activation: Mapping[str, Any],
        *,
        log_id: int,
        sound: Collection[int] = (),
    ) -> Iterator[Result]:
        """
        Yield a result for each of `programs` (kind and expression), evaluated on the JSON values of `activation`.

        `log_id` is the tenant's, under which they are cached. `sound` has the identities of values that need no check,
        since they were checked before (`natives.check_json`).

        Raises:
            JudgingStopped: once `interruption` is set; results that were yielded remain valid.
        """
        compiled = [self._compiled(log_id, kind, expression) for kind, expression in programs]
        needs = [one.needs for one in compiled if isinstance(one, _Compiled)]
        variables = _Variables(activation, needs, self.interruption, sound)
        for one in compiled:
            yield one if isinstance(one, Result) else _judge(one, variables)

    def judge_cases(
        self,
        programs: Sequence[tuple[str, str]],
        values: Sequence[Any],
        cases: Sequence[tuple[int, Mapping[str, Any]]],
        *,
        log_id: int,
        covers: bool = False,
    ) -> Iterator[Result]:
        """
        Yield a result for each of `cases`: the number of a program, and its variables, each the number of one of
        `values`, or of the values of its fields, by name. So what many cases share is sent and read once. With `covers`
        each result has the branches that were taken.

        Raises as `judge`.
        """
        compiled = [self._compiled(log_id, kind, expression, covers=covers) for kind, expression in programs]
        for number, places in cases:
            one = compiled[number]
            if isinstance(one, Result):
                yield one
                continue
            activation = {
                name: values[place] if isinstance(place, int) else {field: values[at] for field, at in place.items()}
                for name, place in places.items()
            }
            variables = _Variables(activation, [one.needs], self.interruption)
            yield _judge(one, variables) if one.taken is None else _judge_covered(one, one.taken, variables)

    def judge_rows(
        self,
        programs: Sequence[tuple[str, str]],
        shared: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        *,
        log_id: int,
    ) -> Iterator[list[Result]]:
        """
        Yield for each of `rows` a result for each of `programs`, evaluated on the `shared` variables and the row's own.

        Raises as `judge`.
        """
        compiled = [self._compiled(log_id, kind, expression) for kind, expression in programs]
        needs = [one.needs for one in compiled if isinstance(one, _Compiled)]
        variables = _Variables(shared, needs, self.interruption)
        for one in needs:
            with suppress(*_FAILURES):  # each program that reads what has no value fails with that
                variables.of(one)
        together = _judge_together(compiled, variables, rows)
        by_column = list(zip(compiled, together, strict=True))
        if compiled and all(known is not None for known in together):
            yield from map(list, zip(*(known for known in together if known is not None), strict=True))
            return
        for number, row in enumerate(rows):
            own = variables.with_values(row)
            yield [_judge_kept(one, own) if known is None else known[number] for one, known in by_column]

    def trace(self, kind: str, expression: str, activation: Mapping[str, Any]) -> tuple[Result, list[dict[str, Any]]]:
        """
        Return the result of one program on the JSON values of `activation`, and the values of its parts (`trace.py`).

        Raises as `judge`.
        """
        try:
            traced = _compile_traced(expression, self.interruption, kind=kind)
        except PolicyNotCompiledError as error:
            return Result(Outcome.ERROR, f"does not compile: {error}"), []
        result = _judge(traced.compiled, _Variables(activation, [traced.compiled.needs], self.interruption))
        return result, traced.trace.steps(expression)

    def _compiled(self, log_id: int, kind: str, expression: str, *, covers: bool = False) -> _Compiled | Result:
        """Stored expressions compiled when they were saved; one that no longer does is an error."""
        self.interruption.check()
        kept = self._kept.setdefault(log_id, _Kept())
        found = kept.compiled.get((kind, expression, covers))
        if found is not None:
            kept.compiled.move_to_end((kind, expression, covers))
            return found
        try:
            compile_ = _compile_covered if covers else _compile
            compiled = compile_(expression, self.interruption, kind=kind, checked=_checked_kept)
        except PolicyNotCompiledError as error:
            return Result(Outcome.ERROR, f"does not compile: {error}")
        except MemoryError:
            return Result(Outcome.ERROR, _WORDS[0][1], exhausted=True)
        kept.compiled[kind, expression, covers] = compiled
        kept.characters += len(expression)
        self._make_room()
        return compiled

    def _make_room(self) -> None:
        def taken(log_id: int) -> float:
            kept = self._kept[log_id]
            of_number = len(kept.compiled) / self._compiled_max
            return max(of_number, kept.characters / self._compiled_characters_max)

        while (
            sum(len(kept.compiled) for kept in self._kept.values()) > self._compiled_max
            or sum(kept.characters for kept in self._kept.values()) > self._compiled_characters_max
        ):
            most = max(self._kept, key=taken)
            (_, oldest, _), _ = self._kept[most].compiled.popitem(last=False)
            self._kept[most].characters -= len(oldest)
            if not self._kept[most].compiled:
                del self._kept[most]


def _compile(
    expression: str, interruption: Interruption, *, kind: str, checked: Callable[..., tuple[Node, Needs]]
) -> _Compiled:
    """Return the program of a text that `checked` (`_checked_kept`, or `_checked_new`) finds nothing wrong with."""
    with _bounded_depth():
        tree, needs = checked(expression, interruption, kind=kind)
        columns = by_columns(tree, list(needs), interruption) if kind == ACCESS_RULE else None
        return _Compiled(compile_tree(tree, list(needs), interruption), needs, columns)


def _compile_covered(
    expression: str, interruption: Interruption, *, kind: str, checked: Callable[..., tuple[Node, Needs]]
) -> _Compiled:
    """Return what `_compile` does, with the branches that it takes watched."""
    with _bounded_depth():
        tree, needs = checked(expression, interruption, kind=kind)
        taken = Taken(tree)
        return _Compiled(compile_tree(tree, list(needs), interruption, watch=taken.watch), needs, taken=taken)


def _checked_kept(expression: str, interruption: Interruption, *, kind: str) -> tuple[Node, Needs]:
    """Return the tree of a text that is in force, and what it reads."""
    tree = parse(expression, interruption)
    needs = check(tree, kind=kind)
    check_literals(tree)
    return tree, needs


def _checked_new(expression: str, interruption: Interruption, *, kind: str) -> tuple[Node, Needs]:
    """Return the tree of a text that is about to be saved, of which more is asked, and what it reads."""
    tree, needs = _checked_kept(expression, interruption, kind=kind)
    check_numbers(tree, check_elements(tree, kind=kind))
    return tree, needs


@contextmanager
def _bounded_depth() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise PolicyNotCompiledError("nested too deeply", line=1, column=1) from error


@dataclass(frozen=True, slots=True)
class _Traced:
    compiled: _Compiled
    trace: Trace


def _compile_traced(expression: str, interruption: Interruption, *, kind: str) -> _Traced:
    try:
        tree, needs = _checked_kept(expression, interruption, kind=kind)
        trace = Trace(tree)
        program = compile_tree(tree, list(needs), interruption, watch=trace.watch)
        return _Traced(_Compiled(program, needs), trace)
    except RecursionError as error:
        raise PolicyNotCompiledError("nested too deeply", line=1, column=1) from error


class _Variables:
    """The variables of one call, each checked when the first program that reads it is judged."""

    def __init__(
        self,
        activation: Mapping[str, Any],
        needs: Sequence[Needs],
        interruption: Interruption,
        sound: Collection[int] = (),
    ) -> None:
        self._activation = activation
        self._interruption = interruption
        self._sound = sound
        self._fields: Needs = {}
        for need in needs:
            for name, fields in need.items():
                known = self._fields.setdefault(name, set())
                self._fields[name] = None if known is None or fields is None else known | fields
        self._checked: dict[str, Value] = {}

    def with_values(self, values: Mapping[str, Any]) -> _Variables:
        """Return these variables with values of their own for some of them; what was checked of the others stays so."""
        other = _Variables({**self._activation, **values}, (), self._interruption, self._sound)
        other._fields = self._fields
        other._checked = {name: value for name, value in self._checked.items() if name not in values}
        return other

    def of(self, needs: Collection[str]) -> dict[str, Value]:
        """
        Return the variables that a program with these `needs` reads.

        A variable that the activation does not have is an error, like a field that does not exist: `false && x` is
        false whatever `x` is. So a caller can leave a variable out to find out what follows without it.

        Raises:
            ValueError: if one of them has no value in CEL.
            UnreadableMetadataError: if one of the members in `AS_REQUESTED` is nested too deeply.
        """
        return {name: self._value(name) for name in needs}

    def _value(self, name: str) -> Value:
        if name not in self._activation:
            return UNKNOWN
        if name not in self._checked:
            value, fields = self._activation[name], self._fields[name]
            if isinstance(value, dict):
                known = value.keys() if fields is None else fields & value.keys()
                value = {field: self._plain(name, field, value[field]) for field in known}
                for part in value.values():
                    self._check(part)
            else:
                self._check(value)
            self._checked[name] = value
        return self._checked[name]

    def _check(self, value: Any) -> None:
        if id(value) not in self._sound:
            check_json(value, self._interruption)

    def _plain(self, name: str, field: str, value: Any) -> Any:
        if field not in AS_REQUESTED.get(name, ()):
            return value
        plain = []
        for item in value:
            self._interruption.check()
            plain.append(plain_json(item, depth=1))
        return plain


def _judge_together(
    compiled: Sequence[_Compiled | Result], variables: _Variables, rows: Sequence[Mapping[str, Any]]
) -> list[list[Result] | None]:
    """
    Return for each program its results on all rows; None where it has to be judged row by row: unless all rows have
    texts alone, of the same names, and the program only compares these.
    """
    columns = _columns(rows)
    found: list[list[Result] | None] = []
    for one in compiled:
        if isinstance(one, Result):
            found.append([one] * len(rows))
            continue
        held = None
        if columns is not None and one.by_columns is not None and COLUMNS.intersection(one.needs) <= columns.keys():
            with suppress(*_FAILURES):
                held = one.by_columns.judge(variables.of(one.needs.keys() - COLUMNS), columns)
        if isinstance(held, list):
            found.append([HOLDS if holds else HOLDS_NOT for holds in held])
        else:
            found.append(None if held is None else [HOLDS if held else HOLDS_NOT] * len(rows))
    return found


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]] | None:
    """Return the values of rows by name, if all have the same names, of `COLUMNS` alone, and texts alone."""
    if not rows or not rows[0].keys() <= COLUMNS:
        return None
    if not all(row.keys() == rows[0].keys() for row in rows):
        return None
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return columns if all(type(value) is str for column in columns.values() for value in column) else None


def _judge_kept(compiled: _Compiled | Result, variables: _Variables) -> Result:
    return compiled if isinstance(compiled, Result) else _judge(compiled, variables)


def _judge(compiled: _Compiled, variables: _Variables) -> Result:
    try:
        value = compiled.program.value(variables.of(compiled.needs))
    except NoValueError as error:
        return Result(Outcome.ERROR, _in_words(error.cause, error))
    except _FAILURES as error:
        return Result(Outcome.ERROR, _in_words(type(error), error), exhausted=isinstance(error, MemoryError))
    if value is True:
        return HOLDS
    if value is False:
        return HOLDS_NOT
    return Result(Outcome.ERROR, "gives something other than true or false")


def _judge_covered(compiled: _Compiled, taken: Taken, variables: _Variables) -> Result:
    taken.take()  # what a case that was stopped has left
    result = _judge(compiled, variables)
    return replace(result, taken=taken.take())


def _in_words(cause: Any, error: BaseException) -> str:
    """Describe an error and its position in our own words: cel-python's texts quote values of the commit."""
    known = isinstance(cause, type) and issubclass(cause, BaseException)
    words = next((words for kind, words in _WORDS if known and issubclass(cause, kind)), "cannot be evaluated")
    line, column = getattr(error, "line", None), getattr(error, "column", None)
    return f"{words} (line {line}, column {column})" if line and column else words
