# SPDX-License-Identifier: Apache-2.0
"""
Finds a text of a language that passes some tests and fails others, or finds that there is none. Pure.

Guarantee: `find` returns a text for which all tests come out as wanted, or None only if the language has none. Each
test is a small automaton; the search goes through the product of them and the language, shortest texts first. Of
characters that no test and no language tells apart, one is tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from gateway.asking.exact.budget import Budget
from projections.name_patterns import DOT_WITHIN

Test: TypeAlias = tuple[str, Any, bool]
"""A test of a text, its operand, and whether it is to hold."""

READABLE: Final = "xyzabcdefghijklmnopqrstuvwXYZABCDEFGHIJKLMNOPQRSTUVW0123456789-_/@#~é中"
_LAST_OF_ASCII: Final = 127
_DEAD: Final = -1
_BELOW: Final = -1
_ABOVE: Final = -2


class Language(Protocol):
    """
    The texts that there are. A state is anything hashable; `own` are characters that it tells apart from others.
    """

    @property
    def own(self) -> str: ...
    @property
    def start(self) -> Any: ...
    def step(self, state: Any, character: str) -> Any | None: ...
    def ends(self, state: Any) -> bool: ...


@dataclass(frozen=True, slots=True)
class Anything:
    """
    Texts of at least one of the characters that names can have, all but one; none is in upper case, if it `is_lower`.
    """

    but: str = ""
    is_lower: bool = False
    start: int = 0

    @property
    def own(self) -> str:
        return self.but

    def step(self, state: int, character: str) -> int | None:
        if not _is_of_names(character) or (self.is_lower and character != character.lower()):
            return None
        return state + 1 if state >= 0 and self.but[state : state + 1] == character else -1

    def ends(self, state: int) -> bool:
        return state not in {0, len(self.but)}


@dataclass(frozen=True, slots=True)
class Of:
    """Texts of some `characters`, `length` many (None: at least one), of which the first is one of `first`."""

    characters: str
    first: str
    length: int | None = None
    start: int = 0

    @property
    def own(self) -> str:
        return self.characters

    def step(self, state: int, character: str) -> int | None:
        if character not in (self.characters if state else self.first):
            return None
        if self.length is None:
            return 1
        return state + 1 if state < self.length else None

    def ends(self, state: int) -> bool:
        return state > 0 if self.length is None else state == self.length


@dataclass(frozen=True, slots=True)
class Levels:
    """
    Paths of at least so many levels, with a dot between two; a dot within one is U+001D, and alone it is no name.

    With `here` the last level has neither `@` nor `#`, which lead elsewhere in a Nessie.
    """

    least: int
    here: bool = False
    own: str = f".{DOT_WITHIN}@#"
    start: tuple[int, str, bool] = (0, "", False)

    def step(self, state: tuple[int, str, bool], character: str) -> tuple[int, str, bool] | None:
        before, kind, leads = state
        if character == ".":
            return None if self._is_no_name(kind) else (min(before + 1, max(self.least, 1)), "", False)
        if character == DOT_WITHIN:
            return before, f"{kind}d" if kind in {"", "d"} else "n", leads
        if not _is_of_names(character):
            return None
        return before, "n", leads or (self.here and character in "@#")

    def ends(self, state: tuple[int, str, bool]) -> bool:
        before, kind, leads = state
        if not before and not kind:
            return self.least == 0
        return not leads and before + 1 >= self.least and not self._is_no_name(kind)

    @staticmethod
    def _is_no_name(kind: str) -> bool:
        return kind in {"", "d", "dd"}


@dataclass(frozen=True, slots=True)
class Below:
    """A root, a dot, and an id."""

    root: str
    start: int = 0

    @property
    def own(self) -> str:
        return f"{self.root}."

    def step(self, state: int, character: str) -> int | None:
        fixed = f"{self.root}."
        if state < len(fixed):
            return state + 1 if character == fixed[state] else None
        return len(fixed) + 1 if _is_of_names(character) else None

    def ends(self, state: int) -> bool:
        return state > len(self.root) + 1


def holds(test: str, operand: Any, text: str) -> bool:
    """Return whether a text passes a test (`rule_formulas.Text`)."""
    match test:
        case "is":
            return bool(text == operand)
        case "begins":
            return text.startswith(operand)
        case "ends":
            return text.endswith(operand)
        case "contains":
            return operand in text
        case "from":
            return bool(text >= operand)
        case "long":
            return bool(len(text) >= operand)
        case _:
            raise ValueError(f"no test of a text: {test}")


def is_as_wanted(text: str, tests: Iterable[Test]) -> bool:
    """Return whether all tests come out as wanted."""
    return all(holds(test, operand, text) is wanted for test, operand, wanted in tests)


def is_of(language: Language, text: str) -> bool:
    """Return whether a language has a text."""
    state = language.start
    for character in text:
        state = language.step(state, character)
        if state is None:
            return False
    return language.ends(state)


def find(language: Language | tuple[str, ...], tests: Sequence[Test], budget: Budget) -> str | None:
    """
    Return a text of `language` (all texts, if it is a tuple) for which `tests` come out as wanted, None if it has none.

    Raises:
        OverBudgetError: if the budget is spent before that is known.
    """
    budget.spend(1 + len(tests))
    if isinstance(language, tuple):
        return next((text for text in language if is_as_wanted(text, tests)), None)
    whole = [str(operand) for test, operand, wanted in tests if test == "is" and wanted]
    guesses = whole[:1] or list(_guesses(tests))
    for text in guesses:
        if is_as_wanted(text, tests) and is_of(language, text):
            return text
    if whole or _is_contradicted(tests):
        return None
    return _search(language, tests, budget)


def _guesses(tests: Sequence[Test]) -> Iterator[str]:
    """Yield texts with what is wanted of them, and readable letters in between."""
    begins = max((op for test, op, wanted in tests if test == "begins" and wanted), key=len, default="")
    ends = max((op for test, op, wanted in tests if test == "ends" and wanted), key=len, default="")
    within = [op for test, op, wanted in tests if test == "contains" and wanted]
    used = {character for _, operand, _ in tests if isinstance(operand, str) for character in operand}
    filler = next((character for character in READABLE if character not in used), "x")
    yield begins + "".join(within) + ends
    yield filler.join((begins, *within, ends)) if begins or ends or within else filler
    yield f"{filler}.{filler}".join((begins, *within, ends)) if begins or ends or within else f"{filler}.{filler}"


def _is_contradicted(tests: Sequence[Test]) -> bool:
    """Return whether two of the tests cannot come out as wanted together, whatever the language."""
    parts = [(test, op) for test, op, wanted in tests if wanted and test in {"begins", "ends", "contains"}]
    for test, op, wanted in tests:
        if test == "begins":
            others = [other for kind, other in parts if kind == "begins"]
            if wanted and any(not (other.startswith(op) or op.startswith(other)) for other in others):
                return True
            if not wanted and any(other.startswith(op) for other in others):
                return True
        elif test == "ends" and not wanted:
            if any(kind == "ends" and other.endswith(op) for kind, other in parts):
                return True
        elif test == "contains" and not wanted and any(op in other for _, other in parts):
            return True
    return False


def _search(language: Language, tests: Sequence[Test], budget: Budget) -> str | None:
    machines = [_Machine(test, operand, wanted) for test, operand, wanted in tests]
    characters = _characters(language, tests)
    first = (language.start, *(machine.start for machine in machines))
    came_from: dict[Any, tuple[Any, str]] = {first: (None, "")}
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        if language.ends(state[0]) and all(machine.ends(own) for machine, own in zip(machines, state[1:], strict=True)):
            return _text_to(state, came_from)
        budget.spend(len(characters) * (1 + len(machines)))
        for character in characters:
            following = language.step(state[0], character)
            if following is None:
                continue
            after: list[Any] = [following]
            for machine, own in zip(machines, state[1:], strict=True):
                moved = machine.step(own, character)
                if moved is None:
                    break
                after.append(moved)
            else:
                reached = tuple(after)
                if reached not in came_from:
                    came_from[reached] = (state, character)
                    waiting.append(reached)
    return None


def _text_to(state: Any, came_from: dict[Any, tuple[Any, str]]) -> str:
    text: list[str] = []
    while state is not None:
        state, character = came_from[state]
        text.append(character)
    return "".join(reversed(text))


def _characters(language: Language, tests: Sequence[Test]) -> list[str]:
    """Return one of each class of characters that the tests and the language tell apart."""
    told_apart = {*language.own}
    told_apart.update(character for _, operand, _ in tests if isinstance(operand, str) for character in operand)
    others = [character for character in READABLE if character not in told_apart]
    if not any(test == "from" for test, _, _ in tests):
        fresh = others[:1] or [
            next(one for one in map(chr, range(_LAST_OF_ASCII + 34, 2**16)) if one not in told_apart)
        ]
        return sorted(told_apart | {*fresh}, key=lambda one: (one not in READABLE, one))
    found, known = set(told_apart), sorted(told_apart)
    for low, high in zip(["\x1f", *known], [*known, "\U0010fffe"], strict=True):
        between = [one for one in others if low < one < high]
        after = (chr(point) for point in range(ord(low) + 1, min(ord(low) + 3_000, ord(high))))
        found.update(between[:1] or [one for one in after if _is_of_names(one)][:1])
    return sorted(found, key=lambda one: (one not in READABLE, one))


class _Machine:
    """The automaton of one test; `step` returns None once the test can no longer come out as wanted."""

    def __init__(self, test: str, operand: Any, wanted: bool) -> None:  # noqa: FBT001
        self._test = test
        self._operand = operand
        self._wanted = wanted
        self._falls_to = _falls(operand) if test in {"ends", "contains"} else []
        self.start = 0

    def step(self, state: int, character: str) -> int | None:
        operand, wanted = self._operand, self._wanted
        match self._test:
            case "begins":
                moved = state
                if 0 <= state < len(operand):
                    moved = state + 1 if operand[state] == character else _DEAD
                return None if (moved == _DEAD and wanted) or (moved == len(operand) and not wanted) else moved
            case "is":
                same = 0 <= state < len(operand) and operand[state] == character
                return state + 1 if same else None if wanted else _DEAD
            case "long":
                moved = min(state + 1, operand)
                return None if moved == operand and not wanted else moved
            case "from":
                moved = self._ordered(state, character)
                return None if moved == (_BELOW if wanted else _ABOVE) else moved
            case _:
                moved = self._matched(state, character)
                is_found = self._test == "contains" and moved == len(operand)
                return None if is_found and not wanted else moved

    def ends(self, state: int) -> bool:
        match self._test:
            case "from":
                found = state == _ABOVE or state == len(self._operand)
            case _:
                found = state == (self._operand if self._test == "long" else len(self._operand))
        return found is self._wanted

    def _ordered(self, state: int, character: str) -> int:
        if state < 0:
            return state
        if state == len(self._operand) or character > self._operand[state]:
            return _ABOVE
        return state + 1 if character == self._operand[state] else _BELOW

    def _matched(self, state: int, character: str) -> int:
        """Return how much of the operand the text ends with (Knuth, Morris, Pratt); once it was found, all of it."""
        operand: str = self._operand
        if state == len(operand):
            if self._test == "contains" or not operand:
                return state
            state = self._falls_to[state]
        while state and operand[state] != character:
            state = self._falls_to[state]
        return state + 1 if operand[state] == character else 0


def _falls(operand: str) -> list[int]:
    """Return for each length the longest proper prefix of so much of `operand` that it also ends with."""
    falls, length = [0, 0], 0
    for place in range(1, len(operand)):
        while length and operand[place] != operand[length]:
            length = falls[length]
        length += operand[place] == operand[length]
        falls.append(length)
    return falls


def _is_of_names(character: str) -> bool:
    """Return whether names can have a character (`identifiers.parse_name`)."""
    return not (
        character < " "
        or "\x7f" <= character <= "\x9f"
        or character in "\u2028\u2029"
        or "\ud800" <= character <= "\udfff"
    )
