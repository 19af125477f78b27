# SPDX-License-Identifier: Apache-2.0
"""
What an expression means: its folded tree, compiled once to functions of Python, with the logic of the CEL definition.

Each node becomes one function of a frame, the list of the variables. Its slots are fixed when the tree is compiled:
first what the expression reads, then one for the variable of each macro. So nothing is looked up by name, and nothing
is converted before it is computed with (`natives.py`).

Guarantee: a predicate that gives no boolean is an error and never counts as true; `has()` is false only if the map is
there and the field is not; `||`, `&&`, `all` and `exists` absorb an error wherever another operand settles the matter
(CEL language definition, "Logical Operators" and "Macros"). An error has the place of the innermost node that gave it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import lark
from celpy.evaluation import CELEvalError

from gateway.policy.cel import library, tables
from gateway.policy.cel.check import MACROS, name_of
from gateway.policy.cel.functions import FUNCTIONS, compile_pattern
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.literals import value_of
from gateway.policy.cel.natives import (
    FAILURES,
    NAMED_TYPES,
    calculated,
    compared,
    contains,
    element,
    ends_with,
    equal,
    has,
    is_in,
    negation,
    plain,
    size,
    starts_with,
    type_of,
    wrapped,
)
from gateway.policy.cel.parse import Node
from gateway.policy.cel.values import Value, is_key, key_of, of_key
from gateway.policy.vocabulary import TIME_READ_BY

Frame: TypeAlias = list[Any]
Evaluate: TypeAlias = Callable[[Frame], Value]
Watch: TypeAlias = Callable[[Node, Evaluate], Evaluate]
"""Returns what a node's function is replaced with; without one, nothing costs more."""

CHECKED_EVERY: Final = 32
"""How many elements a macro looks at before it asks whether it was stopped."""


class NoValueError(Exception):
    """An expression has no value; `cause` is the class of the error, `line` and `column` are where."""

    def __init__(self, cause: type[BaseException], line: int | None, column: int | None) -> None:
        super().__init__(cause.__name__)
        self.cause = cause
        self.line = line
        self.column = column


class _Unknown:
    """What a variable is that was left out: an error, like a field that does not exist."""


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression as a function; `names` are the variables that it reads, `size` is that of its frame."""

    evaluate: Evaluate
    names: Sequence[str]
    size: int

    def value(self, variables: Mapping[str, Value]) -> Value:
        """
        Return what it gives on `variables`, each JSON, or `UNKNOWN`.

        Raises:
            NoValueError: if it has no value.
            JudgingStopped: once its interruption is set.
        """
        frame = [variables[name] for name in self.names]
        return self.evaluate(frame + [None] * (self.size - len(frame)))


def compile_tree(
    tree: Node, names: Sequence[str], interruption: Interruption, *, watch: Watch | None = None
) -> Compiled:
    """
    Compile a checked `tree` that reads the variables `names`; `watch` sees every node and may replace its function.
    """
    compiler = _Compiler(names, interruption, watch)
    return Compiled(compiler.visit(tree), tuple(names), compiler.size)


_OPERATORS: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "relation_in": is_in,
    "relation_lt": compared(operator.lt),
    "relation_le": compared(operator.le),
    "relation_gt": compared(operator.gt),
    "relation_ge": compared(operator.ge),
    "addition_add": calculated(operator.add, lambda a, b: _by_celpy("_+_", a, b), joins=True),
    "addition_sub": calculated(operator.sub, lambda a, b: _by_celpy("_-_", a, b)),
    "multiplication_mul": calculated(operator.mul, lambda a, b: _by_celpy("_*_", a, b)),
    "multiplication_div": lambda a, b: _by_celpy("_/_", a, b),
    "multiplication_mod": lambda a, b: _by_celpy("_%_", a, b),
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "contains": contains,
    "dyn": lambda value: value,
    "endsWith": ends_with,
    "size": size,
    "startsWith": starts_with,
    "type": type_of,
    **library.FUNCTIONS,
    **library.METHODS,
    **tables.FUNCTIONS,
}
"""Those that need no class of cel-python."""


def _by_celpy(name: str, *operands: Value) -> Value:
    """Return what an operation of `functions.py` gives, which computes with cel-python's classes."""
    result = FUNCTIONS[name](*map(wrapped, operands))
    if isinstance(result, CELEvalError):
        cause = result.args[1] if len(result.args) > 1 else TypeError
        raise _CelpyError(cause)
    return plain(result)


def _time_since(now: Value, moment: Value) -> Value:
    return _by_celpy("_-_", _by_celpy("timestamp", now), _by_celpy("timestamp", moment))


class _CelpyError(ValueError):
    """An operation of `functions.py` has failed; `cause` is the class of its error."""

    def __init__(self, cause: type[BaseException]) -> None:
        super().__init__(cause.__name__)
        self.cause = cause


class _Compiler:
    """
    Compiles the nodes of one tree. The methods are named after the nodes.

    `size` grows with each macro: nested ones have slots of their own, since the inner one reads the variable of the
    outer one.
    """

    def __init__(self, names: Sequence[str], interruption: Interruption, watch: Watch | None) -> None:
        self._slots = {name: slot for slot, name in enumerate(names)}
        self._request = self._slots.get("request")
        self._interruption = interruption
        self._watch = watch
        self.size = len(names)

    def visit(self, tree: Node) -> Evaluate:
        compiled: Evaluate = getattr(self, tree.data)(tree)
        return compiled if self._watch is None else self._watch(tree, compiled)

    # Logic

    def expr(self, tree: Node) -> Evaluate:
        condition, then, otherwise = map(self.visit, tree.children)
        fail = _failing(tree)

        def evaluate(frame: Frame) -> Value:
            value = condition(frame)
            if value is True:
                return then(frame)
            if value is False:
                return otherwise(frame)
            raise fail(TypeError)

        return evaluate

    def conditionalor(self, tree: Node) -> Evaluate:
        return self._chain(tree, settles=True)

    def conditionaland(self, tree: Node) -> Evaluate:
        return self._chain(tree, settles=False)

    def _chain(self, tree: Node, *, settles: bool) -> Evaluate:
        operands = tuple(map(self.visit, tree.children))
        fail = _failing(tree)

        def evaluate(frame: Frame) -> Value:
            failure = None
            for operand in operands:
                try:
                    value = operand(frame)
                except NoValueError as error:
                    failure = failure or error
                    continue
                if value is settles:
                    return value
                if failure is None and type(value) is not bool:
                    failure = fail(TypeError)
            if failure is not None:
                raise failure
            return not settles

        return evaluate

    # Operators

    def relation(self, tree: Node) -> Evaluate:
        sign, right = tree.children
        left, name = self.visit(sign.children[0]), str(sign.data)
        if name in {"relation_eq", "relation_ne"}:
            compared_to, wanted = self.visit(right), name == "relation_eq"
            equality = _equality(left, compared_to, tree, wanted=wanted)
            field, other = self._field_of(sign.children[0]), self._field_of(right)
            if field is None or other is None or self._watch is not None:
                return equality  # whoever watches sees both sides
            return _equality_of_fields(field, other, equality, wanted=wanted)
        return _binary(_OPERATORS[name], left, self.visit(right), tree)

    def addition(self, tree: Node) -> Evaluate:
        sign, right = tree.children
        return _binary(_OPERATORS[str(sign.data)], self.visit(sign.children[0]), self.visit(right), tree)

    multiplication = addition

    def unary(self, tree: Node) -> Evaluate:
        sign, operand = tree.children
        if sign.data == "unary_not":
            return _call(negation, (self.visit(operand),), tree)
        return _call(lambda value: _by_celpy("-_", value), (self.visit(operand),), tree)

    # Values

    def literal(self, tree: Node) -> Evaluate:
        return _constant(plain(value_of(tree)))

    def primary(self, tree: Node) -> Evaluate:
        child = tree.children[0]
        return self.visit(child)

    def ident(self, tree: Node) -> Evaluate:
        name = str(tree.children[0])
        slot = self._slots.get(name)
        if slot is None:
            return _constant(NAMED_TYPES[name])
        fail = _failing(tree)

        def evaluate(frame: Frame) -> Value:
            value = frame[slot]
            if value is UNKNOWN:
                raise fail(KeyError)
            return value

        return evaluate

    def list_lit(self, tree: Node) -> Evaluate:
        items = self._arguments(tree.children)

        def evaluate(frame: Frame) -> Value:
            return [item(frame) for item in items]

        return evaluate

    def map_lit(self, tree: Node) -> Evaluate:
        parts = self._arguments(tree.children)
        keys, values = parts[::2], parts[1::2]
        fail = _failing(tree.children[0] if tree.children else tree)

        def evaluate(frame: Frame) -> Value:
            made: dict[Any, Value] = {}
            for find_key, find_value in zip(keys, values, strict=True):
                key = find_key(frame)
                value = find_value(frame)
                kept = key_of(key) if is_key(key) else None
                if kept is None or kept in made:
                    raise fail(ValueError)
                made[kept] = value
            return made

        return evaluate

    def member_dot(self, tree: Node) -> Evaluate:
        target, field = tree.children
        name, fail = str(field), _failing(tree)
        slot = self._slot_of(target)
        if slot is not None:
            # The most frequent target, without a call. Nothing but a map is indexed with a text.
            def of_variable(frame: Frame) -> Value:
                try:
                    return frame[slot][name]
                except KeyError:
                    raise fail(KeyError) from None
                except TypeError:
                    raise fail(KeyError if frame[slot] is UNKNOWN else TypeError) from None

            return of_variable
        found = self.visit(target)

        def evaluate(frame: Frame) -> Value:
            container = found(frame)
            if type(container) is dict and name in container:
                return container[name]
            raise fail(KeyError if type(container) is dict else TypeError)

        return evaluate

    def _field_of(self, node: Node) -> tuple[int, str] | None:
        """The slot and the name of a field of a variable; None if `node` is anything else."""
        slot = self._slot_of(node.children[0]) if node.data == "member_dot" else None
        return None if slot is None else (slot, str(node.children[1]))

    def _slot_of(self, node: Node) -> int | None:
        name = name_of(node)
        return None if name is None else self._slots.get(name)

    def member_index(self, tree: Node) -> Evaluate:
        target, index = map(self.visit, tree.children)
        return _binary(element, target, index, tree)

    # Calls

    def ident_arg(self, tree: Node) -> Evaluate:
        name, arguments = str(tree.children[0]), tree.children[1:]
        if name == "has":
            target, field = arguments[0].children[0].children
            key, found = str(field), self.visit(target)
            return _call(lambda container: has(container, key), (found,), tree)
        if name == TIME_READ_BY:
            return self._age(self._arguments(arguments)[0], tree)
        return self._call_of(name, self._arguments(arguments), arguments, tree)

    def _age(self, moment: Evaluate, tree: Node) -> Evaluate:
        """The time from `moment` to `request.time`, whatever a macro around it calls `request`."""
        slot, fail = self._request, _failing(tree)

        def now(frame: Frame) -> Value:
            request = None if slot is None else frame[slot]
            if type(request) is not dict or "time" not in request:
                raise fail(KeyError)
            return request["time"]

        return _binary(_time_since, now, moment, tree)

    def member_dot_arg(self, tree: Node) -> Evaluate:
        target, name, *arguments = tree.children
        if str(name) in MACROS:
            return self._macro(str(name), target, arguments[0].children, tree)
        return self._call_of(str(name), [self.visit(target), *self._arguments(arguments)], arguments, tree)

    def _call_of(self, name: str, operands: Sequence[Evaluate], arguments: Sequence[Node], tree: Node) -> Evaluate:
        if name == "matches" and (pattern := _literal_text(arguments)) is not None:
            search = compile_pattern(pattern).search
            return _call(lambda text: search(_text(text)) is not None, operands[:1], tree)
        function = _FUNCTIONS.get(name) or _celpy_function(name)
        return _call(function, operands, tree)

    def _arguments(self, children: Sequence[Node]) -> list[Evaluate]:
        """The values of an `exprlist` or of `mapinits`, if there is one."""
        return [self.visit(child) for child in children[0].children] if children else []

    # Macros

    def _macro(self, macro: str, target: Node, arguments: Sequence[Node], tree: Node) -> Evaluate:
        items, variable = _items(self.visit(target), tree), name_of(arguments[0]) or ""
        slot, hidden = self.size, self._slots.get(variable)
        self.size += 1
        self._slots[variable] = slot
        bodies = [self.visit(body) for body in arguments[1:]]
        if hidden is None:
            del self._slots[variable]
        else:
            self._slots[variable] = hidden
        check, fail = self._interruption.check, _failing(tree)
        match macro:
            case "all":
                return _quantified(items, slot, bodies[0], check, fail, settles=False)
            case "exists":
                return _quantified(items, slot, bodies[0], check, fail, settles=True)
            case "exists_one":
                chosen = _chosen(items, slot, bodies[0], check, fail)
                return lambda frame: len(chosen(frame)) == 1
            case "filter":
                return _chosen(items, slot, bodies[0], check, fail)
            case _:  # map, of the elements that the predicate chooses if there is one before the body
                if len(bodies) > 1:
                    items = _chosen(items, slot, bodies[0], check, fail)
                return _mapped(items, slot, bodies[-1], check)


_COMPARABLE: Final = frozenset({str, int, bool})
"""Classes of which two values are equal as Python says."""
Fail: TypeAlias = Callable[[type[BaseException]], NoValueError]


def _failing(node: Node) -> Fail:
    """Return what makes the error of a node."""
    line, column = node.meta.line, node.meta.column
    return lambda cause: NoValueError(cause, line, column)


def _constant(value: Value) -> Evaluate:
    return lambda _: value


def _equality(left: Evaluate, right: Evaluate, tree: Node, *, wanted: bool) -> Evaluate:
    fail = _failing(tree)

    def evaluate(frame: Frame) -> Value:
        a, b = left(frame), right(frame)
        if type(a) is str and type(b) is str:
            return (a == b) is wanted
        try:
            return equal(a, b) is wanted
        except FAILURES as error:
            raise fail(_cause_of(error)) from None

    return evaluate


def _equality_of_fields(left: tuple[int, str], right: tuple[int, str], equality: Evaluate, *, wanted: bool) -> Evaluate:
    """Return `equality`, which macros evaluate for each pair of two lists, without its calls for what is usual."""
    (slot, name), (other_slot, other_name) = left, right

    def evaluate(frame: Frame) -> Value:
        try:
            a, b = frame[slot][name], frame[other_slot][other_name]
        except (KeyError, TypeError):
            return equality(frame)
        kind = type(a)
        if kind is type(b) and kind in _COMPARABLE:
            return (a == b) is wanted
        return equality(frame)

    return evaluate


def _binary(operate: Callable[[Value, Value], Value], left: Evaluate, right: Evaluate, tree: Node) -> Evaluate:
    fail = _failing(tree)

    def evaluate(frame: Frame) -> Value:
        a, b = left(frame), right(frame)
        try:
            return operate(a, b)
        except FAILURES as error:
            raise fail(_cause_of(error)) from None

    return evaluate


def _call(function: Callable[..., Value], operands: Sequence[Evaluate], tree: Node) -> Evaluate:
    fail = _failing(tree)
    if len(operands) == 1:
        (only,) = operands

        def of_one(frame: Frame) -> Value:
            value = only(frame)
            try:
                return function(value)
            except FAILURES as error:
                raise fail(_cause_of(error)) from None

        return of_one

    def evaluate(frame: Frame) -> Value:
        values = [operand(frame) for operand in operands]
        try:
            return function(*values)
        except FAILURES as error:
            raise fail(_cause_of(error)) from None

    return evaluate


def _cause_of(error: BaseException) -> type[BaseException]:
    return error.cause if isinstance(error, _CelpyError) else type(error)


def _celpy_function(name: str) -> Callable[..., Value]:
    return lambda *operands: _by_celpy(name, *operands)


def _literal_text(arguments: Sequence[Node]) -> str | None:
    """Return the text of a literal that is the last argument; None if that is no literal text."""
    last = arguments[-1].children[-1] if arguments else None
    value = plain(value_of(last)) if isinstance(last, lark.Tree) and last.data == "literal" else None
    return value if isinstance(value, str) else None


def _text(value: Value) -> str:
    if type(value) is not str:
        raise TypeError("not defined for this type")
    return value


def _items(target: Evaluate, tree: Node) -> Callable[[Frame], list[Value]]:
    """Return what gives the elements of a list, or the keys of a map."""
    fail = _failing(tree)

    def evaluate(frame: Frame) -> list[Value]:
        container = target(frame)
        if type(container) is list:
            return container
        if type(container) is dict:
            return [key if type(key) is str else of_key(key) for key in container]
        raise fail(TypeError)

    return evaluate


def _quantified(
    items: Callable[[Frame], list[Value]],
    slot: int,
    body: Evaluate,
    check: Callable[[], None],
    fail: Fail,
    *,
    settles: bool,
) -> Evaluate:
    """Return `exists` or `all`: the first element whose predicate `settles` the matter ends it."""

    def evaluate(frame: Frame) -> Value:
        failure, elements = None, items(frame)
        for first in range(0, len(elements), CHECKED_EVERY):
            check()
            for frame[slot] in elements[first : first + CHECKED_EVERY]:
                try:
                    value = body(frame)
                except NoValueError as error:
                    failure = failure or error
                    continue
                if value is settles:
                    return settles
                if failure is None and type(value) is not bool:
                    failure = fail(TypeError)
        if failure is not None:
            raise failure
        return not settles

    return evaluate


def _chosen(
    items: Callable[[Frame], list[Value]], slot: int, predicate: Evaluate, check: Callable[[], None], fail: Fail
) -> Callable[[Frame], list[Value]]:
    """Return the list of the elements for which `predicate` is true."""

    def evaluate(frame: Frame) -> list[Value]:
        chosen, elements = [], items(frame)
        for first in range(0, len(elements), CHECKED_EVERY):
            check()
            for item in elements[first : first + CHECKED_EVERY]:
                frame[slot] = item
                value = predicate(frame)
                if value is True:
                    chosen.append(item)
                elif value is not False:
                    raise fail(TypeError)
        return chosen

    return evaluate


def _mapped(
    items: Callable[[Frame], list[Value]], slot: int, body: Evaluate, check: Callable[[], None]
) -> Callable[[Frame], list[Value]]:
    def evaluate(frame: Frame) -> list[Value]:
        made, elements = [], items(frame)
        for first in range(0, len(elements), CHECKED_EVERY):
            check()
            for frame[slot] in elements[first : first + CHECKED_EVERY]:
                made.append(body(frame))
        return made

    return evaluate
