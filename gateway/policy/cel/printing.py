# SPDX-License-Identifier: Apache-2.0
"""
Prints a folded tree as the text of an expression, and names the parts of it in which something is decided.

Guarantee: the text means what the tree means; every operator has brackets, so two texts are equal exactly if their
trees are. Comments, blanks and needless brackets of the author are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import lark

from gateway.policy.cel.check import MACROS
from gateway.policy.cel.parse import Node

UNCHANGED: Final[Mapping[int, str]] = MappingProxyType({})
SIGNS: Final[Mapping[str, str]] = {
    "relation_eq": "==",
    "relation_ne": "!=",
    "relation_lt": "<",
    "relation_le": "<=",
    "relation_gt": ">",
    "relation_ge": ">=",
    "relation_in": "in",
    "addition_add": "+",
    "addition_sub": "-",
    "multiplication_mul": "*",
    "multiplication_div": "/",
    "multiplication_mod": "%",
}
CHAIN_SIGNS: Final[Mapping[str, str]] = {"conditionalor": "||", "conditionaland": "&&"}
PREDICATES: Final = frozenset({"all", "exists", "exists_one", "filter"})
"""Macros whose second argument is true or false of each element; of `map` with three arguments it is, too."""


def text_of(node: Node, changed: Mapping[int, str] = UNCHANGED) -> str:
    """
    Return the text of `node`; a node whose `id` is in `changed` is printed as the text there.
    """
    return _Printer(changed).text(node)


class _Printer:
    """Prints the nodes of one tree. The methods are named after the nodes; all others are their children in a row."""

    def __init__(self, changed: Mapping[int, str]) -> None:
        self._changed = changed

    def text(self, node: Any) -> str:
        if not isinstance(node, lark.Tree):
            return str(node)
        other = self._changed.get(id(node))
        if other is not None:
            return other
        printed: str = getattr(self, str(node.data), self._row)(node)
        return printed

    def _row(self, node: Node) -> str:
        return "".join(map(self.text, node.children))

    def expr(self, node: Node) -> str:
        condition, then, otherwise = map(self.text, node.children)
        return f"({condition} ? {then} : {otherwise})"

    def conditionalor(self, node: Node) -> str:
        return f"({f' {CHAIN_SIGNS[str(node.data)]} '.join(map(self.text, node.children))})"

    conditionaland = conditionalor

    def relation(self, node: Node) -> str:
        sign, right = node.children
        return f"({self.text(sign.children[0])} {SIGNS[str(sign.data)]} {self.text(right)})"

    addition = multiplication = relation

    def unary(self, node: Node) -> str:
        sign, operand = node.children
        return f"{'!' if sign.data == 'unary_not' else '-'}{self.text(operand)}"

    def member_dot(self, node: Node) -> str:
        return f"{self._target(node)}.{node.children[1]}"

    def member_dot_arg(self, node: Node) -> str:
        return f"{self._target(node)}.{node.children[1]}({''.join(map(self.text, node.children[2:]))})"

    def member_index(self, node: Node) -> str:
        return f"{self._target(node)}[{self.text(node.children[1])}]"

    def _target(self, node: Node) -> str:
        first = node.children[0]
        return f"({self.text(first)})" if first.data in {"literal", "unary"} else self.text(first)

    def ident_arg(self, node: Node) -> str:
        return f"{node.children[0]}({''.join(map(self.text, node.children[1:]))})"

    def list_lit(self, node: Node) -> str:
        return f"[{self._row(node)}]"

    def map_lit(self, node: Node) -> str:
        return f"{{{self._row(node)}}}"

    def exprlist(self, node: Node) -> str:
        return ", ".join(map(self.text, node.children))

    def mapinits(self, node: Node) -> str:
        parts = list(map(self.text, node.children))
        return ", ".join(f"{key}: {value}" for key, value in zip(parts[::2], parts[1::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A part of an expression that is true or false, and what depends on it (`role`, words for people)."""

    node: Node
    role: str


def decisions_of(tree: Node) -> Iterator[Decision]:
    """
    Yield the parts of `tree` that are decided: the whole, operands of chains, conditions, predicates of macros.

    In the order of their text.
    """
    yield Decision(node=tree, role="the expression")
    for node in nodes_of(tree):
        match str(node.data):
            case "conditionalor" | "conditionaland" as chain:
                yield from (Decision(node=one, role=f"operand of {CHAIN_SIGNS[chain]}") for one in node.children)
            case "expr":
                yield Decision(node=node.children[0], role="condition of ? :")
            case "member_dot_arg" if (body := predicate_of(node)) is not None:
                yield Decision(node=body, role=f"predicate of {node.children[1]}")


def predicate_of(call: Node) -> Node | None:
    """Return the predicate of a macro; None if `call` is of another method, or a `map` of every element."""
    name = str(call.children[1])
    if name not in MACROS:
        return None
    arguments = call.children[2].children
    has_predicate = name in PREDICATES or len(arguments) > 2
    return arguments[1] if has_predicate else None


def nodes_of(tree: Node) -> Iterator[Node]:
    """Yield every node below and including `tree`, each before its children, in the order of the text."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(child for child in reversed(node.children) if isinstance(child, lark.Tree))


def place_in(node: Node) -> tuple[int, int]:
    """Return line and column (from 1) where `node` begins; a literal `true` has none, and (1, 1)."""
    for one in nodes_of(node):
        line, column = getattr(one.meta, "line", None), getattr(one.meta, "column", None)
        if line and column:
            return line, column
    return 1, 1
