# SPDX-License-Identifier: Apache-2.0
"""
Parses the text of an expression to a syntax tree, with the position of every error.

Guarantee: a tree is at most `DEPTH_MAX` levels deep, so that evaluating it cannot exhaust the stack; any error in the
text is raised as `PolicyNotCompiledError` with line and column.

The grammar wraps each literal in ten nodes, one for each level of operator precedence. `_folded` removes those without
an operator, and makes a chain of `||` or `&&` one node: the same meaning with a sixth of the depth and time. It does
not use recursion, because the depth of its input is not bounded yet.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeAlias, cast

import lark

from gateway.policy.cel import library
from gateway.policy.cel.interruption import Interruption
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.text import check_text, place_of
from projections.cel_grammar import open_parser

Node: TypeAlias = "lark.Tree[Any]"

DEPTH_MAX: Final = 200
"""Levels of a folded tree; evaluating takes up to four frames a level, of the 1,000 that Python has by itself."""

_PRECEDENCE: Final = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"}
)
_CHAINS: Final = frozenset({"conditionalor", "conditionaland"})


def parse(expression: str, interruption: Interruption) -> Node:
    """
    Return the folded syntax tree of `expression`.

    Raises:
        JudgingStopped: at the next token, once `interruption` is set.
        PolicyNotCompiledError: if it is too long, nested too deeply, or not CEL.
    """
    check_text(expression)
    parsing = open_parser().parse_interactive(expression)
    try:
        for _ in parsing.iter_parse():
            interruption.check()
        tree = _folded(parsing.feed_eof())  # type: ignore[no-untyped-call]
    except lark.exceptions.UnexpectedInput as error:
        _refuse_syntax(expression, error)
    _check_depth(tree)
    return tree


def refuse(node: Node | lark.Token, reason: str) -> NoReturn:
    """
    Refuse the part of an expression that `node` stands for.

    Raises:
        PolicyNotCompiledError: always.
    """
    place = node if isinstance(node, lark.Token) else node.meta
    raise PolicyNotCompiledError(reason, line=place.line or 1, column=place.column or 1)


def _refuse_syntax(expression: str, error: lark.exceptions.UnexpectedInput) -> NoReturn:
    """Describe the error of the parser."""
    line, column = error.line, error.column
    if isinstance(error, lark.UnexpectedToken) and error.token.type == "$END":
        reason = "the expression ends where more was expected"
        line, column = place_of(expression, len(expression.rstrip()))
    elif isinstance(error, lark.UnexpectedToken):
        reason = f"{error.token.value!r:.60} cannot stand here"
    elif isinstance(error, lark.UnexpectedCharacters) and error.char in "'\"":
        reason = "the string that begins here is not closed, or cannot stand here"
    elif isinstance(error, lark.UnexpectedCharacters):
        reason = f"{error.char!r} cannot stand here"
    else:
        reason = "this is not a CEL expression"
    raise PolicyNotCompiledError(reason, line=line, column=column) from error


def _folded(tree: Node) -> Node:
    for node in tree.iter_subtrees():  # children before their parents
        node.children = [_replacement(child) if isinstance(child, lark.Tree) else child for child in node.children]
        if node.data in _CHAINS and len(node.children) > 1:
            first = node.children[0]
            if first.data == node.data:
                node.children = [*first.children, *node.children[1:]]
    return _replacement(tree)


def _replacement(node: Node) -> Node:
    """Return the folded form of `node`, whose own children are folded already."""
    if node.data == "member_dot_arg":
        return _of_namespace(node)
    if len(node.children) != 1:
        return node
    child = node.children[0]
    if node.data in _PRECEDENCE or (node.data == "primary" and child.data == "literal"):
        return cast("Node", child)
    if node.data == "primary" and child.data == "paren_expr":
        return cast("Node", child.children[0])
    return node


def _of_namespace(node: Node) -> Node:
    """
    Return the call of a function with a namespace, such as `strings.quote(x)`, in the form of one without.

    A function comes before a field (CEL language definition, "Name Resolution").
    """
    target, method, *arguments = node.children
    if target.data != "primary" or len(target.children) != 1 or target.children[0].data != "ident":
        return node
    namespace = target.children[0].children[0]
    name = f"{namespace}.{method}"
    if name not in library.FUNCTIONS:
        return node
    token = lark.Token.new_borrow_pos("IDENT", name, cast("lark.Token", namespace))
    call: Node = lark.Tree("ident_arg", [token, *arguments], node.meta)
    return lark.Tree("primary", [call], node.meta)


def _check_depth(tree: Node) -> None:
    level: list[Node] = [tree]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in node.children if isinstance(child, lark.Tree)]
        if not level:
            return
    refuse(level[0], f"nested too deeply: more than {DEPTH_MAX} levels; split it into several policies")
