# SPDX-License-Identifier: Apache-2.0
"""
Reads a file of policies in Cedar as access rules: one rule of vocabulary 4 for each policy.

Guarantee: each policy is a rule, or is refused with its place in the file; none is left out silently. The file is split
at the semicolons outside of strings and comments, which end policies in Cedar and stand nowhere else. What a policy
means is read where all of Cedar is (`policies.py`), policy by policy: it would refuse one that is not whole.

A rule has the id that the annotation `@id("…")` of its policy gives, or one that follows from the text of the policy,
so that a file can be imported again, in whatever order its policies are then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from gateway.policy.access import IN_CEDAR
from gateway.policy.properties import Property, plain_lines
from gateway.policy.rule_files import (
    RULES_MAX,
    FileRule,
    RefusedRule,
    RuleFile,
    RuleFileError,
    check_size,
    refused_at,
    why_no_id,
)
from gateway.policy.text import place_of
from ledger.format.events import Effect

DERIVED_PREFIX: Final = "policy-"
DERIVED_HEX: Final = 16
"""Of the SHA-256 of a policy's text, in the id of one that gives none."""

_STOPS: Final = re.compile(r"//[^\n]*|\"(?:\\[\s\S]|[^\"\\])*(?P<close>\"?)|(?P<end>;)")
"""Comments, strings (the last one may not be closed) and ends of policies."""
_BLANK: Final = r"(?:\s|//[^\n]*(?:\n|\Z))*"
_BLANKS: Final = re.compile(_BLANK)
_ANNOTATION: Final = re.compile(
    rf"@{_BLANK}(?P<name>\w+){_BLANK}(?:\({_BLANK}\"(?P<value>(?:\\[\s\S]|[^\"\\])*)\"{_BLANK}\){_BLANK})?"
)
_EFFECT: Final = re.compile(rf"(?P<effect>{Effect.PERMIT}|{Effect.FORBID})\b")


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy of a file, from its first annotation to its semicolon; `effect` is None if it says none."""

    start: int
    end: int
    text: str
    id: str
    effect: Effect | None
    told_at: int
    """Where its effect stands, or should."""


def parse_cedar_file(text: str) -> RuleFile:
    """
    Return the rules of a file.

    Raises:
        RuleFileError: if it is too large, ends within a policy or a string, or has no policies or too many.
    """
    check_size(text)
    plain = plain_lines(text)
    policies = list(_policies(plain))
    if not 1 <= len(policies) <= RULES_MAX:
        raise RuleFileError(f"expected 1 to {RULES_MAX} policies in Cedar, found {len(policies)}", field="file")
    times = Counter(policy.id for policy in policies)
    rules, refused = list[FileRule](), list[RefusedRule]()
    for policy in policies:
        reason, offset = _why_not(policy, times[policy.id])
        if reason or policy.effect is None:
            refused.append(refused_at(plain, policy.id, reason, offset))
        else:
            places = range(policy.start, policy.end + 1)
            read = Property(key=policy.id, value=policy.text, offset=policy.start, end=policy.end, offsets=places)
            rules.append(
                FileRule(id=policy.id, expression=policy.text, read=read, effect=policy.effect, vocabulary=IN_CEDAR)
            )
    return RuleFile(text=plain, rules=tuple(rules), refused=tuple(refused))


def _policies(text: str) -> Iterator[_Policy]:
    start = _after_blanks(text, 0)
    for stop in _STOPS.finditer(text):
        if stop["close"] == "":
            raise _error(text, stop.start(), "expected a string that ends, found none of its quotation marks behind it")
        if stop["end"]:
            yield _policy(text, start, stop.end())
            start = _after_blanks(text, stop.end())
    if start < len(text):
        raise _error(text, start, "expected a policy that ends with ;, found the end of the file before it")


def _policy(text: str, start: int, end: int) -> _Policy:
    at, id_ = start, ""
    while (annotation := _ANNOTATION.match(text, at, end)) is not None:
        if annotation["name"] == "id":
            id_ = id_ or annotation["value"] or ""
        at = annotation.end()
    found = _EFFECT.match(text, at, end)
    policy = text[start:end]
    derived = DERIVED_PREFIX + sha256(policy.encode(errors="surrogatepass")).hexdigest()[:DERIVED_HEX]
    return _Policy(start, end, policy, id_ or derived, None if found is None else Effect(found["effect"]), at)


def _why_not(policy: _Policy, times: int) -> tuple[str, int]:
    """Return why a policy is no rule that can be imported, and the offset in the file; empty if it may be one."""
    if policy.effect is None:
        found = policy.text[policy.told_at - policy.start :]
        return f"expected permit or forbid, found {found!r:.40}", policy.told_at
    if times > 1:
        return (
            f'expected a policy of this id once, found {times}: give each its own, as in @id("readers")',
            policy.start,
        )
    return why_no_id(policy.id), policy.start


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _error(text: str, offset: int, reason: str) -> RuleFileError:
    line, column = place_of(text, offset)
    return RuleFileError(f"line {line}, column {column}: {reason}", field="file")
