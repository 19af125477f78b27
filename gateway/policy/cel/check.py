# SPDX-License-Identifier: Apache-2.0
"""
Checks names and calls of an expression when it is saved: what can never work is refused.

Guarantee: every root identifier of a checked tree is a variable of its kind of program, a variable bound by a macro
around it, or the name of a type; every field of a variable with known fields is one of them; every function exists and
has the right number of arguments. cel-python finds all of this only when it evaluates, and not at all behind `has()`.

The result is `Needs`: which variables, and which of their fields, a program reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeAlias, cast

import lark

from gateway.policy.cel import library, tables
from gateway.policy.cel.functions import TIME_PARTS
from gateway.policy.cel.parse import Node, refuse
from gateway.policy.cel.values import TYPES
from gateway.policy.vocabulary import NOT_THERE, TIME_READ_BY, Fields, read_of_argument, variables_of

Needs: TypeAlias = "dict[str, set[str] | None]"
"""Variables that a program reads: the fields of each, or None for the whole of it."""

_NONE: Final = frozenset({0})
_ONE: Final = frozenset({1})
_TWO: Final = frozenset({2})
_ONE_OR_TWO: Final = _ONE | _TWO
_TWO_OR_THREE: Final = frozenset({2, 3})
_SOME: Final = frozenset(range(1, 33))

FUNCTIONS: Final[Mapping[str, frozenset[int]]] = {
    TIME_READ_BY: _ONE,
    "bool": _ONE,
    "bytes": _ONE,
    "double": _ONE,
    "duration": _ONE,
    "dyn": _ONE,
    "has": _ONE,
    "int": _ONE,
    "matches": _TWO,
    "size": _ONE,
    "string": _ONE,
    "timestamp": _ONE,
    "type": _ONE,
    "uint": _ONE,
    **dict.fromkeys(tables.FUNCTIONS, _TWO),
    "classification_satisfied": _TWO_OR_THREE,
    "has_partition": _TWO_OR_THREE,
    "region": _ONE,
    **dict.fromkeys(library.FUNCTIONS, _ONE),
    "math.greatest": _SOME,
    "math.least": _SOME,
    "regex.extract": _TWO,
    "regex.extractAll": _TWO,
    "regex.replace": frozenset({3, 4}),
}
"""
Called as `f(x)`, with the numbers of arguments.

These are the CEL language definition's ("List of Standard Definitions"), those of tables (`tables.py`), and those of
extensions (`library.py`).
"""

KEYWORDS: Final = frozenset({"false", "in", "null", "true"})
"""Words that are no field (CEL language definition, "Syntax")."""

RESERVED: Final = KEYWORDS | {
    *("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "namespace"),
    *("package", "return", "var", "void", "while"),
}
"""Words that are no name of an element (the same)."""

NAME_CHARACTERS_COMPARED: Final = 100
"""Of a name that is not known: how much of it is compared with those that are."""

METHODS: Final[Mapping[str, frozenset[int]]] = {
    "charAt": _ONE,
    "contains": _ONE,
    "endsWith": _ONE,
    "indexOf": _ONE_OR_TWO,
    "join": frozenset({0, 1}),
    "lastIndexOf": _ONE_OR_TWO,
    "lowerAscii": _NONE,
    "matches": _ONE,
    "replace": _TWO_OR_THREE,
    "reverse": _NONE,
    "size": _NONE,
    "split": _ONE_OR_TWO,
    "startsWith": _ONE,
    "substring": _ONE_OR_TWO,
    "trim": _NONE,
    "upperAscii": _NONE,
    **dict.fromkeys(TIME_PARTS, _NONE),
}
"""Called as `x.f(y)`, with the numbers of arguments besides `x`."""

NEVER_BOOLEAN: Final = frozenset(
    {
        *("bytes", "double", "duration", "filter", "int", "map", "size", "string", "timestamp", "type", "uint"),
        *(TIME_READ_BY, "column_type", "region"),
        *(name for name in library.FUNCTIONS if not name.startswith("math.is")),
        *library.METHODS,
    }
)
"""Functions, methods and macros whose value no program can end in."""

NAMESPACES: Final = frozenset(name.partition(".")[0] for name in library.FUNCTIONS)

MACROS: Final[Mapping[str, frozenset[int]]] = {
    "all": _TWO,
    "exists": _TWO,
    "exists_one": _TWO,
    "filter": _TWO,
    "map": _TWO_OR_THREE,
}
"""Called as `x.f(name, …)`: the first argument is a name, bound in the others to each element of `x` in turn."""


def check(tree: Node, *, kind: str) -> Needs:
    """
    Check every name and call in `tree`; return what it reads.

    Raises:
        PolicyNotCompiledError: at the first that cannot work; carries its place.
    """
    _check_boolean(tree)
    checker = _Checker(variables_of(kind))
    checker.visit(tree, bound=frozenset())
    return checker.needs


def _check_boolean(tree: Node) -> None:
    """Refuse a tree whose result is certainly not a boolean, whatever the values."""
    match tree.data, [str(getattr(child, "data", child)) for child in tree.children]:
        case ("literal", _) if getattr(tree.children[0], "type", "") != "BOOL_LIT":
            pass
        case ("addition" | "multiplication", _) | ("unary", ["unary_neg", _]) | ("primary", ["list_lit" | "map_lit"]):
            pass
        case ("member_dot_arg", [_, name, *_]) if name in NEVER_BOOLEAN or name in TIME_PARTS:
            pass
        case ("primary", ["ident_arg"]) if str(tree.children[0].children[0]) in NEVER_BOOLEAN:
            pass
        case ("expr", _):
            for branch in tree.children[1:]:
                _check_boolean(branch)
            return
        case _:
            return
    refuse(tree, "this gives no boolean; a program must end in true or false")


class _Checker:
    def __init__(self, variables: Fields) -> None:
        self._variables = variables
        self.needs: Needs = {}

    def visit(self, node: Node, *, bound: frozenset[str]) -> None:
        match node.data:
            case "ident" | "member_dot":
                self._visit_path(node, bound)
            case "ident_arg":
                self._visit_function(node, bound)
            case "member_dot_arg":
                self._visit_method(node, bound)
            case "member_object" | "fieldinits":
                refuse(node, "message literals are not supported here; use a map, as in {'a': 1}")
            case "dot_ident" | "dot_ident_arg":
                refuse(node, "a name cannot begin with a dot here")
            case _:
                self._visit_all(node.children, bound)

    def _visit_all(self, children: Iterable[object], bound: frozenset[str]) -> None:
        for child in children:
            if isinstance(child, lark.Tree):
                self.visit(child, bound=bound)

    def _visit_path(self, node: Node, bound: frozenset[str]) -> None:
        """Follow `a.b.c` from its root as far as fields are known; a path that does not begin with a name has none."""
        root, path = _path_of(node)
        for field in path:
            if field in KEYWORDS:
                refuse(field, f"{str(field)!r} is a word of the language; a map is read with ['{field}']")
        if not isinstance(root, lark.Token):
            self.visit(root, bound=bound)
            return
        name = str(root)
        if name in bound:
            return
        if name not in self._variables:
            if not path and name in TYPES:
                return
            if why := NOT_THERE.get(name):
                refuse(root, f"unknown variable {name!r}: {why}; known here: {listed(self._variables)}")
            refuse(root, _unknown("unknown variable", name, self._variables))
        self._need(name, [str(field) for field in path[:1]])
        known, place = self._variables[name], name
        for field in path:
            if known is None:
                return
            if str(field) not in known:
                refuse(
                    field,
                    f"{place} has no field {str(field)!r}{did_you_mean(str(field), known)}; it has {listed(known)}",
                )
            known, place = known[str(field)], f"{place}.{field}"

    def _need(self, name: str, read: Collection[str]) -> None:
        """Note that some fields of a variable are read, or without any the whole of it."""
        fields = self.needs.setdefault(name, set())
        if not read:
            self.needs[name] = None
        elif fields is not None:
            fields.update(read)

    def _visit_function(self, node: Node, bound: frozenset[str]) -> None:
        name, arguments = node.children[0], _arguments(node.children[1:])
        if str(name) in METHODS and str(name) not in FUNCTIONS:
            refuse(name, f"{str(name)!r} is called on a value, as in x.{name}(y)")
        _check_count(name, arguments, known=FUNCTIONS)
        if str(name) == "has" and arguments[0].data != "member_dot":
            refuse(arguments[0], "has() takes one field of something, as in has(table.properties.owner)")
        if str(name) == TIME_READ_BY:
            self._need_time(name)
        for argument in arguments:
            variable = name_of(argument)
            fields = None if variable in bound else self._variables.get(variable or "")
            read = None if fields is None else read_of_argument(str(name), fields)
            if variable is not None and read is not None:
                self._need(variable, read)
            else:
                self.visit(argument, bound=bound)

    def _need_time(self, name: lark.Token | Node) -> None:
        if "time" not in (self._variables.get("request") or ()):
            refuse(name, f"{name}() is for policies: there is no request.time here")
        self._need("request", {"time"})

    def _visit_method(self, node: Node, bound: frozenset[str]) -> None:
        target, name, arguments = node.children[0], node.children[1], _arguments(node.children[2:])
        namespace = name_of(target)
        if namespace in NAMESPACES and namespace not in bound and namespace not in self._variables:
            of_namespace = [each for each in FUNCTIONS if each.startswith(f"{namespace}.")]
            refuse(name, _unknown("unknown function", f"{namespace}.{name}", of_namespace))
        self.visit(target, bound=bound)
        if str(name) in FUNCTIONS and str(name) not in METHODS:
            refuse(name, f"{str(name)!r} is called with its value in brackets, as in {name}(x)")
        _check_count(name, arguments, known={**METHODS, **MACROS})
        if str(name) not in MACROS:
            self._visit_all(arguments, bound)
            return
        variable = name_of(arguments[0])
        if variable is None:
            refuse(arguments[0], f"the first argument of {name} must be a name for the element")
        if variable in RESERVED:
            refuse(arguments[0], f"{variable!r} is a reserved word, and cannot be a name")
        self._visit_all(arguments[1:], bound | {variable})


def name_of(node: Node) -> str | None:
    """Return the name that `node` consists of, or None if it is anything but a name."""
    if node.data == "primary" and len(node.children) == 1 and node.children[0].data == "ident":
        return str(node.children[0].children[0])
    return None


def _path_of(node: Node) -> tuple[Node | lark.Token, list[lark.Token]]:
    """Return the root of `a.b.c` (a name's token, or the expression that stands there) and the fields after it."""
    path: list[lark.Token] = []
    while node.data == "member_dot":
        node, field = node.children
        path.append(cast("lark.Token", field))
    path.reverse()
    if node.data == "primary" and node.children[0].data == "ident":
        node = node.children[0]
    return (node.children[0] if node.data == "ident" else node), path


def _arguments(children: list[Node]) -> list[Node]:
    return list(children[0].children) if children else []


def _check_count(name: Any, arguments: list[Node], *, known: Mapping[str, frozenset[int]]) -> None:
    counts = known.get(str(name))
    if counts is None:
        refuse(name, _unknown("unknown function", str(name), known))
    if len(arguments) not in counts:
        expected = " or ".join(str(count) for count in sorted(counts)) if counts != _SOME else f"1 to {len(_SOME)}"
        refuse(name, f"{name} takes {expected} argument(s), found {len(arguments)}")


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    return f"{what} {name!r}{did_you_mean(name, known)}; known here: {listed(known)}"


def no_field(place: str, name: str, known: Collection[str]) -> str:
    """Say that `place` has no field `name`, and which it has."""
    return f"{place} has no field {name!r}{did_you_mean(name, known)}; it has {listed(known)}"


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a question for the known name that is most like `name`, whatever the case; empty if none is like it."""
    of_lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower()[:NAME_CHARACTERS_COMPARED], of_lower, n=1)
    return f" (did you mean {of_lower[found[0]]!r}?)" if found else ""


def listed(names: Iterable[str]) -> str:
    """Return names in one line, sorted."""
    return ", ".join(sorted(names))
