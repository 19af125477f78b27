# SPDX-License-Identifier: Apache-2.0
"""
The values of the parts of an expression while it is evaluated, to explain a verdict.

Guarantee: tracing changes no result: what is watched is what is evaluated otherwise. A part inside of a macro is
evaluated many times; its last value is kept, which is the one that settled the macro, and how often there was one. A
part that was not evaluated, because another settled the matter, has no value. Everything is bounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import lark

from gateway.policy.cel.compile import Evaluate, Frame, NoValueError
from gateway.policy.cel.parse import Node
from gateway.policy.cel.values import Value

STEPS_MAX: Final = 500
"""Parts of an expression that are shown: those that come first."""
TEXT_MAX: Final = 200
"""Characters shown of a part's text and of its value."""
ITEMS_MAX: Final = 8
"""Elements and members shown of a list or a map, on each level."""
LEVELS_MAX: Final = 4
_CUT: Final = "…"
_PLAIN: Final = frozenset({"literal", "primary"})
"""Nodes whose value is their text, or that of the node within."""


class Trace:
    """What the nodes of one tree gave. For one evaluation."""

    def __init__(self, tree: Node) -> None:
        self._depths: dict[int, int] = {}
        self._nodes: dict[int, Node] = {}
        self._seen: dict[int, tuple[int, bool, Any]] = {}
        """By node: how often it was evaluated, whether it has a value, and that, or the error's name."""
        self._ends: dict[int, int | None] = {}
        waiting: list[tuple[Node, int, int | None]] = [(tree, 0, None)]
        while waiting:
            node, depth, end = waiting.pop()
            # A node that ends in `true` or `false` does not know its end: it is that of the node around it.
            end = end if (own := getattr(node.meta, "end_pos", None)) is None else own
            self._depths[id(node)], self._nodes[id(node)], self._ends[id(node)] = depth, node, end
            waiting += [(child, depth + 1, end) for child in node.children if isinstance(child, lark.Tree)]

    def watch(self, node: Node, evaluate: Evaluate) -> Evaluate:
        """Return `evaluate`, which is the function of `node`, with a note of each value."""
        if node.data in _PLAIN:
            return evaluate
        seen, key = self._seen, id(node)

        def watched(frame: Frame) -> Value:
            times = seen[key][0] if key in seen else 0
            try:
                value = evaluate(frame)
            except NoValueError as error:
                seen[key] = (times + 1, False, error.cause.__name__)
                raise
            seen[key] = (times + 1, True, value)
            return value

        return watched

    def steps(self, expression: str) -> list[dict[str, Any]]:
        """
        Return the parts of the expression that were evaluated, in the order of the text, the outer one first.

        Each has `text`, `line` and `column` (from 1), `depth`, `times`, and `value` (JSON as text, cut) or `error`.
        """
        found: list[tuple[int, int, dict[str, Any]]] = []
        for key, (times, has_value, value) in self._seen.items():
            meta = self._nodes[key].meta
            step = {
                "text": _cut(" ".join(expression[meta.start_pos : self._ends[key]].split())),
                "line": meta.line,
                "column": meta.column,
                "depth": self._depths[key],
                "times": times,
                **({"value": shown(value)} if has_value else {"error": value}),
            }
            found.append((meta.start_pos, self._depths[key], step))
        found.sort(key=lambda one: one[:2])
        return _with_levels([step for _, _, step in found[:STEPS_MAX]])


def _with_levels(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count depths without the nodes that are not shown."""
    above: list[int] = []
    for step in steps:
        while above and above[-1] >= step["depth"]:
            above.pop()
        above.append(step["depth"])
        step["depth"] = len(above) - 1
    return steps


def shown(value: Value) -> str:
    """
    Return a value as text in the form of CEL's literals, cut.
    """
    return _cut(_text(value, LEVELS_MAX))


def _text(value: Value, levels: int) -> str:
    if value is None:
        return "null"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value[:TEXT_MAX]}"'
    if isinstance(value, list):
        items = [_text(item, levels - 1) for item in itertools.islice(value, ITEMS_MAX)] if levels else []
        return f"[{_joined(items, len(value))}]"
    if isinstance(value, Mapping):
        some = itertools.islice(value.items(), ITEMS_MAX) if levels else ()
        items = [f"{_text(key, levels - 1)}: {_text(item, levels - 1)}" for key, item in some]
        return f"{{{_joined(items, len(value))}}}"
    return repr(value)[:TEXT_MAX] if not isinstance(value, int | float) else str(value)


def _joined(items: list[str], count: int) -> str:
    rest = [f"{_CUT} {count} in all"] if count > len(items) else []
    return ", ".join([*items, *rest])


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + _CUT
