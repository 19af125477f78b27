# SPDX-License-Identifier: Apache-2.0
"""
What an expression means, found in another way: cel-python's interpreter, with the macros and the logic of the CEL
language definition. Compiled expressions are compared with it.

Guarantee: a predicate that gives no boolean is an error and never counts as true; `has()` is false only if the map is
there and the field is not; errors inside a macro are values, which `||` and `&&` absorb as they absorb all others.
cel-python takes any non-empty value for true in `filter` and `exists_one`, and answers `has()` with false whatever went
wrong, so that `!has(…)` would allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import lark
from celpy import celtypes
from celpy.evaluation import Activation, CELEvalError, Evaluator

from gateway.policy.cel import library, tables
from gateway.policy.cel.check import MACROS, name_of
from gateway.policy.cel.functions import FUNCTIONS
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.literals import value_of
from gateway.policy.cel.natives import FAILURES, plain, wrapped
from gateway.policy.cel.parse import Node
from gateway.policy.cel.values import TYPES, Value, is_key, key_of, of_key
from gateway.policy.vocabulary import TIME_READ_BY

TRUE: Final = celtypes.BoolType(True)
FALSE: Final = celtypes.BoolType(False)

_OPERATORS: Final[Mapping[str, str]] = {
    "relation_lt": "_<_",
    "relation_le": "_<=_",
    "relation_gt": "_>_",
    "relation_ge": "_>=_",
    "relation_eq": "_==_",
    "relation_ne": "_!=_",
    "relation_in": "_in_",
    "addition_add": "_+_",
    "addition_sub": "_-_",
    "multiplication_mul": "_*_",
    "multiplication_div": "_/_",
    "multiplication_mod": "_%_",
    "unary_not": "!_",
    "unary_neg": "-_",
}


def evaluate(tree: Node, variables: Mapping[str, Value], interruption: Interruption) -> Value:
    """
    Return what `tree` gives on `variables`, or the `CELEvalError` that it ends in.

    Raises:
        JudgingStopped: at the next node, once `interruption` is set.
        Whatever cel-python raises on what it did not expect; to a caller that is one more error.
    """
    activation = Activation(
        vars={**TYPES, **variables}, functions={**FUNCTIONS, **_LIBRARY, TIME_READ_BY: _age(variables)}
    )
    return _Evaluator(tree, activation, interruption).visit(tree)


def _of_library(function: Callable[..., Value]) -> Callable[..., Value]:
    """Return a function on values of compiled expressions as one on cel-python's; errors are values."""

    def called(*operands: Value) -> Value:
        for operand in operands:
            if isinstance(operand, CELEvalError):
                return operand
        try:
            return wrapped(function(*map(plain, operands)))
        except FAILURES as error:
            return CELEvalError("failed", type(error), error.args)

    return called


_LIBRARY: Final = {
    name: _of_library(function)
    for name, function in {**library.FUNCTIONS, **library.METHODS, **tables.FUNCTIONS}.items()
}


def _age(variables: Mapping[str, Value]) -> Callable[[Value], Value]:
    """Return what `age(x)` is: `timestamp(request.time) - timestamp(x)`."""

    def age(moment: Value) -> Value:
        request = variables.get("request")
        if not isinstance(request, dict) or "time" not in request:
            return CELEvalError("not known", KeyError)
        return FUNCTIONS["_-_"](*(FUNCTIONS["timestamp"](each) for each in (request["time"], moment)))

    return age


def is_true(value: Value) -> bool:
    """Return whether `value` is exactly the boolean true."""
    return type(value) is celtypes.BoolType and int(value) == 1


def is_false(value: Value) -> bool:
    """Return whether `value` is exactly the boolean false."""
    return type(value) is celtypes.BoolType and int(value) == 0


class _Evaluator(Evaluator):
    """
    Evaluates folded trees (`parse.py`): a chain of `||` or `&&` is one node of many children.

    The methods are named after the nodes, as cel-python's own are, which do the rest. An error takes the place of the
    innermost node that gave it. Operators are called directly: cel-python builds type annotations at every one, which
    is half of its time.
    """

    def __init__(self, tree: Node, activation: Activation, interruption: Interruption) -> None:
        super().__init__(tree, activation)
        self._interruption = interruption

    def visit(self, tree: Node) -> Value:
        self._interruption.check()
        value = getattr(self, tree.data)(tree)
        if isinstance(value, CELEvalError) and value.line is None:
            value.line, value.column = tree.meta.line, tree.meta.column
        return value

    def visit_children(self, tree: Node) -> list[Value]:
        return [self.visit(child) if isinstance(child, lark.Tree) else child for child in tree.children]

    def literal(self, tree: Node) -> Value:
        return value_of(tree)

    def expr(self, tree: Node) -> Value:
        condition = self.visit(tree.children[0])
        if is_true(condition):
            return self.visit(tree.children[1])
        if is_false(condition):
            return self.visit(tree.children[2])
        return _no_boolean(condition)

    def conditionalor(self, tree: Node) -> Value:
        return _first(is_true, (self.visit(child) for child in tree.children), otherwise=FALSE)

    def conditionaland(self, tree: Node) -> Value:
        return _first(is_false, (self.visit(child) for child in tree.children), otherwise=TRUE)

    def relation(self, tree: Node) -> Value:
        operator, right = tree.children
        return FUNCTIONS[_OPERATORS[operator.data]](self.visit(operator.children[0]), self.visit(right))

    addition = multiplication = relation

    def unary(self, tree: Node) -> Value:
        operator, operand = tree.children
        return FUNCTIONS[_OPERATORS[operator.data]](self.visit(operand))

    def member_dot(self, tree: Node) -> Value:
        target, field = tree.children
        return FUNCTIONS["_[_]"](self.visit(target), celtypes.StringType(str(field)))

    def member_index(self, tree: Node) -> Value:
        return FUNCTIONS["_[_]"](*self.visit_children(tree))

    def primary(self, tree: Node) -> Value:
        child = tree.children[0]
        if child.data != "ident":
            return super().primary(tree)
        return self.activation.identifiers.resolve_name(None, str(child.children[0])).value

    def mapinits(self, tree: Node) -> Value:
        converted: Value = celtypes.MapType()
        values = self.visit_children(tree)
        for key, value in zip(values[::2], values[1::2], strict=True):
            for part in (key, value):
                if isinstance(part, CELEvalError):
                    return part
            if not is_key(key) or key_of(key) in converted:
                return CELEvalError("a key twice, or of a type that cannot be one", ValueError)
            dict.__setitem__(converted, key_of(key), value)
        return converted

    def macro_has_eval(self, exprlist: Node) -> Value:
        target, field = exprlist.children[0].children
        container = self.visit(target)
        if isinstance(container, CELEvalError):
            return container
        if not isinstance(container, dict):
            return CELEvalError("has() on no map", TypeError)
        return TRUE if field in container else FALSE

    def member_dot_arg(self, tree: Node) -> Value:
        macro = str(tree.children[1])
        if macro not in MACROS:
            return super().member_dot_arg(tree)
        items = self.visit(tree.children[0])
        if isinstance(items, CELEvalError):
            return items
        if not isinstance(items, list | dict):
            return CELEvalError("a macro on neither a list nor a map", TypeError)
        return self._macro(macro, list(map(of_key, items)), tree.children[2].children)

    def _macro(self, macro: str, items: list[Value], arguments: Sequence[Node]) -> Value:
        name, *_, body = arguments
        match macro:
            case "all":
                return _first(is_false, self._each(items, name, body), otherwise=TRUE)
            case "exists":
                return _first(is_true, self._each(items, name, body), otherwise=FALSE)
            case "exists_one":
                chosen = self._chosen(items, name, body)
                return chosen if isinstance(chosen, CELEvalError) else celtypes.BoolType(len(chosen) == 1)
            case "filter":
                return self._chosen(items, name, body)
            case _:  # map, of the elements that the predicate chooses if there is one between name and body
                chosen = self._chosen(items, name, arguments[1]) if len(arguments) > len(("name", "body")) else items
                if isinstance(chosen, CELEvalError):
                    return chosen
                values = list(self._each(chosen, name, body))
                failed = (value for value in values if isinstance(value, CELEvalError))
                return next(failed, celtypes.ListType(values))

    def _chosen(self, items: list[Value], name: Node, predicate: Node) -> Value:
        """Return the list of those `items` for which `predicate` is true, or the first error."""
        chosen = celtypes.ListType()
        for item, value in zip(items, self._each(items, name, predicate), strict=True):
            if is_true(value):
                chosen.append(item)
            elif not is_false(value):
                return _no_boolean(value)
        return chosen

    def _each(self, items: list[Value], name: Node, body: Node) -> Iterator[Value]:
        """Yield what `body` gives with `name` bound to each of `items`, in one scope whose variable is set anew."""
        variable = name_of(name) or ""
        scope = self.activation.nested_activation(vars={variable: None})
        referent, evaluator = scope.identifiers[variable], _Evaluator(body, scope, self._interruption)
        for item in items:
            referent.value = item
            yield evaluator.visit(body)


def _first(settles: Callable[[Value], bool], values: Iterable[Value], *, otherwise: Value) -> Value:
    """Return the first value that settles the matter; else the first that is no boolean, an error; else `otherwise`."""
    failure: Value = None
    for value in values:
        if settles(value):
            return value
        if failure is None and not (is_true(value) or is_false(value)):
            failure = _no_boolean(value)
    return otherwise if failure is None else failure


def _no_boolean(value: Value) -> CELEvalError:
    return value if isinstance(value, CELEvalError) else CELEvalError("no boolean", TypeError)
