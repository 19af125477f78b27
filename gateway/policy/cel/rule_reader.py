# SPDX-License-Identifier: Apache-2.0
"""
Reads an access rule from its tree as a formula over tests of single variables (`rule_formulas.py`).

Guarantee: what is returned has the results of the expression, errors included. What this does not read (patterns,
arithmetic, two variables in one comparison) is an `Opaque` part with its text: nothing is guessed about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway.policy.cel.check import name_of
from gateway.policy.cel.compile import NoValueError, compile_tree
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.parse import Node
from gateway.policy.cel.printing import text_of
from gateway.policy.cel.values import TYPES
from gateway.policy.rule_formulas import (
    ELEMENT,
    ROLE,
    AllOf,
    AnyOf,
    AtLeast,
    Choice,
    Fixed,
    Formula,
    Ground,
    Inverse,
    Opaque,
    Some,
    Text,
    parts_of,
)

TEXTS: Final = frozenset({"ref", "path", "actor", "catalog", "uuid", ROLE})
LISTS: Final = frozenset({"roles", "actions"})
_OF_FEW: Final = frozenset({"op", "contentType", "type", "api"}) | frozenset(TYPES)
_METHODS: Final = {"startsWith": "begins", "endsWith": "ends", "contains": "contains"}
_TURNED: Final = {"relation_lt": "relation_gt", "relation_le": "relation_ge"}
_TURNED_BACK: Final = {sign: other for other, sign in _TURNED.items()}
_ORDER: Final = frozenset({*_TURNED, *_TURNED_BACK})
_COUNT_MAX: Final = 1_000
_FORMULAS_MAX: Final = 4_000
"""Parts of a formula: lists of literals within each other multiply."""

_NOTHING: Final = object()
"""In place of the value of a node that has none, or is no constant."""


def formula_of(tree: Node, interruption: Interruption) -> Formula:
    """
    Return what a checked, folded `tree` says.
    """
    return _Reader(interruption).read(tree, {})


class _Reader:
    """Reads one tree. `bound` are the variables of macros: the element of a list, or one of its literal values."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._made = 0

    def read(self, node: Node, bound: Mapping[str, Any]) -> Formula:
        self._interruption.check()
        self._made += 1
        if self._made > _FORMULAS_MAX:
            return self._opaque(node, bound)
        parts: list[Any] = node.children
        match str(node.data), parts:
            case "conditionaland", children:
                return AllOf(tuple(self.read(child, bound) for child in children))
            case "conditionalor", children:
                return AnyOf(tuple(self.read(child, bound) for child in children))
            case "unary", [sign, operand] if sign.data == "unary_not":
                return Inverse(self.read(operand, bound))
            case "expr", [condition, then, otherwise]:
                return Choice(self.read(condition, bound), self.read(then, bound), self.read(otherwise, bound))
        if _names_in(node) <= _OF_FEW and not _names_in(node) & bound.keys():
            return Ground(text_of(node))
        return self._test(node, parts, bound) or self._opaque(node, bound)

    def _test(self, node: Node, parts: list[Any], bound: Mapping[str, Any]) -> Formula | None:
        match str(node.data), parts:
            case "relation", [sign, right]:
                return self._relation(str(sign.data), sign.children[0], right, bound)
            case "member_dot_arg", [target, method, *arguments]:
                given = list(arguments[0].children) if arguments else []
                if str(method) in {"exists", "all"}:
                    return self._quantified(str(method), target, given, bound)
                if str(method) in _METHODS and len(given) == 1:
                    return self._method(str(method), target, given[0], bound)
            case "primary", [call] if call.data == "ident_arg" and str(call.children[0]) == "has":
                target = call.children[1].children[0].children[0]
                return Fixed(value=True) if name_of(target) in {"grant", "api"} - bound.keys() else None
        return None

    def _relation(self, sign: str, left: Node, right: Node, bound: Mapping[str, Any]) -> Formula | None:
        if sign == "relation_in":
            return self._membership(left, right, bound)
        if self._value(left, bound) is not _NOTHING:
            left, right = right, left
            sign = {**_TURNED, **_TURNED_BACK}.get(sign, sign)
        value = self._value(right, bound)
        if value is _NOTHING:
            return None
        if (sized := _sized(left)) is not None and type(value) is int:
            return self._size(sign, sized, value, bound)
        found: Formula | None = None
        if (variable := self._text(left, bound)) is not None:
            return _defined(left, self._compared(sign, variable, value))
        if (variable := self._list(left, bound)) is not None and value == []:
            found = AtLeast(variable, 1)
            return found if sign == "relation_ne" else Inverse(found) if sign == "relation_eq" else None
        return None

    def _compared(self, sign: str, variable: str, value: Any) -> Formula:
        if not isinstance(value, str):
            # Values of two types are not equal, and have no order.
            is_known = Text(variable, "long", 0)
            of_equality: dict[str, Formula] = {"relation_eq": Inverse(is_known), "relation_ne": is_known}
            return of_equality.get(sign, Fixed(value=None))
        same, behind = Text(variable, "is", value), Text(variable, "from", value)
        match sign:
            case "relation_eq":
                return same
            case "relation_ne":
                return Inverse(same)
            case "relation_ge":
                return behind
            case "relation_lt":
                return Inverse(behind)
            case "relation_gt":
                return AllOf((behind, Inverse(same)))
            case _:
                return Inverse(AllOf((behind, Inverse(same))))

    def _size(self, sign: str, sized: Node, count: int, bound: Mapping[str, Any]) -> Formula | None:
        if not 0 <= count < _COUNT_MAX:
            return None
        make: Callable[[int], Formula]
        if (variable := self._text(sized, bound)) is not None:
            make = lambda least: _defined(sized, Text(variable, "long", least))  # noqa: E731
        elif (listed := self._list(sized, bound)) is not None:
            make = lambda least: AtLeast(listed, least)  # noqa: E731
        else:
            return None
        match sign:
            case "relation_ge":
                return make(count)
            case "relation_gt":
                return make(count + 1)
            case "relation_lt":
                return Inverse(make(count))
            case "relation_le":
                return Inverse(make(count + 1))
        same = AllOf((make(count), Inverse(make(count + 1))))
        return same if sign == "relation_eq" else Inverse(same)

    def _membership(self, item: Node, container: Node, bound: Mapping[str, Any]) -> Formula | None:
        listed = self._value(container, bound)
        variable = self._text(item, bound)
        if variable is not None and isinstance(listed, list):
            each = tuple(self._compared("relation_eq", variable, one) for one in listed)
            return _defined(item, AnyOf(each or (self._compared("relation_eq", variable, None),)))
        value = self._value(item, bound)
        if (of_list := self._list(container, bound)) is not None and isinstance(value, str):
            return Some(of_list, Text(ELEMENT, "is", value))
        return None

    def _method(self, method: str, target: Node, argument: Node, bound: Mapping[str, Any]) -> Formula | None:
        value = self._value(argument, bound)
        if value is _NOTHING:
            return None
        if (variable := self._text(target, bound)) is not None:
            is_text = isinstance(value, str)
            return _defined(target, Text(variable, _METHODS[method], value)) if is_text else Fixed(value=None)
        if method == "contains" and isinstance(value, str) and (listed := self._list(target, bound)) is not None:
            return Some(listed, Text(ELEMENT, "is", value))
        return None

    def _quantified(
        self, macro: str, target: Node, arguments: Sequence[Node], bound: Mapping[str, Any]
    ) -> Formula | None:
        name, body = name_of(arguments[0]), arguments[1]
        if name is None:
            return None
        values = self._value(target, bound)
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            each = tuple(self.read(body, {**bound, name: value}) for value in values)
            return AnyOf(each) if macro == "exists" else AllOf(each)
        variable = self._list(target, bound)
        if variable is None:
            return None
        inner = self.read(body, {**bound, name: _NOTHING})
        if any(not _is_of_element(part) for part in parts_of(inner)):
            return None
        return Some(variable, inner) if macro == "exists" else Inverse(Some(variable, Inverse(inner)))

    def _text(self, node: Node, bound: Mapping[str, Any]) -> str | None:
        """Return the variable of texts that `node` is."""
        name = name_of(node)
        if name is not None and name in bound:
            return ELEMENT if bound[name] is _NOTHING else None
        if name in TEXTS:
            return name
        if node.data == "member_dot" and name_of(node.children[0]) == "grant" and "grant" not in bound:
            return "identity" if str(node.children[1]) == "identity" else None
        return ROLE if _is_first_role(node) and "roles" not in bound else None

    def _list(self, node: Node, bound: Mapping[str, Any]) -> str | None:
        """Return the list of texts that `node` is."""
        name = name_of(node)
        if name is not None:
            return name if name in LISTS and name not in bound else None
        if node.data == "member_dot" and name_of(node.children[0]) == "grant" and "grant" not in bound:
            return "granted" if str(node.children[1]) == "roles" else None
        return None

    def _value(self, node: Node, bound: Mapping[str, Any]) -> Any:
        """Return the value of a node without variables, `_NOTHING` if it has none."""
        name = name_of(node)
        if name is not None and name in bound:
            return bound[name]
        if _names_in(node):
            return _NOTHING
        try:
            return compile_tree(node, (), self._interruption).value({})
        except NoValueError:
            return _NOTHING

    def _opaque(self, node: Node, bound: Mapping[str, Any]) -> Opaque:
        read = _names_in(node)
        values = "".join(
            f", {name} = {ELEMENT if value is _NOTHING else value!r}"
            for name, value in sorted(bound.items(), key=lambda one: one[0])
            if name in read
        )
        return Opaque(f"{text_of(node)}{values}")


def _names_in(node: Node) -> set[str]:
    return {str(one.children[0]) for one in node.iter_subtrees() if one.data == "ident"}


def _is_first_role(node: Node) -> bool:
    if node.data != "member_index" or name_of(node.children[0]) != "roles":
        return False
    index = node.children[1]
    return bool(index.data == "literal" and str(index.children[0]) == "0")


def _defined(node: Node, formula: Formula) -> Formula:
    """Return `formula` about `node`; `roles[0]` is an error if there is no role."""
    return Choice(AtLeast("roles", 1), formula, Fixed(value=None)) if _is_first_role(node) else formula


def _sized(node: Node) -> Node | None:
    """Return what `node` is the size of."""
    if node.data == "member_dot_arg" and str(node.children[1]) == "size" and len(node.children) == 2:
        target: Node = node.children[0]
        return target
    if node.data == "primary" and node.children[0].data == "ident_arg" and str(node.children[0].children[0]) == "size":
        argument: Node = node.children[0].children[1].children[0]
        return argument
    return None


def _is_of_element(part: Formula) -> bool:
    match part:
        case Text(variable=variable):
            return variable == ELEMENT
        case Opaque() | Some() | AtLeast():
            return False
        case _:
            return True
