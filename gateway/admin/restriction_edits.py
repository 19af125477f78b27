# SPDX-License-Identifier: Apache-2.0
"""
Edits of restrictions: what is saved fits every schema that comes with it, and its examples hold.

Guarantee: both are checked in the call that saves, by the evaluator that other readers are compared with. No read is
restricted by what is saved here yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.admin import limits
from gateway.admin.edits import NOT_FOUND, Editor, Edits, check_version
from gateway.admin.policy_edits import ExamplesFailedError
from gateway.control.aggregates import Restriction, evolve, expect
from gateway.control.plane import ControlPlane, parse_control_event
from gateway.errors import NotFoundError
from gateway.policy.restrictions.compiled import ReadRestriction, check_against, read_restriction
from gateway.policy.restrictions.contents import examples_of, parse_contents, schemas_of
from gateway.policy.restrictions.examples import failing
from gateway.policy.restrictions.written import ReadsConditions
from ledger.format.entry import Entry
from ledger.format.events import RestrictionChanged, RestrictionContents, RestrictionCreated

if TYPE_CHECKING:
    from ledger.format.canonical import Json

READ_TIMEOUT_S: Final = 5.0
"""For each expression of a restriction."""
NOT_ENFORCED: Final = (
    "stored, versioned and tested; reads do not enforce it yet: who may load the table still sees everything"
)
"""What is said wherever a restriction is saved or shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionStep:
    """
    One version of a restriction as the log has it: `restriction` is None where it was retired. `entry` put it there.
    """

    version: int
    restriction: Restriction | None
    entry: Entry


class RestrictionEdits:
    """Edits the restrictions of all tenants; `reader` reads their expressions."""

    def __init__(self, edits: Edits, control: ControlPlane, reader: ReadsConditions) -> None:
        self._edits = edits
        self._control = control
        self._reader = reader

    async def create(
        self, log_id: int, by: Editor, *, restriction_id: str, members: Mapping[str, Json], reason: str
    ) -> Restriction:
        """See `Admin.create_restriction`."""
        limits.check_id(restriction_id)
        limits.check_reason(reason)
        limits.check_room((await self._control.current(log_id)).restrictions, "restrictions")
        contents = await self._checked(log_id, members)
        event = RestrictionCreated(id=restriction_id, version=1, contents=contents, reason=reason)
        await self._edits.create(log_id, by, event)
        return expect(Restriction, evolve(None, event))

    async def change(
        self,
        log_id: int,
        by: Editor,
        *,
        restriction_id: str,
        members: Mapping[str, Json],
        reason: str,
        version: int | None,
    ) -> Restriction:
        """See `Admin.change_restriction`."""
        limits.check_id(restriction_id)
        limits.check_reason(reason)
        contents = await self._checked(log_id, members)

        def change(restriction: Restriction) -> RestrictionChanged:
            check_version(restriction, version)
            return restriction.change(contents, reason=reason)

        return await self._edits.change(Restriction, log_id, by, restriction_id, change)

    async def retire(self, log_id: int, by: Editor, *, restriction_id: str) -> Restriction:
        """See `Admin.retire_restriction`."""
        limits.check_id(restriction_id)
        return await self._edits.change(Restriction, log_id, by, restriction_id, Restriction.retire)

    async def steps(self, log_id: int, *, restriction_id: str) -> tuple[RestrictionStep, ...]:
        """See `Admin.restriction_versions`."""
        limits.check_id(restriction_id)
        entries = await self._edits.entries(Restriction, log_id, restriction_id)
        if not entries:
            raise NotFoundError(
                f"restriction {restriction_id!r:.80}: expected one in the log, found none", kind=NOT_FOUND
            )
        steps: list[RestrictionStep] = []
        restriction: Restriction | None = None
        for entry in entries:
            restriction = expect(Restriction, evolve(restriction, parse_control_event(entry)))
            kept = None if restriction.retired else restriction
            steps.append(RestrictionStep(version=restriction.version, restriction=kept, entry=entry))
        return tuple(steps)

    async def _checked(self, log_id: int, members: Mapping[str, Json]) -> RestrictionContents:
        contents = parse_contents(members)
        await check_contents(self._reader, contents, log_id=log_id)
        return contents


async def check_contents(reader: ReadsConditions, contents: RestrictionContents, *, log_id: int) -> ReadRestriction:
    """
    Return a restriction with its expressions read, if it fits each of its schemas and its examples hold.

    Raises:
        RestrictionRefusedError: if it cannot; says which member is to blame, and the place in an expression.
        ExamplesFailedError: if an example does not hold; says which, and how.
        PolicyEngineError: if the engine gave no answer.
    """
    restriction = await read_restriction(reader, contents, log_id=log_id, timeout_s=READ_TIMEOUT_S)
    schemas = schemas_of(contents)
    for schema in schemas.values():
        check_against(restriction, schema)
    if found := failing(restriction, schemas, examples_of(contents)):
        raise ExamplesFailedError(found)
    return restriction
