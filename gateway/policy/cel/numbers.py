# SPDX-License-Identifier: Apache-2.0
"""
Checks that a new expression neither compares nor computes with numbers of two types, as far as its text says them.

`size(x) == 1.0` has a meaning, and `size(x) + 1.0` has none; the author meant neither. Only new expressions are
checked: those in force keep their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import lark

from gateway.policy.cel.elements import Shapes
from gateway.policy.cel.functions import TIME_PARTS
from gateway.policy.cel.parse import Node, refuse
from gateway.policy.vocabulary import Number

_LITERALS: Final[Mapping[str, str]] = {"INT_LIT": "int", "UINT_LIT": "uint", "FLOAT_LIT": "double"}
_CALLS: Final[Mapping[str, str]] = {
    **{name: name for name in ("int", "uint", "double")},
    **dict.fromkeys(("size", "indexOf", "lastIndexOf", *TIME_PARTS), "int"),
    **dict.fromkeys(("math.ceil", "math.floor", "math.round", "math.trunc"), "double"),
}
"""Functions and methods that always give one type of number."""


def check_numbers(tree: Node, shapes: Shapes) -> None:
    """
    Check the operators of `tree` whose operands are numbers of a known type; `shapes` are those of its nodes.

    Raises:
        PolicyNotCompiledError: at one that has two types.
    """
    for node in tree.iter_subtrees():  # the operands of an operator before it
        match node.data:
            case "relation":
                sign, right = node.children
                for one in _compared_with(sign, right):
                    _check_same(sign.children[0], one, "compares", shapes)
            case "addition" | "multiplication":
                sign, right = node.children
                _check_same(sign.children[0], right, "computes", shapes)


def _compared_with(sign: Node, right: Node) -> Iterator[Node]:
    """Yield what the left operand is compared with: of a list that stands there, each element."""
    if sign.data != "relation_in":
        yield right
    elif right.data == "primary" and right.children[0].data == "list_lit":
        for elements in right.children[0].children:
            yield from elements.children


def _check_same(left: Node, right: Node, verb: str, shapes: Shapes) -> None:
    one, other = _type_of(left, shapes), _type_of(right, shapes)
    if one is not None and other is not None and one != other:
        refuse(right, f"this {verb} {one} with {other}: write both as one type, as in 2 or 2.0, or with {one}(x)")


def _type_of(node: Node, shapes: Shapes) -> str | None:
    """Return the type of number that `node` gives, if it gives any; None where neither its text nor its shape says."""
    if isinstance(known := shapes.get(id(node)), Number):
        return known
    match node.data:
        case "literal":
            return _LITERALS.get(getattr(node.children[0], "type", ""))
        case "unary":
            return _type_of(node.children[1], shapes)
        case "addition" | "multiplication":
            return _type_of(node.children[0].children[0], shapes) or _type_of(node.children[1], shapes)
        case "member_dot_arg":
            return _CALLS.get(str(node.children[1]))
        case "primary" if isinstance(node.children[0], lark.Tree) and node.children[0].data == "ident_arg":
            return _CALLS.get(str(node.children[0].children[0]))
        case _:
            return None
