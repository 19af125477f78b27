# SPDX-License-Identifier: Apache-2.0
"""
What is known of an expression besides its verdicts: what it reads, its branches, its mutants, and what looks wrong.

Found by the worker, which alone parses expressions (`cel/inspection.py`), and sent over its pipe as JSON. The parent
reads it here. Nothing of this judges a commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.policy.engine import POLICY

if TYPE_CHECKING:
    from ledger.format.canonical import Json

COSTS: Final = ("constant", "linear", "quadratic", "cubic")


class Rule(StrEnum):
    """What a remark about an expression is about."""

    CONSTANT = "constant"
    """A part is decided, and reads nothing of the commit."""
    DUPLICATE = "duplicate"
    """Something stands there twice, where once says the same."""
    SHADOWED = "shadowed"
    """The name of an element hides a variable."""
    TYPES = "types"
    """Values are compared whose types are never equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that looks wrong at line and column (from 1) of an expression."""

    rule: Rule
    line: int
    column: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A small change of an expression that its examples should notice: the changed text, where and what it is."""

    expression: str
    line: int
    column: int
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A part of an expression that is decided (`role` says what depends on it), and the values that it took."""

    role: str
    text: str
    line: int
    column: int
    was_true: bool
    was_false: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """The values that it never took."""
        return tuple(name for name, taken in (("true", self.was_true), ("false", self.was_false)) if not taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """
    An expression that compiles: `text` with all brackets, the variables and fields that it reads (None for the whole of
    a variable), the functions and macros that it calls, how deeply its loops over lists and maps are nested, remarks,
    and at most `MUTANTS_MAX` mutants (`cel/mutants.py`).
    """

    text: str
    reads: Mapping[str, tuple[str, ...] | None]
    functions: tuple[str, ...]
    loops: int
    remarks: tuple[Remark, ...]
    mutants: tuple[Mutant, ...]

    @property
    def cost(self) -> str:
        """How its work grows with the lists that it reads."""
        return COSTS[self.loops] if self.loops < len(COSTS) else f"{self.loops} nested loops"


class Inspector(Protocol):
    """What inspects expressions (`pool.WorkerEngine`)."""

    async def inspect(
        self, expression: str, *, zero: Mapping[str, Json], timeout_s: float, kind: str = POLICY
    ) -> Inspection:
        """
        Return what is known of `expression`; `zero` are the variables of an empty commit, which show their types.

        Raises as `PolicyEngine.check`.
        """

    async def cover(
        self, expression: str, activations: Sequence[Mapping[str, Json]], *, timeout_s: float, kind: str = POLICY
    ) -> tuple[Branch, ...]:
        """
        Return the branches of `expression`, with the values that they took on `activations`, in the order of the text.

        Raises as `PolicyEngine.check`.
        """


def format_inspection(inspection: Inspection) -> dict[str, Any]:
    """Return what goes over the pipe."""
    return asdict(inspection)


def parse_inspection(sent: Mapping[str, Any]) -> Inspection:
    """Return what came over the pipe."""
    return Inspection(
        text=sent["text"],
        reads={name: None if fields is None else tuple(fields) for name, fields in sent["reads"].items()},
        functions=tuple(sent["functions"]),
        loops=sent["loops"],
        remarks=tuple(Remark(**{**one, "rule": Rule(one["rule"])}) for one in sent["remarks"]),
        mutants=tuple(Mutant(**one) for one in sent["mutants"]),
    )
