# SPDX-License-Identifier: Apache-2.0
"""
Checks the fields of what lists and maps hold, as in `result.columns.all(c, c.nmae == 'id')`, and those in `x['f']`.

`check.py` follows the variables; a macro binds another name to an element, whose fields are known, too. A misspelt one
would stop every later commit, or, behind `!has()`, let it pass. Only new expressions are checked: those in force keep
their meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import lark

from gateway.policy.cel.check import KEYWORDS, MACROS, name_of, no_field
from gateway.policy.cel.literals import value_of
from gateway.policy.cel.parse import Node, refuse
from gateway.policy.cel.printing import text_of
from gateway.policy.vocabulary import ListOf, MapOf, Number, Shape, shapes_of

Shapes = Mapping[int, Shape]
"""The shapes of the nodes of one tree, by their `id`; a node of which nothing is known is not there."""

_TEXT_MAX: Final = 60
"""Characters of the part that is named in an error."""


def check_elements(tree: Node, *, kind: str) -> Shapes:
    """
    Check the fields that a checked `tree` reads of elements; return what is known of its parts.

    Raises:
        PolicyNotCompiledError: at the first field that does not exist; carries its place, and the nearest name.
    """
    reader = _Reader(shapes_of(kind))
    reader.read(tree, {})
    return reader.shapes


class _Reader:
    """Reads one tree. The names that macros have bound are a mapping to their shapes."""

    def __init__(self, variables: Mapping[str, Shape]) -> None:
        self._variables = variables
        self.shapes: dict[int, Shape] = {}

    def read(self, node: Node, bound: Mapping[str, Shape]) -> Shape:
        shape = self._shape(node, bound)
        if shape is not None:
            self.shapes[id(node)] = shape
        return shape

    def _shape(self, node: Node, bound: Mapping[str, Shape]) -> Shape:
        match str(node.data):
            case "primary" if len(node.children) == 1 and isinstance(node.children[0], lark.Tree):
                return self.read(node.children[0], bound)
            case "ident":
                name = str(node.children[0])
                return bound[name] if name in bound else self._variables.get(name)
            case "member_dot":
                target, field = node.children
                return _field(target, self.read(target, bound), str(field), field)
            case "member_index":
                return self._index(node, bound)
            case "member_dot_arg":
                return self._method(node, bound)
            case "relation":
                self._relation(node, bound)
                return None
            case "addition":
                sign, right = node.children
                left, other = self.read(sign.children[0], bound), self.read(right, bound)
                return left if left == other and isinstance(left, ListOf) else None
            case "list_lit" if node.children:
                first, *others = [self.read(child, bound) for child in node.children[0].children]
                return ListOf(first) if first is not None and all(other == first for other in others) else None
            case "expr":
                _, then, otherwise = [self.read(child, bound) for child in node.children]
                return then if then == otherwise else None
            case _:
                for child in node.children:
                    if isinstance(child, lark.Tree):
                        self.read(child, bound)
                return None

    def _index(self, node: Node, bound: Mapping[str, Shape]) -> Shape:
        target, index = node.children
        shape = self.read(target, bound)
        self.read(index, bound)
        if isinstance(shape, ListOf):
            return shape.element
        if isinstance(shape, MapOf):
            return shape.value
        key = _text(index)
        return None if key is None else _field(target, shape, key, index)

    def _relation(self, node: Node, bound: Mapping[str, Shape]) -> None:
        """Check `'name' in x` as `x['name']`; a map of fields that has not this one never has it."""
        sign, right = node.children
        left = sign.children[0]
        self.read(left, bound)
        shape, key = self.read(right, bound), _text(left)
        if sign.data == "relation_in" and key is not None and isinstance(shape, Mapping):
            _field(right, shape, key, left)

    def _method(self, node: Node, bound: Mapping[str, Shape]) -> Shape:
        target, method = node.children[0], str(node.children[1])
        arguments: list[Node] = list(node.children[2].children) if len(node.children) > 2 else []
        shape = self.read(target, bound)
        if method not in MACROS:
            for argument in arguments:
                self.read(argument, bound)
            return None
        element = shape.element if isinstance(shape, ListOf) else None
        inner = {**bound, cast("str", name_of(arguments[0])): element}
        made = [self.read(argument, inner) for argument in arguments[1:]]
        if method == "filter":
            return shape if isinstance(shape, ListOf) else None
        return ListOf(made[-1]) if method == "map" and made[-1] is not None else None


def _field(target: Node, shape: Shape, name: str, place: Node | lark.Token) -> Shape:
    """Return the shape of the field `name` of `target`, which has `shape`."""
    if isinstance(shape, MapOf):
        return shape.value
    if shape is None or isinstance(shape, ListOf | Number) or name in KEYWORDS:
        return None
    if name not in shape:
        refuse(place, no_field(f"{text_of(target):.{_TEXT_MAX}}", name[:_TEXT_MAX], shape))
    return shape[name]


def _text(node: Node) -> str | None:
    """Return the text that `node` is as a literal; None for anything else."""
    if node.data != "literal":
        return None
    value = value_of(node)
    return str(value) if isinstance(value, str) else None
