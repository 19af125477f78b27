# SPDX-License-Identifier: Apache-2.0
"""
The commands `lakeproof restrictions …`: row filters and column masks, for readers of tables.

They say each time that reads do not enforce restrictions yet. `test` needs no server and no database: it starts an
engine of its own, and ends with 0 if all examples hold, with 1 if something is refused, with 2 if it failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gateway.admin.application import OPERATOR, Admin
from gateway.admin.drafted_edits import ExamplesFailedError
from gateway.admin.policy_diff import DRAFT
from gateway.admin.restriction_edits import NOT_ENFORCED, check_contents
from gateway.admin.shown import restriction_draft_shown, restriction_shown, restriction_step_shown
from gateway.admin.versions import one_step
from gateway.control.aggregates import Restriction
from gateway.control.drafts import Draft
from gateway.policy.policy_files import PolicyFileError
from gateway.policy.pool import AUTHOR
from gateway.policy.restriction_files import RestrictionFile, read_restrictions
from gateway.policy.restrictions.compiled import RestrictionRefusedError, compile_for
from gateway.policy.restrictions.contents import examples_of, schemas_of
from gateway.policy.restrictions.form import format_restrictions
from lakeproof import console
from lakeproof.commands.exits import REFUSED, failing_with
from lakeproof.commands.opening import OpenServices, open_home_services, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.commands.policy_files import CLEAN, OpenEngine, open_patient_engine
from lakeproof.commands.policy_life import (
    NewerVersion,
    OlderVersion,
    ReviewedVersion,
    Verdict,
    Why,
    read_verdict,
    show_diff,
)
from lakeproof.commands.refusals import FAILED, is_refusal
from lakeproof.errors import LakeproofError
from lakeproof.services import Services
from lakeproof.tenants import find_tenant_log
from ledger.format.events import RestrictionContents

RestrictionId = Annotated[str, typer.Argument(help="Its id, as `restrictions list` shows it.", show_default=False)]
OneFile = Annotated[Path, typer.Option("--file", metavar="FILE", help="The file of it.", show_default=False)]
Files = Annotated[
    Path, typer.Argument(metavar="PATH", help="A file of a restriction, or a folder of them.", show_default=False)
]

_COLUMNS: Final = ("id", "version", "filter", "masks", "enforced")
_VERSION: Final = ("version", "retired", "author", "recorded_at", "reason", "filter", "masks")
_DRAFT: Final = ("id", "version", "retires", "reason", "filter", "masks")


def restrictions_app(
    open_services: OpenServices = open_home_services, open_engine: OpenEngine = open_patient_engine
) -> typer.Typer:
    """
    Return the commands for restrictions, working with the services and the engine that are opened.
    """
    app = typer.Typer(rich_markup_mode=None)
    _add_edits(app, open_services)
    _add_reviews(app, open_services)
    _add_shown(app, open_services)
    _add_test(app, open_engine)
    return app


def _add_edits(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command()
    def create(*, tenant: OneTenant, file: OneFile, as_json: AsJson = False) -> None:
        """Save the row filter and column masks of a file; reads do not enforce them yet."""
        one = _one(file)

        async def work(services: Services) -> Restriction:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.create_restriction(
                log_id, OPERATOR, restriction_id=one.id, members=one.members, reason=one.reason
            )

        _show_saved(_saved(open_services, work, one), tenant, as_json=as_json)

    @app.command()
    def change(restriction_id: RestrictionId, *, tenant: OneTenant, file: OneFile, as_json: AsJson = False) -> None:
        """Give a restriction the contents of a file, all of them; reads do not enforce them yet."""
        one = _named(file, restriction_id)

        async def work(services: Services) -> Restriction:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.change_restriction(
                log_id, OPERATOR, restriction_id=one.id, members=one.members, reason=one.reason
            )

        _show_saved(_saved(open_services, work, one), tenant, as_json=as_json)


def _add_reviews(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command()
    def draft(
        restriction_id: RestrictionId,
        *,
        tenant: OneTenant,
        file: Annotated[
            Path | None, typer.Option("--file", metavar="FILE", help="The file of it.", show_default=False)
        ] = None,
        retire: Annotated[bool, typer.Option("--retire", help="Propose to take it away, for ever.")] = False,
        reason: Why = "",
        as_json: AsJson = False,
    ) -> None:
        """Propose contents for a restriction, for somebody else to review. Nothing is saved by this."""
        if retire is (file is not None):
            raise LakeproofError("expected either --file, for contents, or --retire, for the end of a restriction")
        one = None if file is None else _named(file, restriction_id)

        async def work(services: Services) -> Draft[RestrictionContents]:
            return await services.gateway.admin.draft_restriction(
                await find_tenant_log(services, tenant),
                OPERATOR,
                restriction_id=restriction_id,
                members=None if one is None else one.members,
                reason=reason or ("" if one is None else one.reason),
            )

        try:
            written: Draft[RestrictionContents] = run_with_services(open_services, work)
        except RestrictionRefusedError as error:
            if one is None:
                raise
            raise one.refused(error) from error
        sentence = (
            f"version {written.version} of the draft of restriction {restriction_id} waits for a review: `lakeproof "
            f"restrictions review {restriction_id} --version {written.version}`"
        )
        console.show_done(sentence, restriction_draft_shown(written, author=OPERATOR.actor), as_json=as_json)

    @app.command()
    def review(
        restriction_id: RestrictionId,
        *,
        tenant: OneTenant,
        version: ReviewedVersion,
        verdict: Verdict,
        reason: Why = "",
        as_json: AsJson = False,
    ) -> None:
        """Approve the draft of a restriction, which saves it, or refuse it; reads do not enforce it yet."""
        said = read_verdict(verdict)

        async def work(services: Services) -> Restriction | None:
            return await services.gateway.admin.review_restriction(
                await find_tenant_log(services, tenant),
                OPERATOR,
                restriction_id=restriction_id,
                version=version,
                verdict=said,
                reason=reason,
            )

        saved = run_with_services(open_services, work)
        document = {
            "id": restriction_id,
            "draft": version,
            "verdict": verdict,
            "restriction": None if saved is None or saved.retired else restriction_shown(saved),
        }
        console.show_done(_review_words(restriction_id, saved, tenant), document, as_json=as_json)


def _review_words(restriction_id: str, saved: Restriction | None, tenant: str) -> str:
    if saved is None:
        return f"the draft of restriction {restriction_id} is refused"
    if saved.retired:
        return f"restriction {restriction_id} of tenant {tenant} is retired"
    return f"restriction {restriction_id} (version {saved.version}) of tenant {tenant} is saved"


def _named(file: Path, restriction_id: str) -> RestrictionFile:
    """Return the restriction of a file, which is the one that is named."""
    one = _one(file)
    if one.id != restriction_id:
        raise PolicyFileError(one.name, f"expected the id {restriction_id!r}, found {one.id!r}", place=one.places["id"])
    return one


def _add_shown(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command("list")
    def list_(
        *,
        tenant: OneTenant,
        versions_of: Annotated[
            str | None,
            typer.Option("--versions-of", metavar="ID", help="The versions of this restriction.", show_default=False),
        ] = None,
        drafts: Annotated[bool, typer.Option("--drafts", help="The drafts that wait for a review.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Show the restrictions that are not retired, or the versions of one, or drafts; reads enforce none yet."""
        if drafts and versions_of is not None:
            raise LakeproofError("--drafts: expected one list, found --versions-of, too: ask for one after the other")

        async def work(services: Services) -> tuple[Sequence[str], list[dict[str, Any]]]:
            log_id = await find_tenant_log(services, tenant)
            return await _listed(services.gateway.admin, log_id, versions_of=versions_of, drafts=drafts)

        columns, shown = run_with_services(open_services, work)
        console.show_rows(columns, shown if as_json else [_row(one) for one in shown], as_json=as_json)
        if shown:
            _explain()

    @app.command()
    def show(
        restriction_id: RestrictionId,
        *,
        tenant: OneTenant,
        version: Annotated[str | None, typer.Option(help="This version of it, or `draft`.", show_default=False)] = None,
        as_json: AsJson = False,
    ) -> None:
        """Show one restriction that is not retired, or one version of a restriction; reads do not enforce it yet."""

        async def work(services: Services) -> dict[str, Any]:
            log_id = await find_tenant_log(services, tenant)
            return await _shown(services.gateway.admin, log_id, restriction_id, version=version)

        console.show_object(run_with_services(open_services, work), as_json=as_json)

    @app.command()
    def diff(
        restriction_id: RestrictionId,
        *,
        tenant: OneTenant,
        older: OlderVersion = None,
        newer: NewerVersion = None,
        as_json: AsJson = False,
    ) -> None:
        """Show what differs between two versions of a restriction, or between one and its draft."""

        async def work(services: Services) -> dict[str, Any]:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.diff_restriction(
                log_id, restriction_id=restriction_id, older=older, newer=newer
            )

        found = {"id": restriction_id, **run_with_services(open_services, work)}
        show_diff(found, of="restriction", lined="filter", as_json=as_json)

    @app.command()
    def delete(restriction_id: RestrictionId, *, tenant: OneTenant, as_json: AsJson = False) -> None:
        """Take a restriction away, for ever. The log keeps it; its id is not used again."""

        async def work(services: Services) -> Restriction:
            return await services.gateway.admin.retire_restriction(
                await find_tenant_log(services, tenant), OPERATOR, restriction_id=restriction_id
            )

        restriction = run_with_services(open_services, work)
        sentence = f"restriction {restriction.id} of tenant {tenant} is retired"
        console.show_done(sentence, restriction_shown(restriction), as_json=as_json)


async def _listed(
    admin: Admin, log_id: int, *, versions_of: str | None, drafts: bool
) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Return the columns and the rows of the list that was asked for."""
    if drafts:
        return _DRAFT, [restriction_draft_shown(draft) for draft in await admin.list_restriction_drafts(log_id)]
    if versions_of is None:
        return _COLUMNS, [restriction_shown(one) for one in await admin.list_restrictions(log_id)]
    steps = await admin.restriction_versions(log_id, restriction_id=versions_of)
    return _VERSION, [restriction_step_shown(step) for step in steps]


async def _shown(admin: Admin, log_id: int, restriction_id: str, *, version: str | None) -> dict[str, Any]:
    if version is None:
        return restriction_shown(await admin.get_restriction(log_id, restriction_id=restriction_id))
    if version == DRAFT:
        draft = await admin.get_restriction_draft(log_id, restriction_id=restriction_id)
        return restriction_draft_shown(draft, author=await admin.restriction_draft_author(log_id, draft))
    steps = await admin.restriction_versions(log_id, restriction_id=restriction_id)
    return restriction_step_shown(one_step(steps, version))


def _add_test(app: typer.Typer, open_engine: OpenEngine) -> None:
    @app.command()
    def test(path: Files, *, as_json: AsJson = False) -> None:
        """Run the examples of files of restrictions; end with 1 if one does not hold."""
        with failing_with(FAILED, as_json=as_json, is_refusal=is_refusal):
            tested = asyncio.run(_test_all(open_engine, path))
            if as_json:
                console.show_json(tested)
            else:
                for one in tested:
                    _show_tested(one)
                _explain()
            raise typer.Exit(CLEAN if all(_holds(one) for one in tested) else REFUSED)


def _one(file: Path) -> RestrictionFile:
    found = read_restrictions(file)
    if len(found) != 1:
        raise PolicyFileError(str(file), f"expected the file of one restriction, found {len(found)}")
    return found[0]


def _saved(open_services: OpenServices, work: Any, one: RestrictionFile) -> Restriction:
    """Save a restriction; what is refused is shown at its place in the file."""
    try:
        restriction: Restriction = run_with_services(open_services, work)
    except RestrictionRefusedError as error:
        raise one.refused(error) from error
    return restriction


def _show_saved(restriction: Restriction, tenant: str, *, as_json: bool) -> None:
    sentence = f"restriction {restriction.id} (version {restriction.version}) of tenant {tenant} is saved"
    console.show_done(sentence, restriction_shown(restriction), as_json=as_json)
    _explain()


def _explain() -> None:
    console.explain(f"note: {NOT_ENFORCED}")


def _row(shown: Mapping[str, Any]) -> dict[str, Any]:
    masks = ", ".join(f"{one['column']}: {one['action']}" for one in shown["masks"] or ())
    return {**shown, "masks": masks, "enforced": "no"}


async def _test_all(open_engine: OpenEngine, path: Path) -> list[dict[str, Any]]:
    async with open_engine() as engine:
        return [await _tested(engine, one) for one in read_restrictions(path)]


async def _tested(engine: Any, one: RestrictionFile) -> dict[str, Any]:
    """Return how a restriction does on its examples, and what it becomes for the caller of each."""
    tested: dict[str, Any] = {
        "file": one.name,
        "id": one.id,
        "schemas": len(one.contents.schemas),
        "examples": len(one.contents.examples),
        "refused": None,
        "failing": [],
        "compiled": [],
        "enforced": False,
        "note": NOT_ENFORCED,
    }
    try:
        restriction = await check_contents(engine, one.contents, log_id=AUTHOR)
    except RestrictionRefusedError as error:
        tested["refused"] = str(one.refused(error))
    except ExamplesFailedError as error:
        tested["failing"] = list(error.sentences)
    else:
        schemas = schemas_of(one.contents)
        tested["compiled"] = [
            {
                "example": example.name,
                "schema": example.schema,
                "read-restrictions": format_restrictions(
                    compile_for(restriction, schemas[example.schema], example.principal)
                ),
            }
            for example in examples_of(one.contents)
        ]
    return tested


def _holds(tested: Mapping[str, Any]) -> bool:
    return tested["refused"] is None and not tested["failing"]


def _show_tested(tested: Mapping[str, Any]) -> None:
    if tested["refused"] is not None:
        console.say(console.one_line(tested["refused"]))
        return
    said = f"{tested['schemas']} schema(s), {tested['examples']} example(s)"
    if not tested["failing"]:
        console.say(f"{tested['id']}: fits {said}, which hold")
        return
    console.say(f"{tested['id']}: {said}, of which these rows do not hold:")
    for failure in tested["failing"]:
        console.say(f"  {console.one_line(failure)}")
