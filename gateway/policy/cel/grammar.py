"""
cel-python's parser, with patterns for strings that read a text in one way only.

Guarantee: the lexer's time is linear in the text. In cel-python's grammar an escape in a string can be read as one
element or as a backslash and what follows it, so a string that is not closed is tried in 2^n ways for n escapes: 30
backslashes take minutes, and the interpreter's lock is held for all of it.

What a text is taken for stays as it was, also where that is not what CEL says: an escaped quote closes a string that
nothing else closes (`'a\\'` ends at its last character).
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
        _grammar(files("celpy").joinpath("cel.lark").read_text(encoding="utf-8")),
        parser="lalr",
        start="expr",
        g_regex_flags=re.MULTILINE,
        lexer_callbacks={"IDENT": CELParser.ambiguous_literals},
        propagate_positions=True,
        maybe_placeholders=False,
        priority="invert",
    )


def _grammar(text: str) -> str:
    found = [match[1] for match in _TERMINAL.finditer(text)]
    if sorted(found) != sorted(_STRINGS):
        raise ValueError(f"cel-python's grammar: expected the terminals {sorted(_STRINGS)}, found {found}")
    return _TERMINAL.sub(lambda match: f"{match[1]}: {_STRINGS[match[1]]}\n\n", text)
