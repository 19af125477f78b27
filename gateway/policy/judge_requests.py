# SPDX-License-Identifier: Apache-2.0
"""
Requests to judge programs on variables, and their answers: one frame each (`frames.py`), from both sides.

The member `judge` of a frame is a list of requests, those of a bundle (`calls.py`). Each has `log_id`; `programs`,
pairs of kind and expression, or the digest of that list; `variables`, each with the fields that programs read; `named`,
the digests of variables or fields that the worker keeps; `keep`, what it keeps from now on, by digest, and `forget`,
what it does not any more (`kept_values.py`).

The answer is the last frame. Its member `judged` has for each request `letters`, one for the outcome of each program
that was judged, in their order, `details` of some of them, by position, and `used_s`.

Guarantee: `parse_answers` accepts as many letters as there are programs and no other, unless the judging was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from gateway.policy.engine import Outcome, Program, Verdict, outcomes_of
from gateway.policy.frames import FRAME_BYTES_MAX, FrameError, FrameTooLargeError
from gateway.policy.inputs import Encoded, Inputs, plan_of
from gateway.policy.kept_values import IN_FULL, KeptValues, KnownValues
from gateway.policy.progress import Judged

NAMES_BYTES_MAX: Final = 65_536
"""What a frame has beside the values: more than the names of all variables and fields, and their digests, take."""
_LETTERS: Final = frozenset("ade")


class JudgeRequest:
    """A request to judge `programs` programs; what is sent of it depends on the worker that gets it."""

    def __init__(self, programs: Sequence[Program], inputs: Inputs, *, log_id: int) -> None:
        """
        Raises:
            FrameTooLargeError: if it would be larger than any frame.
            FrameError: if the variables or programs are not JSON.
        """
        self.programs = len(programs)
        self._log_id = log_id
        try:
            self._plan = plan_of(tuple([(program.judged_as, program.expression) for program in programs]))
            self._parts = self._parts_of(inputs)
        except orjson.JSONEncodeError as error:
            raise FrameError(f"the variables cannot be written as JSON: {error}") from error
        self._values = [self._plan.programs, *(value for _, _, value in self._parts if value is not None)]
        self.size_bytes = sum(len(value.data) for value in self._values)
        if self.size_bytes > FRAME_BYTES_MAX - NAMES_BYTES_MAX:
            found = f"found {self.size_bytes}: commit in smaller steps"
            raise FrameTooLargeError(f"expected at most {FRAME_BYTES_MAX} bytes of variables for policies, {found}")

    def asked(self, known: KnownValues | None) -> dict[str, Any]:
        """
        Return what is sent to a worker that keeps what is `known`; with None, everything is in it.
        """
        sending = IN_FULL if known is None else known.sending(self._values)
        variables: dict[str, Any] = {}
        named: dict[str, Any] = {}
        for variable, field, value in self._parts:
            if value is None:
                variables.setdefault(variable, {})  # it is there, and has no such field
            elif value.digest in sending.named:
                if field is None:
                    named[variable] = value.digest.hex()
                else:
                    named.setdefault(variable, {})[field] = value.digest.hex()
            elif field is None:
                variables[variable] = orjson.Fragment(value.data)
            else:
                variables.setdefault(variable, {})[field] = orjson.Fragment(value.data)
        programs = self._plan.programs
        asked: dict[str, Any] = {
            "log_id": self._log_id,
            "programs": programs.digest.hex() if programs.digest in sending.named else orjson.Fragment(programs.data),
            "variables": variables,
        }
        if named:
            asked["named"] = named
        if sending.keep:
            asked["keep"] = {digest.hex(): orjson.Fragment(value.data) for digest, value in sending.keep.items()}
        if sending.forget:
            asked["forget"] = sending.forget
        return asked

    def _parts_of(self, inputs: Inputs) -> list[tuple[str, str | None, Encoded | None]]:
        """Return the variables and fields that are sent; None in place of a field that a variable does not have."""
        parts: dict[tuple[str, str | None], Encoded | None] = {}
        for variable, field in self._plan.fields:
            if variable in inputs:
                one = field if inputs.has_fields(variable) else None
                parts[variable, one] = inputs.encoded(variable, one)
        return [(variable, field, value) for (variable, field), value in parts.items()]


def parse_request(asked: Mapping[str, Any], kept: KeptValues) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """
    Return the programs and variables of a request (its member `judge`), after what it says to keep and to forget.

    Raises:
        UnknownValueError: if it names a value that is not kept.
        FrameError: if it is no such request.
    """
    try:
        kept.change(asked.get("forget", ()), asked.get("keep", {}))
        programs, variables = asked["programs"], dict(asked["variables"])
        if isinstance(programs, str):
            programs = kept.value(programs)
        for variable, names in asked.get("named", {}).items():
            if isinstance(names, str):
                variables[variable] = kept.value(names)
            else:
                found = {field: kept.value(digest) for field, digest in names.items()}
                variables[variable] = {**variables.get(variable, {}), **found}
        return [(kind, expression) for kind, expression in programs], variables
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FrameError(f"expected a request to judge, found {type(error).__name__}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What an answer says of one request: what is `judged`, and the processor time that it took."""

    judged: Judged
    used_s: float


def parse_answers(answer: Mapping[str, Any], *, programs: Sequence[int], is_whole: bool) -> list[Answered]:
    """
    Return what an answer says of requests with so many `programs`: of the first ones, whose programs are all judged,
    and then perhaps of one where some are. With `is_whole`, all are judged of all.

    Raises:
        FrameError: if it is no such answer, or has another number of verdicts.
    """
    found = answer.get("judged")
    if not isinstance(found, list) or len(found) > len(programs) or (is_whole and len(found) != len(programs)):
        raise FrameError(f"expected the verdicts of {len(programs)} requests")
    last = None if is_whole else len(found) - 1
    return [_parse_answer(one, programs=programs[place], is_whole=place != last) for place, one in enumerate(found)]


def _parse_answer(sent: object, *, programs: int, is_whole: bool) -> Answered:
    match sent:
        case {"letters": str(letters), "details": dict(found), "used_s": float(used_s)} if _LETTERS.issuperset(letters):
            pass
        case _:
            raise FrameError("expected the verdicts of a request, their details, and a time")
    if len(letters) > programs or (is_whole and len(letters) != programs):
        raise FrameError(f"expected {programs} verdicts, found {len(letters)}")
    details = {}
    for position, detail in found.items():
        if not (position.isdecimal() and int(position) < len(letters) and isinstance(detail, str)):
            raise FrameError("expected details of verdicts that there are")
        details[int(position)] = detail
    return Answered(judged=Judged(letters=letters, details=details), used_s=used_s)


def verdicts_of(programs: Sequence[Program], judged: Judged, *, missing: str = "") -> tuple[Verdict, ...]:
    """
    Return a verdict for each of `programs`: where nothing is known, an error that says what is `missing`.
    """
    outcomes, details = outcomes_of(judged.letters), judged.details
    rest = [Outcome.ERROR] * (len(programs) - len(outcomes))
    return tuple(
        [
            Verdict(
                kind=program.kind,
                id=program.id,
                version=program.version,
                outcome=outcome,
                detail=details.get(position, "") if position < len(outcomes) else missing,
            )
            for position, (program, outcome) in enumerate(zip(programs, (*outcomes, *rest), strict=True))
        ]
    )
