# SPDX-License-Identifier: Apache-2.0
"""
Edits of restrictions: what is peculiar to them in the life that `drafted_edits.py` describes.

Guarantee: what is saved fits every schema that comes with it, and its examples hold, by the evaluator that other
readers are compared with. No read is restricted by what is saved here yet. Restrictions know no times to come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import ClassVar, Final

from gateway.admin.drafted_edits import Cause, DraftedEdits, ExamplesFailedError
from gateway.admin.edits import Edits
from gateway.control.aggregates import Restriction
from gateway.control.drafts import RestrictionDraft
from gateway.control.plane import ControlPlane, ControlState
from gateway.policy.restrictions.compiled import ReadRestriction, check_against, read_restriction
from gateway.policy.restrictions.contents import examples_of, parse_contents, schemas_of
from gateway.policy.restrictions.examples import failing
from gateway.policy.restrictions.written import ReadsConditions
from ledger.format.canonical import Json
from ledger.format.events import RestrictionChanged, RestrictionContents, RestrictionCreated, RestrictionRetired
from ledger.store.log_store import LendConnection

READ_TIMEOUT_S: Final = 5.0
"""For each expression of a restriction."""
NOT_ENFORCED: Final = (
    "stored, versioned and tested; reads do not enforce it yet: who may load the table still sees everything"
)
"""What is said wherever a restriction is saved or shown."""


class RestrictionEdits(DraftedEdits[Restriction, Mapping[str, Json], RestrictionContents]):
    """Edits the restrictions of all tenants; `reader` reads their expressions."""

    what: ClassVar[str] = "restriction"
    many: ClassVar[str] = "restrictions"
    thing_class = Restriction
    draft_class = RestrictionDraft

    def __init__(
        self,
        edits: Edits,
        control: ControlPlane,
        reader: ReadsConditions,
        *,
        lend: LendConnection,
        clock: Callable[[], datetime],
    ) -> None:
        super().__init__(edits, control, lend=lend, clock=clock)
        self._reader = reader

    def newest(self, state: ControlState) -> Mapping[str, Restriction]:
        """Return the restrictions that are not retired."""
        return state.restrictions

    def drafts(self, state: ControlState) -> Mapping[str, RestrictionDraft]:
        """Return the drafts of restrictions."""
        return state.restriction_drafts

    def contents(self, text: Mapping[str, Json]) -> RestrictionContents:
        """Return what an author wrote as events hold it. Raises as `parse_contents`."""
        return parse_contents(text)

    async def check_contents(self, log_id: int, contents: RestrictionContents) -> None:
        """Check contents. Raises as the function of that name."""
        await check_contents(self._reader, contents, log_id=log_id)

    def created(self, id_: str, contents: RestrictionContents, cause: Cause) -> RestrictionCreated:
        """Return the event that saves the first version."""
        return RestrictionCreated(id=id_, version=1, contents=contents, reason=cause.reason)

    def changed(self, thing: Restriction, contents: RestrictionContents, cause: Cause) -> RestrictionChanged:
        """Return the event that saves a later version."""
        return thing.change(contents, reason=cause.reason)

    def ended(self, thing: Restriction, _cause: Cause) -> RestrictionRetired:
        """Return the event that retires a restriction, which has no reason."""
        return thing.retire()


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
