# SPDX-License-Identifier: Apache-2.0
"""
Reads row filters, and conditions of masks, from the tree of an expression: a subset of CEL.

Guarantee: what is returned can be made into a predicate over columns once the caller is known. All else is refused with
its place and with what is allowed there: a filter that could be evaluated only row by row, by us, would restrict no
engine.

Meanings are SQL's where CEL has none for a table: a comparison with null is neither true nor false, and a row is shown
only where the whole filter is true.
"""

from __future__ import annotations

from typing import Any, Final

import lark

from gateway.policy.cel.check import name_of
from gateway.policy.cel.literals import check_literals, value_of
from gateway.policy.cel.parse import Node
from gateway.policy.cel.printing import place_in
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.restrictions.written import (
    DEPTH_MAX,
    ELEMENTS_MAX,
    LITERAL_BYTES_MAX,
    MASK_CONDITION,
    NODES_MAX,
    Always,
    CallerCompared,
    CallerHas,
    CallerIn,
    CallerMatches,
    CallerText,
    CallerTexts,
    ColumnCompared,
    ColumnIn,
    ColumnIsNull,
    ColumnStartsWith,
    Every,
    Negated,
    Operand,
    Place,
    RowColumn,
    Some,
    Written,
    WrittenLiteral,
    children_of,
)

ROW: Final = "row"
PRINCIPAL: Final = "principal"

_SIGNS: Final = {
    "relation_eq": "==",
    "relation_ne": "!=",
    "relation_lt": "<",
    "relation_le": "<=",
    "relation_gt": ">",
    "relation_ge": ">=",
}
_TURNED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EQUALITY: Final = frozenset({"==", "!="})
_LISTS: Final = ("roles", "groups")
_ALLOWED: Final = (
    "allowed are comparisons of a column (row.region == 'EU'), row.region in ['EU', 'UK'], row.name.startsWith('a'), "
    "row.region == null, columns of booleans, the same with principal.email, principal.attributes.x, principal.roles "
    "and principal.groups, and &&, ||, ! and brackets"
)
_ALLOWED_OF_CALLER: Final = (
    "allowed are 'x' in principal.roles, 'x' in principal.groups, principal.email == 'x', "
    "principal.attributes.x == 'x', 'x' in principal.attributes, startsWith and endsWith on these texts, and &&, ||, ! "
    "and brackets"
)


def written_in(tree: Node, *, kind: str) -> Written:
    """
    Return what is written in a folded `tree`; `kind` is `ROW_FILTER` or `MASK_CONDITION`.

    Raises:
        PolicyNotCompiledError: at the first part that is not allowed; carries its place.
    """
    check_literals(tree)
    written = _Reader(kind).test(tree)
    _check_size(written)
    return written


class _Reader:
    """Reads the tests of one expression."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def test(self, node: Node) -> Written:
        """Return what is true or false at `node`."""
        at = _place(node)
        parts: list[Any] = node.children
        match str(node.data), parts:
            case "conditionaland", children:
                return Every(parts=tuple(map(self.test, children)), at=at)
            case "conditionalor", children:
                return Some(parts=tuple(map(self.test, children)), at=at)
            case "unary", [sign, operand] if sign.data == "unary_not":
                return Negated(part=self.test(operand), at=at)
            case "literal", [token] if token.type == "BOOL_LIT":
                return Always(value=str(token) == "true", at=at)
            case "relation", [sign, right]:
                return self._relation(node, sign, right)
            case "member_dot_arg", [target, method, *arguments]:
                return self._method(node, target, str(method), _arguments(arguments))
            case "primary", [call] if call.data == "ident_arg" and str(call.children[0]) == "has":
                return self._has(node, _arguments(call.children[1:]))
            case "expr", _:
                raise self._refused(node, "? : cannot become a filter: write (a && b) || (!a && c)")
            case _:
                column = self._column(node)
                if column is None:
                    raise self._refused(node, "this is no test that can become a filter")
                true = WrittenLiteral(kind="bool", value=True, at=at)
                return ColumnCompared(column=column, op="==", operand=true, at=at)

    def _relation(self, node: Node, sign: Any, right: Node) -> Written:
        at, left = _place(node), sign.children[0]
        if sign.data == "relation_in":
            return self._in(node, left, right)
        op = _SIGNS[str(sign.data)]
        column, other = self._column(left), self._column(right)
        if column is not None and other is not None:
            raise self._refused(node, "two columns cannot be compared")
        if column is None and other is not None:
            column, op, right = other, _TURNED[op], left
        if column is not None:
            if _is_null(right):
                if op not in _EQUALITY:
                    raise self._refused(right, "null can only be compared with == and !=")
                is_null = ColumnIsNull(column=column, at=at)
                return is_null if op == "==" else Negated(part=is_null, at=at)
            return ColumnCompared(column=column, op=op, operand=self._operand(right), at=at)
        one, two = self._operand(left), self._operand(right)
        if not isinstance(one, CallerText) and not isinstance(two, CallerText):
            raise self._refused(node, "this compares neither a column nor the caller")
        if op not in _EQUALITY:
            raise self._refused(node, "texts of the caller can only be compared with == and !=")
        self._check_texts(one, two)
        compared = CallerCompared(left=one, right=two, at=at)
        return compared if op == "==" else Negated(part=compared, at=at)

    def _in(self, node: Node, left: Node, right: Node) -> Written:
        at = _place(node)
        if self._is_attributes(right):
            key = self._operand(left)
            if not isinstance(key, WrittenLiteral) or not isinstance(key.value, str) or key.kind != "string":
                raise self._refused(left, "expected the name of an attribute as a text in quotes")
            return CallerHas(key=key.value, at=at)
        options = self._options(right)
        column = self._column(left)
        if column is not None:
            return ColumnIn(column=column, options=options, at=at)
        operand = self._operand(left)
        is_of_caller = isinstance(options, CallerTexts) or any(
            isinstance(each, CallerText) for each in (operand, *options)
        )
        if not is_of_caller:
            raise self._refused(node, "this tests neither a column nor the caller")
        self._check_texts(operand, *(() if isinstance(options, CallerTexts) else options))
        return CallerIn(operand=operand, options=options, at=at)

    def _options(self, node: Node) -> tuple[Operand, ...] | CallerTexts:
        if node.data == "primary" and node.children[0].data == "list_lit":
            elements = _arguments(node.children[0].children)
            if len(elements) > ELEMENTS_MAX:
                raise self._refused(node, f"expected at most {ELEMENTS_MAX} elements, found {len(elements)}")
            return tuple(map(self._operand, elements))
        if node.data == "member_dot" and name_of(node.children[0]) == PRINCIPAL and str(node.children[1]) in _LISTS:
            return CallerTexts(field=str(node.children[1]), at=_place(node))
        raise self._refused(node, "expected a list of literals, principal.roles or principal.groups")

    def _method(self, node: Node, target: Node, method: str, arguments: list[Node]) -> Written:
        at = _place(node)
        column = self._column(target)
        if method == "contains" and column is None and len(arguments) == 1:
            raise self._refused(node, "write it as 'x' in principal.roles")
        if method not in {"startsWith", "endsWith"} or len(arguments) != 1:
            raise self._refused(node, f"{method} cannot become a filter")
        part = self._operand(arguments[0])
        self._check_texts(part)
        if column is not None:
            if method != "startsWith":
                raise self._refused(node, "a column can be tested for how it begins, not for how it ends")
            return ColumnStartsWith(column=column, prefix=part, at=at)
        operand = self._operand(target)
        if not isinstance(operand, CallerText):
            raise self._refused(target, "this is neither a column nor a text of the caller")
        return CallerMatches(operand=operand, method=method, part=part, at=at)

    def _has(self, node: Node, arguments: list[Node]) -> Written:
        at = _place(node)
        (argument,) = arguments if len(arguments) == 1 else (node,)
        if (column := self._column(argument)) is not None:
            return Negated(part=ColumnIsNull(column=column, at=at), at=at)
        match self._caller_text(argument):
            case CallerText(key=str(key)):
                return CallerHas(key=key, at=at)
            case _:
                raise self._refused(node, "has() takes a column or an attribute, as in has(principal.attributes.x)")

    def _column(self, node: Node) -> RowColumn | None:
        """Return the column that `node` reads, None if it reads none."""
        path: list[str] = []
        at = _place(node)
        while node.data in {"member_dot", "member_index"}:
            node, last = node.children
            path.append(str(last) if isinstance(last, lark.Token) else self._name(last))
        if name_of(node) != ROW:
            return None
        if self._kind == MASK_CONDITION:
            raise self._refused(node, "the condition of a mask is about the caller, and cannot read the row")
        if not path:
            raise self._refused(node, "expected a column, as in row.region or row['the region'], found the whole row")
        return RowColumn(path=tuple(reversed(path)), at=at)

    def _name(self, node: Node) -> str:
        """Return the name in `row['name']`; whatever else is in brackets is refused if it turns out to be of a row."""
        value = value_of(node) if node.data == "literal" else None
        if isinstance(value, str):
            return str(value)
        raise self._refused(node, "expected the name of a column or an attribute as a text in quotes")

    def _operand(self, node: Node) -> Operand:
        """Return a literal or a text of the caller."""
        at = _place(node)
        if node.data == "literal":
            return self._literal(node, node.children[0], at)
        if node.data == "unary" and node.children[0].data == "unary_neg":
            operand = self._operand(node.children[1])
            if isinstance(operand, WrittenLiteral) and operand.kind == "int":
                return WrittenLiteral(kind="int", value=-int(operand.value), at=at)
        if node.data == "primary" and node.children[0].data == "ident_arg":
            call = node.children[0]
            arguments = _arguments(call.children[1:])
            if str(call.children[0]) == "timestamp" and len(arguments) == 1:
                text = self._operand(arguments[0])
                if isinstance(text, WrittenLiteral) and text.kind == "string":
                    return WrittenLiteral(kind="timestamp", value=text.value, at=at)
        if (text_of_caller := self._caller_text(node)) is not None:
            return text_of_caller
        if self._column(node) is not None:
            raise self._refused(node, "a column cannot stand here")
        raise self._refused(node, "expected a literal, principal.email or principal.attributes.x")

    def _literal(self, node: Node, token: Any, at: Place) -> WrittenLiteral:
        value: Any = value_of(node)
        match token.type:
            case "BOOL_LIT":
                return WrittenLiteral(kind="bool", value=str(token) == "true", at=at)
            case "INT_LIT":
                return WrittenLiteral(kind="int", value=int(value), at=at)
            case "STRING_LIT" | "MLSTRING_LIT":
                self._check_length(node, len(str(value).encode()))
                return WrittenLiteral(kind="string", value=str(value), at=at)
            case "BYTES_LIT":
                self._check_length(node, len(value))
                return WrittenLiteral(kind="bytes", value=bytes(value).hex(), at=at)
            case "FLOAT_LIT":
                raise self._refused(node, "write a decimal as a text, as in '12.50'; floating point cannot be compared")
            case "UINT_LIT":
                raise self._refused(node, "write the number without u")
            case _:
                raise self._refused(node, "null can only be compared with a column, by == or !=")

    def _check_length(self, node: Node, size_bytes: int) -> None:
        if size_bytes > LITERAL_BYTES_MAX:
            raise self._refused(node, f"expected at most {LITERAL_BYTES_MAX:,} bytes, found {size_bytes:,}")

    def _caller_text(self, node: Node) -> CallerText | None:
        """Return the text of the caller that `node` reads, None if it reads none."""
        at = _place(node)
        if node.data not in {"member_dot", "member_index"}:
            return None
        target, last = node.children
        if self._is_attributes(target):
            key = str(last) if isinstance(last, lark.Token) else self._name(last)
            return CallerText(field="attributes", key=key, at=at)
        if name_of(target) != PRINCIPAL or not isinstance(last, lark.Token):
            return None
        if str(last) == "email":
            return CallerText(field="email", key=None, at=at)
        raise self._refused(node, f"principal.{last} cannot stand here")

    def _is_attributes(self, node: Node) -> bool:
        return (
            node.data == "member_dot"
            and name_of(node.children[0]) == PRINCIPAL
            and str(node.children[1]) == "attributes"
        )

    def _check_texts(self, *operands: Operand) -> None:
        for operand in operands:
            if isinstance(operand, WrittenLiteral) and operand.kind != "string":
                raise _refused_at(operand.at, "expected a text: what is known of the caller are texts")

    def _refused(self, node: Node, reason: str) -> PolicyNotCompiledError:
        allowed = _ALLOWED_OF_CALLER if self._kind == MASK_CONDITION else _ALLOWED
        return _refused_at(_place(node), f"{reason}; {allowed}")


def _check_size(written: Written) -> None:
    level: list[Written] = [written]
    depth = nodes = 0
    while level:
        depth, nodes = depth + 1, nodes + len(level)
        if depth > DEPTH_MAX or nodes > NODES_MAX:
            found = f"more than {DEPTH_MAX} levels" if depth > DEPTH_MAX else f"more than {NODES_MAX} tests"
            raise _refused_at(level[-1].at, f"the filter has {found}: compare with a list (`in`) instead of many times")
        level = [child for one in level for child in children_of(one)]


def _refused_at(at: Place, reason: str) -> PolicyNotCompiledError:
    return PolicyNotCompiledError(reason, line=at.line, column=at.column)


def _is_null(node: Node) -> bool:
    token: Any = node.children[0]
    return bool(node.data == "literal" and token.type == "NULL_LIT")


def _arguments(children: list[Any]) -> list[Node]:
    return list(children[0].children) if children else []


def _place(node: Node) -> Place:
    line, column = place_in(node)
    return Place(line=line, column=column)
