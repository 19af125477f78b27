# SPDX-License-Identifier: Apache-2.0
"""
Remarks about an expression that compiles: parts that are constant or stand there twice, names that hide others, and
comparisons of types that are never equal.

Types are known of literals, of what functions and macros give, and of the fields of variables (from the variables of an
empty commit). Of everything else nothing is said: a remark is always right, but not all faults are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import lark

from gateway.policy.cel.check import MACROS, name_of
from gateway.policy.cel.functions import TIME_PARTS
from gateway.policy.cel.parse import Node
from gateway.policy.cel.printing import CHAIN_SIGNS, SIGNS, decisions_of, nodes_of, place_in, text_of
from gateway.policy.cel.values import TYPES
from gateway.policy.inspected import Remark, Rule
from gateway.policy.vocabulary import variables_of

_LITERALS: Final[Mapping[str, str]] = {
    "BOOL_LIT": "bool",
    "BYTES_LIT": "bytes",
    "FLOAT_LIT": "number",
    "INT_LIT": "number",
    "MLSTRING_LIT": "string",
    "NULL_LIT": "null",
    "STRING_LIT": "string",
    "UINT_LIT": "number",
}
_RESULTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("all", "bool", "contains", "endsWith", "exists", "exists_one", "has"), "bool"),
    **dict.fromkeys(("classification_satisfied", "has_column", "has_partition", "is_narrowed"), "bool"),
    **dict.fromkeys(("matches", "startsWith"), "bool"),
    **dict.fromkeys(("double", "indexOf", "int", "lastIndexOf", "size", "uint", *TIME_PARTS), "number"),
    **dict.fromkeys(("charAt", "column_type", "join", "lowerAscii", "region", "substring", "trim"), "string"),
    **dict.fromkeys(("filter", "map", "split"), "list"),
    "age": "duration",
    "bytes": "bytes",
    "duration": "duration",
    "string": "string",
    "timestamp": "timestamp",
    "upperAscii": "string",
}
"""The types that functions, methods and macros give."""
_PYTHON: Final[Mapping[type, str]] = {
    bool: "bool",
    dict: "map",
    float: "number",
    int: "number",
    list: "list",
    str: "string",
}
_ORDERED: Final = frozenset({"relation_lt", "relation_le", "relation_gt", "relation_ge"})


def remarks_on(tree: Node, *, kind: str, zero: Mapping[str, Any]) -> tuple[Remark, ...]:
    """
    Return the remarks on a checked and folded `tree`; `zero` are the variables of an empty commit.
    """
    remarks = [*_constants(tree), *_duplicates(tree), *_shadowed(tree, frozenset(variables_of(kind)))]
    remarks.extend(_type_remarks(tree, frozenset(), zero))
    return tuple(sorted(remarks, key=lambda remark: (remark.line, remark.column, remark.rule)))


def _remark(rule: Rule, node: Node, words: str) -> Remark:
    line, column = place_in(node)
    return Remark(rule=rule, line=line, column=column, words=words)


def _constants(tree: Node) -> Iterator[Remark]:
    for decision in decisions_of(tree):
        if not _free_names(decision.node, frozenset()):
            words = f"{decision.role} is constant: {text_of(decision.node):.80} reads nothing of the commit"
            yield _remark(Rule.CONSTANT, decision.node, words)
            if decision.node is tree:
                return


def _free_names(node: Node, bound: frozenset[str]) -> frozenset[str]:
    """Return the names that `node` reads: no types, and nothing that it binds itself."""
    if node.data == "ident":
        name = str(node.children[0])
        return frozenset() if name in bound or name in TYPES else frozenset({name})
    found: frozenset[str] = frozenset()
    for child, names in _with_bound(node, bound):
        found |= _free_names(child, names)
    return found


def _with_bound(node: Node, bound: frozenset[str]) -> Iterator[tuple[Node, frozenset[str]]]:
    """Yield the children of `node` that are evaluated, each with the names that macros bind there."""
    if node.data == "member_dot_arg" and str(node.children[1]) in MACROS:
        target, _, arguments = node.children
        yield target, bound
        inner = bound | {name_of(arguments.children[0]) or ""}
        yield from ((body, inner) for body in arguments.children[1:])
        return
    yield from ((child, bound) for child in node.children if isinstance(child, lark.Tree))


def _duplicates(tree: Node) -> Iterator[Remark]:
    for node in nodes_of(tree):
        match str(node.data):
            case "conditionalor" | "conditionaland" as chain:
                seen: set[str] = set()
                for operand in node.children:
                    text = text_of(operand)
                    if text in seen:
                        words = f"{text:.80} is an operand of the same {CHAIN_SIGNS[chain]} already"
                        yield _remark(Rule.DUPLICATE, operand, words)
                    seen.add(text)
            case "relation" if text_of(node.children[0].children[0]) == text_of(node.children[1]):
                sign = SIGNS[str(node.children[0].data)]
                yield _remark(Rule.DUPLICATE, node, f"both sides of {sign} are {text_of(node.children[1]):.80}")
            case "expr" if text_of(node.children[1]) == text_of(node.children[2]):
                yield _remark(Rule.DUPLICATE, node, f"both branches of ? : are {text_of(node.children[1]):.80}")


def _shadowed(tree: Node, variables: frozenset[str]) -> Iterator[Remark]:
    waiting = [(tree, variables)]
    while waiting:
        node, known = waiting.pop()
        children = list(_with_bound(node, known))
        for child, names in children:
            if names is not known and child is node.children[2].children[1]:
                name = name_of(node.children[2].children[0])
                if name in known:
                    words = f"the name {name} for an element of {node.children[1]} hides a variable of that name"
                    yield _remark(Rule.SHADOWED, node.children[2].children[0], words)
        waiting.extend(reversed(children))


def _type_remarks(node: Node, bound: frozenset[str], zero: Mapping[str, Any]) -> Iterator[Remark]:
    if node.data == "relation":
        words = _of_comparison(node, bound, zero)
        if words is not None:
            yield _remark(Rule.TYPES, node, words)
    for child, names in _with_bound(node, bound):
        yield from _type_remarks(child, names, zero)


def _of_comparison(node: Node, bound: frozenset[str], zero: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the types of a comparison; None if nothing is known to be."""
    sign = node.children[0]
    left, right = (_type_of(side, bound, zero) for side in (sign.children[0], node.children[1]))
    if sign.data == "relation_in":
        if right not in {None, "list", "map"}:
            return f"in looks into a list or a map, and this is a {right}: it always fails"
        items = _types_of_items(node.children[1], bound, zero)
        if left is not None and items and None not in items and left not in items:
            return f"a {left} is never in a list of {' and '.join(sorted(f'{item}s' for item in items))}"
        return None
    if left is None or right is None or left == right:
        return None
    if sign.data in _ORDERED:
        return f"{SIGNS[str(sign.data)]} compares a {left} with a {right}: it always fails"
    return f"{SIGNS[str(sign.data)]} compares a {left} with a {right}, which are never equal"


def _types_of_items(node: Node, bound: frozenset[str], zero: Mapping[str, Any]) -> frozenset[str | None]:
    """Return the types of the items of a list literal; none for anything else."""
    inner = node.children[0] if node.data == "primary" else node
    if inner.data != "list_lit" or not inner.children:
        return frozenset()
    return frozenset(_type_of(item, bound, zero) for item in inner.children[0].children)


def _type_of(node: Node, bound: frozenset[str], zero: Mapping[str, Any]) -> str | None:
    """Return the type that `node` certainly has; None if that is not known."""
    match str(node.data):
        case "literal":
            return _LITERALS.get(getattr(node.children[0], "type", ""))
        case "conditionalor" | "conditionaland" | "relation":
            return "bool"
        case "unary":
            return "bool" if node.children[0].data == "unary_not" else _type_of(node.children[1], bound, zero)
        case "addition" | "multiplication":
            left = _type_of(node.children[0].children[0], bound, zero)
            return left if left in {"number", "string", "list", "bytes"} else None
        case "expr":
            then, otherwise = (_type_of(branch, bound, zero) for branch in node.children[1:])
            return then if then == otherwise else None
        case "primary":
            return _type_of(node.children[0], bound, zero)
        case "list_lit" | "map_lit" as literal:
            return literal.removesuffix("_lit")
        case "ident_arg":
            return _RESULTS.get(str(node.children[0]))
        case "member_dot_arg":
            return _RESULTS.get(str(node.children[1]))
        case "ident" | "member_dot":
            return _PYTHON.get(type(_zero_of(node, bound, zero)))
        case _:
            return None


def _zero_of(node: Node, bound: frozenset[str], zero: Mapping[str, Any]) -> Any:
    """Return the value that a variable or a known field has in an empty commit; None if there is none."""
    if node.data == "primary":
        return _zero_of(node.children[0], bound, zero)
    if node.data == "ident":
        name = str(node.children[0])
        return None if name in bound else zero.get(name)
    if node.data != "member_dot":
        return None
    container = _zero_of(node.children[0], bound, zero)
    return container.get(str(node.children[1])) if isinstance(container, dict) else None
