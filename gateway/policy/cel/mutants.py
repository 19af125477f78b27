# SPDX-License-Identifier: Apache-2.0
"""
Mutants: expressions that differ from a given one by one small change, as a mistake of an author would.

Guarantee: each differs in its text from the original and from the others, and compiles as the original does: no change
makes a new name, a new function or another type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final

from gateway.policy.cel.parse import Node
from gateway.policy.cel.printing import CHAIN_SIGNS, SIGNS, decisions_of, nodes_of, place_in, text_of
from gateway.policy.inspected import Mutant

MUTANTS_MAX: Final = 200
"""Of one expression; of more changes, every n-th is made."""

_OTHER_SIGNS: Final[Mapping[str, str]] = {
    "relation_eq": "!=",
    "relation_ne": "==",
    "relation_lt": "<=",
    "relation_le": "<",
    "relation_gt": ">=",
    "relation_ge": ">",
    "addition_sub": "+",
}
_OTHER_MACROS: Final[Mapping[str, str]] = {"all": "exists", "exists": "all", "exists_one": "exists"}
_STRING: Final = re.compile(r"([rRbB]*)('''|\"\"\"|'|\")(.*)\2", re.DOTALL)
_NEGATED: Final = frozenset({"relation_eq", "relation_ne"})
"""Signs whose other sign is their negation already."""


def mutants_of(tree: Node) -> tuple[Mutant, ...]:
    """
    Return the mutants of a checked and folded `tree`, in the order of their places.
    """
    changes = sorted(
        ((*place_in(node), node, text, words) for node, text, words in _changes(tree)), key=itemgetter(0, 1)
    )
    step = -(-len(changes) // MUTANTS_MAX) or 1
    found = {text_of(tree)}
    mutants = []
    for line, column, node, text, words in changes[::step]:
        expression = text_of(tree, {id(node): text})
        if expression not in found:
            found.add(expression)
            mutants.append(Mutant(expression=expression, line=line, column=column, words=words))
    return tuple(mutants)


def _changes(tree: Node) -> Iterator[tuple[Node, str, str]]:
    """Yield each change: the node, the text that stands in its place, and what was done."""
    for decision in decisions_of(tree):
        node, text = decision.node, text_of(decision.node)
        if node.data == "unary" and node.children[0].data == "unary_not":
            yield node, text_of(node.children[1]), "a negation dropped"
        elif node.data != "literal" and not (node.data == "relation" and node.children[0].data in _NEGATED):
            yield node, f"!({text})", f"{decision.role} negated"
    for node in nodes_of(tree):
        yield from _changes_of(node)


def _changes_of(node: Node) -> Iterator[tuple[Node, str, str]]:
    children = node.children
    match str(node.data):
        case "conditionalor" | "conditionaland" as chain:
            yield from _changes_of_chain(node, chain)
        case "relation" | "addition" if (other := _OTHER_SIGNS.get(str(children[0].data))) is not None:
            sign, right = children
            left = text_of(sign.children[0])
            yield node, f"({left} {other} {text_of(right)})", f"{SIGNS[str(sign.data)]} changed to {other}"
        case "expr":
            condition, then, otherwise = map(text_of, children)
            yield node, f"({condition} ? {otherwise} : {then})", "the branches of ? : swapped"
        case "member_dot_arg" if (other := _OTHER_MACROS.get(str(children[1]))) is not None:
            target, name, arguments = children
            yield node, f"{text_of(target)}.{other}({text_of(arguments)})", f"{name} changed to {other}"
        case "literal" if (literal := _other_literal(children[0])) is not None:
            yield node, literal, f"{str(children[0])!s:.40} changed to {literal:.40}"


def _changes_of_chain(node: Node, chain: str) -> Iterator[tuple[Node, str, str]]:
    texts = [text_of(child) for child in node.children]
    sign = CHAIN_SIGNS[chain]
    other = next(one for one in CHAIN_SIGNS.values() if one != sign)
    yield node, f"({f' {other} '.join(texts)})", f"{sign} changed to {other}"
    for position, dropped in enumerate(texts):
        rest = [*texts[:position], *texts[position + 1 :]]
        yield node, f"({f' {sign} '.join(rest)})", f"the operand {dropped:.60} of {sign} dropped"


def _other_literal(token: Any) -> str | None:
    """Return another literal of the same type; None for a null, and for a string with escapes."""
    text = str(token)
    match token.type:
        case "BOOL_LIT":
            return "false" if text == "true" else "true"
        case "INT_LIT" if not text.lower().startswith(("0x", "-")):
            return str(int(text) + 1)
        case "UINT_LIT" if not text.lower().startswith("0x"):
            return f"{int(text[:-1]) + 1}u"
        case "STRING_LIT" | "MLSTRING_LIT" | "BYTES_LIT" if "\\" not in text and (parts := _STRING.fullmatch(text)):
            return f"{parts[1]}{parts[2]}{parts[3]}~{parts[2]}"
        case _:
            return None
