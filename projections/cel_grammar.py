# SPDX-License-Identifier: Apache-2.0
"""
cel-python's grammar of CEL, with unambiguous patterns for strings: the parser of policies, and the names they read.

Guarantee: lexing takes time linear in the text. In cel-python's own grammar an escape in a string matches as one
element or as a backslash followed by a character, so an unclosed string with n escapes is tried in 2^n ways: 30
backslashes take minutes, and the interpreter's lock is held throughout.

What a text is read as stays the same, also where CEL says otherwise: an escaped quote closes a string that nothing else
closes (`'a\\'` ends at its last character).
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

import lark
from celpy.celparser import CELParser

_TERMINAL: Final = re.compile(r"^(STRING_LIT|MLSTRING_LIT)\s*:.*\n(?:\s*\|.*\n)*", re.MULTILINE)


# A backslash before a quote stands in brackets: lark would take the two for an escaped quote of its own.


def _one_line(quote: str) -> str:
    return rf"/[rR]?{quote}(?:\\.|[^{quote}\\\n])*(?:{quote}|[\\]{quote})/"


def _lines(quote: str) -> str:
    three = quote * 3
    return rf"/[rR]?{three}(?:\\(?:.|\n)|(?!{three})[^\\])*(?:{three}|[\\]{three})/"


_STRINGS: Final = {
    "STRING_LIT": " | ".join(map(_one_line, ('"', "'"))),
    "MLSTRING_LIT": " | ".join(map(_lines, ('"', "'"))),
}


@cache
def open_parser() -> lark.Lark:
    """
    Return a parser over cel-python's grammar with our strings, otherwise as cel-python makes its own; made once.

    Raises:
        ValueError: if cel-python's grammar defines its strings in other terminals than we replace.
    """
    return lark.Lark(
        _read_grammar(),
        parser="lalr",
        start="expr",
        g_regex_flags=re.MULTILINE,
        lexer_callbacks={"IDENT": _literal},
        propagate_positions=True,
        maybe_placeholders=False,
        priority="invert",
    )


def _literal(name: lark.Token) -> lark.Token:
    """What `CELParser.ambiguous_literals` does with a name, without losing its place."""
    kind = CELParser.ambiguous_literals(name).type
    return name if kind == name.type else lark.Token.new_borrow_pos(kind, str(name), name)


def free_names(expression: str) -> frozenset[str] | None:
    """
    Return the names in an expression that could be variables: those not after a dot. None if its tokens are not CEL.

    The variable of a macro counts as well, so a name may be returned that the expression does not read, and none that
    it reads is left out.
    """
    names: set[str] = set()
    before = ""
    try:
        for token in _open_lexer().lex(expression):
            if token.type == "IDENT" and before != "DOT":
                names.add(str(token))
            before = token.type
    except lark.exceptions.UnexpectedInput:
        return None
    return frozenset(names)


def fields_named(expression: str) -> frozenset[tuple[str, str]] | None:
    """
    Return the pairs of a name that could be a variable and a field behind its dot, as in `commit.name`.

    None if its tokens are not CEL.
    """
    fields: set[tuple[str, str]] = set()
    try:
        tokens = [(token.type, str(token)) for token in _open_lexer().lex(expression)]
    except lark.exceptions.UnexpectedInput:
        return None
    for place in range(len(tokens) - 2):
        (kind, name), (dot, _), (of_field, field) = tokens[place : place + 3]
        is_root = place == 0 or tokens[place - 1][0] != "DOT"
        if is_root and (kind, dot, of_field) == ("IDENT", "DOT", "IDENT"):
            fields.add((name, field))
    return frozenset(fields)


@cache
def _open_lexer() -> lark.Lark:
    """Return a lexer over the same grammar: it is made in a sixth of the time that the parser's tables take."""
    return lark.Lark(_read_grammar(), parser=None, lexer="basic", start="expr", g_regex_flags=re.MULTILINE)


def _read_grammar() -> str:
    return _grammar(files("celpy").joinpath("cel.lark").read_text(encoding="utf-8"))


def _grammar(text: str) -> str:
    found = [match[1] for match in _TERMINAL.finditer(text)]
    if sorted(found) != sorted(_STRINGS):
        raise ValueError(f"cel-python's grammar: expected the terminals {sorted(_STRINGS)}, found {found}")
    return _TERMINAL.sub(lambda match: f"{match[1]}: {_STRINGS[match[1]]}\n\n", text)
