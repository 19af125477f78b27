# SPDX-License-Identifier: Apache-2.0
"""
Inspects an expression for its author: in the worker, which alone parses, and never for a commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.policy.cel.check import FUNCTIONS, MACROS, Needs
from gateway.policy.cel.compile import Evaluate, Frame
from gateway.policy.cel.mutants import mutants_of
from gateway.policy.cel.parse import Node
from gateway.policy.cel.printing import decisions_of, nodes_of, place_in, text_of
from gateway.policy.cel.remarks import remarks_on
from gateway.policy.cel.values import Value
from gateway.policy.inspected import Branch, Inspection

SHOWN_MAX: Final = 200
"""Characters of a branch's text that are shown."""


def inspection_of(tree: Node, needs: Needs, *, kind: str, zero: Mapping[str, Any]) -> Inspection:
    """
    Return what is known of a checked and folded `tree` that reads `needs`.
    """
    return Inspection(
        text=text_of(tree),
        reads={name: None if fields is None else tuple(sorted(fields)) for name, fields in sorted(needs.items())},
        functions=tuple(sorted(_called(tree))),
        loops=_loops(tree),
        remarks=remarks_on(tree, kind=kind, zero=zero),
        mutants=mutants_of(tree),
    )


def _called(tree: Node) -> set[str]:
    names = {"ident_arg": 0, "member_dot_arg": 1}
    return {str(node.children[names[str(node.data)]]) for node in nodes_of(tree) if str(node.data) in names}


def _loops(node: Node) -> int:
    """Return how many macros are nested: the body of one runs for each element of its list."""
    if node.data == "member_dot_arg" and str(node.children[1]) in MACROS and str(node.children[1]) not in FUNCTIONS:
        target, _, arguments = node.children
        return max(_loops(target), 1 + max(map(_loops, arguments.children[1:])))
    return max((_loops(child) for child in node.children if hasattr(child, "children")), default=0)


class Taken:
    """
    Remembers which of the two values each decision of a tree took; `watch` is for `compile_tree`.

    They are the bits of an integer: two for each decision in the order of the text, the lower one for true.
    """

    def __init__(self, tree: Node) -> None:
        self._decisions = list(decisions_of(tree))
        self._places = {id(decision.node): place for place, decision in enumerate(self._decisions)}
        self._bits = 0

    def watch(self, node: Node, evaluate: Evaluate) -> Evaluate:
        """Return `evaluate`, or for a decision a function that also remembers its value."""
        place = self._places.get(id(node))
        if place is None:
            return evaluate
        when_true, when_false = 1 << 2 * place, 2 << 2 * place

        def remembering(frame: Frame) -> Value:
            value = evaluate(frame)
            if isinstance(value, bool):
                self._bits |= when_true if value else when_false
            return value

        return remembering

    def take(self) -> int:
        """Return the values since the last call, and forget them."""
        bits, self._bits = self._bits, 0
        return bits

    def branches(self) -> tuple[Branch, ...]:
        """Return every decision with its values, in the order of the text."""
        found = []
        for place, decision in enumerate(self._decisions):
            line, column = place_in(decision.node)
            values = self._bits >> 2 * place
            found.append(
                Branch(
                    role=decision.role,
                    text=text_of(decision.node)[:SHOWN_MAX],
                    line=line,
                    column=column,
                    was_true=bool(values & 1),
                    was_false=bool(values & 2),
                )
            )
        return tuple(found)
