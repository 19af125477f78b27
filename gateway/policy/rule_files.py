# SPDX-License-Identifier: Apache-2.0
"""
Reads Nessie's rule files: `nessie.server.authorization.rules.<id>=<CEL>` among the properties of its application.

Guarantee: a rule is read as Nessie reads it, or refused with its place in the file; none is left out silently. Other
properties are none of the rules' business. What cannot be an id here, what another line sets again, and what Nessie
would read in one profile only, or with the value of another property in it, is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.errors import BadRequestError, UnprocessableError
from gateway.policy.access import EACH_CHECK
from gateway.policy.mending import Edit, edited
from gateway.policy.properties import PropertiesError, Property, parse_properties, plain_lines
from gateway.policy.text import place_of
from ledger.format.events import Effect

PREFIX: Final = "nessie.server.authorization.rules."
FILE_BYTES_MAX: Final = 256 * 1024
RULES_MAX: Final = 200

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_NO_ID: Final = re.compile(r"[^a-z0-9_-]+")
_PROFILE: Final = re.compile(r"%[^.]*\.")
_EXPANDED: Final = "${"


class RuleFileError(BadRequestError):
    """The file cannot be read as one with rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRule:
    """A rule of a file, and the property that it is in. Those of Nessie permit, and are asked about each check."""

    id: str
    expression: str
    read: Property
    effect: Effect = Effect.PERMIT
    vocabulary: int = EACH_CHECK


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRule:
    """
    A rule that is not imported: why, and where in the file (both from 1).

    `edits` say in words what would have to be changed, and `mended` has the lines of the file after that; both are
    empty if there is nothing to offer.
    """

    id: str
    line: int
    column: int
    reason: str
    edits: tuple[str, ...] = ()
    mended: str = ""

    def __str__(self) -> str:
        said = f"line {self.line}, column {self.column}: rule {self.id}: {self.reason}"
        if not self.mended:
            return said
        return f"{said}; it compiles with {' and '.join(self.edits)}:\n{self.mended}"


class RuleFileRefusedError(UnprocessableError):
    """Rules of the file cannot be imported, so none of them was; `refused` has all of them."""

    def __init__(self, refused: Sequence[RefusedRule], *, count: int) -> None:
        self.refused = tuple(refused)
        listed = "\n".join(str(one) for one in self.refused)
        super().__init__(f"{len(self.refused)} of {count} rules cannot be imported, and nothing was saved:\n{listed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """The rules of a file that can be read, in its order, and those that are refused already; `text` is the file."""

    text: str
    rules: tuple[FileRule, ...]
    refused: tuple[RefusedRule, ...]

    def refuse(self, rule: FileRule, reason: str, *, line: int, column: int) -> RefusedRule:
        """Return `rule` as refused; `line` and `column` are those in its expression."""
        return refused_at(self.text, rule.id, reason, rule.read.offsets[_offset(rule, line, column)])

    def mend(self, rule: FileRule, refused: RefusedRule, edits: Sequence[Edit]) -> RefusedRule:
        """Return `refused` with `edits` of the expression of `rule`: as words, and made in the lines of the file."""
        if not edits:
            return refused
        start = rule.read.offset
        in_file = tuple(Edit(rule.read.offsets[edit.offset], edit.found, edit.put) for edit in edits)
        in_lines = tuple(Edit(edit.offset - start, edit.found, edit.put) for edit in in_file)
        return RefusedRule(
            id=refused.id,
            line=refused.line,
            column=refused.column,
            reason=refused.reason,
            edits=tuple(_in_words(self.text, edit) for edit in in_file),
            mended=edited(self.text[start : rule.read.end], in_lines),
        )


def parse_rule_file(text: str) -> RuleFile:
    """
    Return the rules of a file.

    Raises:
        RuleFileError: if it is too large, is no file of properties, or has no rules or too many.
    """
    check_size(text)
    plain = plain_lines(text)
    try:
        read = [each for each in parse_properties(plain) if PREFIX in each.key]
    except PropertiesError as error:
        raise RuleFileError(str(error), field="file") from error
    if not 1 <= len(read) <= RULES_MAX:
        raise RuleFileError(f"expected 1 to {RULES_MAX} properties {PREFIX}<id>, found {len(read)}", field="file")
    times = Counter(each.key for each in read)
    rules, refused = list[FileRule](), list[RefusedRule]()
    for each in read:
        id_ = each.key.partition(PREFIX)[2].strip('"')
        reason, offset = _why_not(each, id_, times[each.key])
        if reason:
            refused.append(refused_at(plain, id_, reason, offset))
        else:
            rules.append(FileRule(id=id_, expression=each.value, read=each))
    return RuleFile(text=plain, rules=tuple(rules), refused=tuple(refused))


def check_size(text: str) -> None:
    """
    Check the size of a file of rules.

    Raises:
        RuleFileError: if it is too large.
    """
    size_bytes = len(text.encode(errors="replace"))
    if size_bytes > FILE_BYTES_MAX:
        raise RuleFileError(f"expected at most {FILE_BYTES_MAX:,} bytes, found {size_bytes:,}", field="file")


def why_no_id(id_: str) -> str:
    """
    Return why something is no id of a rule; empty if it is one.
    """
    if _ID.fullmatch(id_):
        return ""
    possible = _NO_ID.sub("-", id_.lower()).strip("-_")[:63] or "rule"
    return (
        f"expected an id of 1 to 63 of a-z, 0-9, '_' and '-', beginning with a letter or digit, found {id_!r:.80}; "
        f"{possible} would be one"
    )


def _why_not(read: Property, id_: str, times: int) -> tuple[str, int]:
    """Return why a property is no rule that can be imported, and the offset in the file; empty if it is one."""
    before = read.key.partition(PREFIX)[0]
    if before:
        what = "of one profile of Nessie's" if _PROFILE.fullmatch(before) else "of another name"
        return f"expected a property {PREFIX}<id>, found one {what}, {before!r:.60} before it", read.offset
    if times > 1:
        return f"expected the property once, found it {times} times: Nessie takes the last", read.offset
    if reason := why_no_id(id_):
        return reason, read.offset
    if _EXPANDED in read.value:
        reason = f"expected an expression without {_EXPANDED}, which Nessie replaces with another property"
        return reason, read.offsets[read.value.index(_EXPANDED)]
    return "", read.offset


def refused_at(text: str, id_: str, reason: str, offset: int) -> RefusedRule:
    """
    Return a rule as refused, with the place of an offset in the file.
    """
    line, column = place_of(text, offset)
    return RefusedRule(id=id_, line=line, column=column, reason=reason)


def _offset(rule: FileRule, line: int, column: int) -> int:
    """Return the offset in the expression of a place in it."""
    lines = rule.expression.split("\n")
    offset = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
    return min(offset, len(rule.expression))


def _in_words(text: str, edit: Edit) -> str:
    line, column = place_of(text, edit.offset)
    where = f"at line {line}, column {column}"
    if not edit.found:
        return f"{edit.put} added {where}"
    return f"{edit.put} in place of {edit.found} {where}" if edit.put else f"without the {edit.found} {where}"
