"""
Compiled expressions, and the judging of many of them on one set of variables.

Guarantee: `judge` yields one result for each program asked about, in their order, and `Outcome.ALLOW` only where the
expression gave exactly the boolean true. Whatever one program does, short of ending the process, the others are judged.

Compiled programs are kept by kind and text, the oldest used going first, bounded in number and in the length of their
texts. Variables are converted at most once a call, and only the fields that some program of the call reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import lark
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError, CELSyntaxError, CELUnsupportedError

from gateway.policy.cel.check import Needs, check
from gateway.policy.cel.evaluate import evaluate
from gateway.policy.cel.literals import check_literals
from gateway.policy.cel.parse import Node, parse
from gateway.policy.cel.values import Value, cel_of, is_false, is_true
from gateway.policy.engine import Outcome, PolicyNotCompiledError

COMPILED_MAX: Final = 512
COMPILED_CHARACTERS_MAX: Final = 131_072
"""Over all kept texts. A tree takes some hundred bytes for each character, out of the worker's memory."""

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
    ValueError,
)
"""What cel-python may raise on an expression. Anything else is a fault of ours, and ends the process."""

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
    """What came of one program; `exhausted` if it ran out of memory, after which the process should not go on."""

    outcome: Outcome
    detail: str = ""
    exhausted: bool = False


@dataclass(frozen=True, slots=True)
class _Compiled:
    tree: Node
    needs: Needs


class Programs:
    """Compiles and judges. Not for threads: one belongs to one worker."""

    def __init__(self) -> None:
        self._compiled: OrderedDict[tuple[str, str], _Compiled] = OrderedDict()
        self._characters = 0

    def check(self, expression: str, *, kind: str) -> None:
        """
        Check that `expression` compiles as this `kind` of program.

        Raises:
            PolicyNotCompiledError: if it does not; carries the place.
        """
        self._compile(expression, kind=kind)

    def judge(self, programs: Sequence[tuple[str, str]], activation: Mapping[str, Any]) -> Iterator[Result]:
        """Yield a result for each of `programs` (kind and expression), evaluated on the JSON values of `activation`."""
        compiled = [self._compile_or_say(kind, expression) for kind, expression in programs]
        variables = _Variables(activation, [one.needs for one in compiled if isinstance(one, _Compiled)])
        for one in compiled:
            yield one if isinstance(one, Result) else _judge(one, variables)

    def _compile_or_say(self, kind: str, expression: str) -> _Compiled | Result:
        """A stored expression compiled once; if it does not now, this version of us reads it otherwise: an error."""
        try:
            return self._compile(expression, kind=kind)
        except PolicyNotCompiledError as error:
            return Result(Outcome.ERROR, f"does not compile: {error}")
        except MemoryError:
            return Result(Outcome.ERROR, _WORDS[0][1], exhausted=True)

    def _compile(self, expression: str, *, kind: str) -> _Compiled:
        key = (kind, expression)
        found = self._compiled.get(key)
        if found is not None:
            self._compiled.move_to_end(key)
            return found
        try:
            tree = parse(expression)
            compiled = _Compiled(tree, check(tree, kind=kind))
            check_literals(tree)
        except RecursionError as error:
            raise PolicyNotCompiledError("nested too deeply", line=1, column=1) from error
        self._compiled[key] = compiled
        self._characters += len(expression)
        while len(self._compiled) > COMPILED_MAX or self._characters > COMPILED_CHARACTERS_MAX:
            (_, oldest), _ = self._compiled.popitem(last=False)
            self._characters -= len(oldest)
        return compiled


class _Variables:
    """The variables of one call, each converted when the first program that reads it is judged."""

    def __init__(self, activation: Mapping[str, Any], needs: Sequence[Needs]) -> None:
        self._activation = activation
        self._fields: Needs = {}
        for need in needs:
            for name, fields in need.items():
                known = self._fields.setdefault(name, set())
                self._fields[name] = None if known is None or fields is None else known | fields
        self._converted: dict[str, Value] = {}

    def of(self, needs: Needs) -> dict[str, Value]:
        """
        Return the variables that a program with these `needs` reads.

        One that the activation does not hold is an error as a value, as a field that does not exist is: `false && x` is
        false whatever `x` may be. So a caller who leaves a variable out asks what follows without knowing it.

        Raises:
            ValueError: if one of them has no value in CEL.
        """
        return {name: self._value(name) for name in needs}

    def _value(self, name: str) -> Value:
        if name not in self._activation:
            return CELEvalError("not known", KeyError)
        if name not in self._converted:
            value, fields = self._activation[name], self._fields[name]
            if fields is not None and isinstance(value, dict):
                value = {field: value[field] for field in fields if field in value}
            self._converted[name] = cel_of(value)
        return self._converted[name]


def _judge(compiled: _Compiled, variables: _Variables) -> Result:
    try:
        value = evaluate(compiled.tree, variables.of(compiled.needs))
    except _FAILURES as error:
        return Result(Outcome.ERROR, _in_words(type(error), error), exhausted=isinstance(error, MemoryError))
    if is_true(value):
        return Result(Outcome.ALLOW)
    if is_false(value):
        return Result(Outcome.DENY)
    if isinstance(value, CELEvalError):
        cause = value.args[1] if len(value.args) > 1 else type(value)
        return Result(Outcome.ERROR, _in_words(cause, value))
    return Result(Outcome.ERROR, "gives something other than true or false")


def _in_words(cause: Any, error: BaseException) -> str:
    """Say what went wrong, and where, in words of ours: cel-python's own quote the values of the commit."""
    known = isinstance(cause, type) and issubclass(cause, BaseException)
    words = next((words for kind, words in _WORDS if known and issubclass(cause, kind)), "cannot be evaluated")
    line, column = getattr(error, "line", None), getattr(error, "column", None)
    return f"{words} (line {line}, column {column})" if line and column else words
