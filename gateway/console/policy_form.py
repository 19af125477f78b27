# SPDX-License-Identifier: Apache-2.0
"""
The form in which a policy is written: what was sent, what of it is wrong and where, and what differs from another text.
Pure.

What somebody has written is kept as it was sent, whatever is wrong with it. Line and column of a problem count from 1,
in the text of the field that it is about.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.admin import limits
from gateway.admin.policy_edits import PolicyText
from gateway.errors import BadRequestError
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.examples import EXAMPLES_SIZE_BYTES_MAX, Example, format_examples
from gateway.policy.messages import check_message
from gateway.policy.policy_files import PolicyFileError, format_members, parse_examples_text
from gateway.policy.scopes import EVERYTHING, KINDS, Scope, format_scope, parse_scope

TEXTS: Final = ("id", "message", "expression", "examples", "reason")
LISTS: Final = ("catalogs", "names", "operations", "properties", "uuids")
"""Members of a scope that are written one item a line."""
EXAMPLES_LENGTH_MAX: Final = 2 * EXAMPLES_SIZE_BYTES_MAX
"""Of their text, which has more blanks than what is stored; it is parsed before that is known."""
COMPARED_MAX: Final = 250_000
"""Pairs of lines: to compare more takes too long, and both texts are shown whole."""
VERSION_DIGITS_MAX: Final = 15
_KIND: Final = "kind_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """
    Something wrong with a field. With a `line` and `column`, the line is `before`, `at` and `after`: the character at
    that column, and what stands around it.
    """

    field: str
    words: str
    line: int | None = None
    column: int | None = None
    before: str = ""
    at: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLine:
    """A line of a comparison: `kind` is "same", "removed", "added" or "skipped"."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyForm:
    """
    What is in the fields of the form. `draft_version` and `policy_version` are what the author has seen: the draft that
    waits, and the newest version of the policy; 0 for none.
    """

    texts: Mapping[str, str]
    kinds: tuple[str, ...] = ()
    draft_version: int = 0
    policy_version: int = 0

    @classmethod
    def sent(cls, fields: Mapping[str, str]) -> PolicyForm:
        """
        Return what a browser has sent, which ends lines with CR and LF.

        Raises:
            BadRequestError: if a version is no number.
        """
        return cls(
            texts={name: fields.get(name, "").replace("\r\n", "\n").rstrip() for name in (*TEXTS, *LISTS)},
            kinds=tuple(kind for kind in KINDS if _KIND + kind in fields),
            draft_version=version_of(fields, "draft_version"),
            policy_version=version_of(fields, "policy_version"),
        )

    @classmethod
    def of(
        cls, policy_id: str, members: Mapping[str, Any], *, draft_version: int = 0, policy_version: int = 0
    ) -> PolicyForm:
        """Return the form that says what a policy or a draft does, given as routes show it."""
        scope = members["scope"] or {}
        examples = members["examples"] or []
        texts = {name: "\n".join(scope.get(name, ())) for name in LISTS}
        texts |= {"id": policy_id, "examples": format_members(examples).rstrip() if examples else ""}
        texts |= {name: members[name] or "" for name in ("message", "expression", "reason")}
        return cls(
            texts=texts,
            kinds=tuple(scope.get("kinds", ())),
            draft_version=draft_version,
            policy_version=policy_version,
        )

    @property
    def id(self) -> str:
        """The id of the policy."""
        return self.texts["id"]

    @property
    def reason(self) -> str:
        """Why it is written."""
        return self.texts["reason"]

    def seen(self, *, draft_version: int, policy_version: int) -> PolicyForm:
        """Return the form of somebody who has seen these versions."""
        return replace(self, draft_version=draft_version, policy_version=policy_version)

    def read(self) -> tuple[PolicyText, list[Problem]]:
        """
        Return what the form says, and what is wrong with it but for what only the engine finds; what cannot be read is
        left out.
        """
        problems: list[Problem] = []

        def check(field: str, what: Callable[[], object]) -> None:
            try:
                what()
            except BadRequestError as error:
                problems.append(Problem(field=field, words=words_of(error, field)))

        texts = self.texts
        check("id", lambda: limits.check_id(self.id))
        check(
            "message",
            lambda: check_message(
                limits.check_text(texts["message"], field="message", length_max=limits.MESSAGE_LENGTH_MAX)
            ),
        )
        check("expression", lambda: limits.check_expression(texts["expression"]))
        check("reason", lambda: limits.check_reason(self.reason))
        scope, examples = self._scope(problems), self._examples(problems)
        text = PolicyText(expression=texts["expression"], message=texts["message"], scope=scope, examples=examples)
        return text, problems

    def _scope(self, problems: list[Problem]) -> Scope:
        members: dict[str, list[str]] = {"kinds": list(self.kinds)} if self.kinds else {}
        for name in LISTS:
            items = {
                number: line.strip() for number, line in enumerate(self.texts[name].split("\n"), 1) if line.strip()
            }
            if not items:
                continue
            try:
                parse_scope({name: list(items.values())})
            except BadRequestError as error:
                problems.append(self._problem_in_list(name, error, list(items)))
            else:
                members[name] = list(items.values())
        return parse_scope(members) if members else EVERYTHING

    def _problem_in_list(self, name: str, error: BadRequestError, lines: Sequence[int]) -> Problem:
        position = (error.field or "").removeprefix(f"scope.{name}[").removesuffix("]")
        if not position.isdecimal():
            return Problem(field=name, words=words_of(error, f"scope.{name}"))
        line = lines[int(position)]
        text = self.texts[name].split("\n")[line - 1]
        return problem_at(
            name, self.texts[name], words_of(error, error.field or ""), line, 1 + len(text) - len(text.lstrip())
        )

    def _examples(self, problems: list[Problem]) -> tuple[Example, ...]:
        text = self.texts["examples"]
        if len(text) > EXAMPLES_LENGTH_MAX:
            words = f"expected at most {EXAMPLES_LENGTH_MAX:,} characters, found {len(text):,}"
            problems.append(Problem(field="examples", words=words))
            return ()
        try:
            return parse_examples_text(text)
        except PolicyFileError as error:
            problems.append(problem_at("examples", text, error.reason, *(error.place or (1, 1))))
            return ()


def problem_at(field: str, text: str, words: str, line: int, column: int) -> Problem:
    """
    Return a problem at a place of the text of a field.
    """
    lines = text.split("\n")
    shown = lines[line - 1] if line <= len(lines) else ""
    return Problem(
        field=field,
        words=words,
        line=line,
        column=column,
        before=shown[: column - 1],
        at=shown[column - 1 : column],
        after=shown[column:],
    )


def words_of(error: Exception, field: str) -> str:
    """
    Return what an error says, without the name of the field beside which it stands.
    """
    return str(error).removeprefix(f"{field}: ")


def not_compiled(expression: str, error: PolicyNotCompiledError) -> Problem:
    """
    Return the problem of an expression that does not compile.
    """
    return problem_at("expression", expression, error.reason, error.line, error.column)


def body_of_text(text: PolicyText, *, reason: str) -> dict[str, Any]:
    """
    Return what the routes for policies and drafts take.
    """
    return {
        "expression": text.expression,
        "message": text.message,
        "scope": format_scope(text.scope),
        "examples": format_examples(text.examples),
        "reason": reason,
    }


def written(members: Mapping[str, Any] | None) -> str:
    """
    Return what a policy or a draft says, given as routes show it, as the text of a file; empty for none. Its reason is
    not there: it belongs to the edit.
    """
    if members is None or members["expression"] is None:
        return ""
    shown = {name: members[name] for name in ("message", "scope", "examples") if members.get(name)}
    # The end of its last line makes a block of every expression, so that its lines are compared.
    return format_members({"expression": members["expression"].rstrip() + "\n", **shown})


def diff_lines(older: str, newer: str, *, context_lines: int = 3) -> list[DiffLine]:
    """
    Return what differs between two texts, line by line, with some lines around; none if nothing does.
    """
    return list(_diff_lines(older.splitlines(), newer.splitlines(), context_lines))


def _diff_lines(older: list[str], newer: list[str], context_lines: int) -> Iterator[DiffLine]:
    if len(older) * len(newer) > COMPARED_MAX:
        yield from (DiffLine(kind="removed", text=line) for line in older)
        yield from (DiffLine(kind="added", text=line) for line in newer)
        return
    matcher = difflib.SequenceMatcher(None, older, newer, autojunk=False)
    end = 0
    for group in matcher.get_grouped_opcodes(context_lines):
        if all(tag == "equal" for tag, *_ in group):
            return
        if skipped := group[0][1] - end:
            yield DiffLine(kind="skipped", text=f"{skipped} lines that are the same")
        for tag, from_older, to_older, from_newer, to_newer in group:
            if tag == "equal":
                yield from (DiffLine(kind="same", text=line) for line in older[from_older:to_older])
                continue
            yield from (DiffLine(kind="removed", text=line) for line in older[from_older:to_older])
            yield from (DiffLine(kind="added", text=line) for line in newer[from_newer:to_newer])
        end = group[-1][2]
    if end and (left := len(older) - end):
        yield DiffLine(kind="skipped", text=f"{left} lines that are the same")


def version_of(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(name, "0")
    if not text.isascii() or not text.isdecimal() or len(text) > VERSION_DIGITS_MAX:
        raise BadRequestError(f"expected the number of a version, found {text!r:.40}", field=name)
    return int(text)
