# SPDX-License-Identifier: Apache-2.0
"""
The commands of `lakeproof policies` that work on files: test, lint, compile, apply, and the library.

All but `apply` work without a server and without a database: they start a policy engine of their own. Exit codes: 0
clean, 1 refused (an example does not hold, a finding, a file or a policy that is not accepted), 2 failed (whatever
else, so that a pipeline never takes an outage for a verdict). Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.policy_apply import Planned, apply_planned, check_planned, plan
from gateway.admin.policy_lint import lint as lint_policies
from gateway.admin.policy_reports import Author, compile_policy, holds, run_examples, savable
from gateway.policy.examples import format_examples
from gateway.policy.policy_files import PolicyFile, parse_policy, read_policies
from gateway.policy.policy_library import library, library_text
from gateway.policy.pool import AUTHOR, WorkerEngine
from gateway.policy.scopes import format_scope
from lakeproof import console
from lakeproof.commands.exits import REFUSED, failing_with
from lakeproof.commands.opening import ENGINE_WAITING_S, OpenServices, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.commands.refusals import FAILED, is_refusal, log_to_change
from lakeproof.services import Services

CLEAN: Final = 0

OpenEngine: TypeAlias = "Callable[[], AbstractAsyncContextManager[WorkerEngine]]"
PolicyPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A policy file, or a folder of them.", show_default=False)
]

R = TypeVar("R")

_STEPS: Final = ("step", "id", "version", "saved", "file")
_LIBRARY: Final = ("id", "examples", "message")


def open_patient_engine() -> WorkerEngine:
    """Return an engine for one author, who waits for as long as its processes take to start on a busy machine."""
    return WorkerEngine(waiting_s=ENGINE_WAITING_S)


def author_of(engine: WorkerEngine) -> Author:
    """Return whom an engine of a command's own works for."""
    return Author(engine=engine, log_id=AUTHOR)


def add_file_commands(
    app: typer.Typer, open_services: OpenServices, open_engine: OpenEngine = open_patient_engine
) -> None:
    """
    Add the commands on files to those on policies; those that need no database work with an engine of their own.
    """
    _add_test(app, open_engine)
    _add_lint(app, open_engine)
    _add_compile(app, open_engine)
    _add_apply(app, open_services)
    app.add_typer(_library_app(), name="library", help="See the policies that are ready to be copied.")


def _add_test(app: typer.Typer, open_engine: OpenEngine) -> None:
    @app.command()
    def test(
        path: PolicyPath,
        *,
        coverage: Annotated[bool, typer.Option("--coverage", help="Say which branches no example takes.")] = False,
        mutation: Annotated[bool, typer.Option("--mutation", help="Say which mistakes no example notices.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Run the examples of policy files; end with 1 if one does not hold."""

        async def work(engine: WorkerEngine) -> list[dict[str, Any]]:
            return [
                await run_examples(author_of(engine), policy, coverage=coverage, mutation=mutation)
                for policy in read(path)
            ]

        with _answering(as_json=as_json):
            tested = _run_with_engine(open_engine, work)
            if as_json:
                console.show_json(tested)
            else:
                for one in tested:
                    _show_tested(one)
            raise typer.Exit(CLEAN if all(holds(one) for one in tested) else REFUSED)


def _add_lint(app: typer.Typer, open_engine: OpenEngine) -> None:
    @app.command()
    def lint(path: PolicyPath, *, as_json: AsJson = False) -> None:
        """Say what looks wrong in policy files; end with 1 if anything does."""

        async def work(engine: WorkerEngine) -> tuple[int, list[dict[str, Any]]]:
            policies = read(path)
            author = author_of(engine)
            found = await lint_policies(author, author.evaluate, policies)
            return len(policies), [asdict(finding) for finding in found]

        with _answering(as_json=as_json):
            count, findings = _run_with_engine(open_engine, work)
            if as_json:
                console.show_json(findings)
            else:
                for one in findings:
                    console.say(console.one_line("{file}:{line}:{column}: {rule}: {words}".format(**one)))
                console.say(f"looked at {count}, found {len(findings) or 'nothing'}")
            raise typer.Exit(REFUSED if findings else CLEAN)


def _add_compile(app: typer.Typer, open_engine: OpenEngine) -> None:
    @app.command("compile")
    def compile_(
        what: Annotated[
            str, typer.Argument(metavar="EXPRESSION|PATH", help="CEL, or a policy file, or a folder of them.")
        ],
        *,
        as_json: AsJson = False,
    ) -> None:
        """Show what expressions read and call, and how their cost grows; end with 1 if one does not compile."""

        async def work(engine: WorkerEngine) -> list[dict[str, Any]]:
            return [await compile_policy(author_of(engine), policy) for policy in _expressions(what)]

        with _answering(as_json=as_json):
            compiled = _run_with_engine(open_engine, work)
            if as_json:
                console.show_json(compiled)
            else:
                for one in compiled:
                    _show_compiled(one)
            raise typer.Exit(CLEAN if all(one["refused"] is None for one in compiled) else REFUSED)


def _add_apply(app: typer.Typer, open_services: OpenServices) -> None:
    @app.command()
    def apply(
        path: PolicyPath,
        *,
        tenant: OneTenant,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
        retire: Annotated[bool, typer.Option("--retire", help="Retire what is in force and in no file.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Bring into force what policy files say; safe to repeat. End with 1 if anything is refused."""

        async def work(services: Services) -> None:
            log_id = await log_to_change(services, tenant)
            admin = services.gateway.admin
            planned = plan(read(path), await admin.list_policies(log_id), retire=retire)
            await check_planned(admin, services.engine, log_id, planned)
            rows.update({one.id: _planned_shown(one) for one in planned})
            if not dry_run:
                async for one, policy in apply_planned(admin, log_id, OPERATOR, planned):
                    rows[one.id] |= {"version": policy.version, "saved": True}

        rows: dict[str, dict[str, Any]] = {}
        with _answering(as_json=as_json):
            try:
                run_with_services(open_services, work)
            except BaseException:
                if rows and not as_json:  # what was saved stays, and is shown
                    _show_steps(rows.values())
                raise
            if as_json:
                console.show_json(list(rows.values()))
            else:
                _show_steps(rows.values())


def read(path: Path) -> tuple[PolicyFile, ...]:
    """
    Return the policies of a file or folder, each of which could be saved as far as its members alone say.

    Raises:
        PolicyFileError: if one is refused; says where.
    """
    return savable(read_policies(path))


def _library_app() -> typer.Typer:
    app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

    @app.command("list")
    def list_(*, as_json: AsJson = False) -> None:
        """Show the policies of the library."""
        rows = [{**_shown(policy), "examples": len(policy.examples)} for policy in library()]
        console.show_rows(_LIBRARY, rows, as_json=as_json)

    @app.command()
    def show(
        policy_id: Annotated[str, typer.Argument(help="Its id, as `policies library list` shows it.")],
        *,
        as_json: AsJson = False,
    ) -> None:
        """Print the file of one policy of the library, to be changed and applied."""
        with _answering(as_json=as_json):
            text = library_text(policy_id)
            if as_json:
                policy = parse_policy(text.encode(), name=policy_id)
                console.show_json({**_shown(policy), "examples": format_examples(policy.examples)})
            else:
                console.say(text.rstrip("\n"))

    return app


def _shown(policy: PolicyFile) -> dict[str, Any]:
    return {
        "id": policy.id,
        "expression": policy.expression,
        "message": policy.message,
        "reason": policy.reason,
        "scope": format_scope(policy.scope),
    }


# Apply


def _planned_shown(planned: Planned) -> dict[str, Any]:
    file = None if planned.file is None else planned.file.name
    return {"id": planned.id, "step": planned.step.value, "version": planned.version, "file": file, "saved": False}


def _show_steps(rows: Iterable[Mapping[str, Any]]) -> None:
    console.show_rows(_STEPS, [{**row, "saved": "yes" if row["saved"] else "-"} for row in rows], as_json=False)


# Test


def _show_tested(tested: Mapping[str, Any]) -> None:
    if tested["refused"] is not None:
        _show_refusal(tested)
        return
    count, failures = tested["examples"], tested["failing"]
    said = [f"{count - len(failures)} of {count} examples hold"]
    if (covered := tested.get("coverage")) is not None:
        said.append("{taken} of {directions} directions of branches taken".format(**covered))
    if (mutated := tested.get("mutation")) is not None:
        unknown = f", {mutated['unknown']} not tried in time" if mutated["unknown"] else ""
        said.append("{killed} of {mutants} mutants killed ({percent} %)".format(**mutated) + unknown)
    console.say(f"{tested['id']}: {', '.join(said)}")
    for failure in failures:
        console.say(f"  {console.one_line(failure)}")
    for one in (covered or {}).get("missing", ()):
        console.say(f"  {console.one_line('{line}:{column}: never {never}: {part} {text}'.format(**one))}")
    for one in (mutated or {}).get("survivors", ()):
        console.say(f"  {console.one_line('{line}:{column}: survived: {change}'.format(**one))}")


# Compile


def _expressions(what: str) -> tuple[PolicyFile, ...]:
    """Return what is to be compiled: the policies of a path, or one expression without a file."""
    path = Path(what)
    try:
        is_path = path.exists() or path.suffix.lower() in {".yaml", ".yml"}
    except (OSError, ValueError):  # too long for a name, or with a null in it: no file is called that
        is_path = False
    return read_policies(path) if is_path else (PolicyFile(name="", id="", expression=what, message=""),)


def _show_compiled(compiled: Mapping[str, Any]) -> None:
    if compiled["refused"] is not None:
        _show_refusal(compiled)
        return
    members = {name: value for name, value in compiled.items() if name != "refused" and value is not None}
    console.show_object(members, as_json=False)


def _show_refusal(refused: Mapping[str, Any]) -> None:
    refusal = refused["refused"]
    console.explain(console.printable(refusal["shown"]))
    place = "{line}:{column}".format(**refusal)
    where = f"{refused['file']}:{place}" if refused["file"] else place
    console.say(console.one_line(f"{where}: {refusal['reason']}"))


# Ending


def _run_with_engine(open_engine: OpenEngine, work: Callable[[WorkerEngine], Awaitable[R]]) -> R:
    async def opened() -> R:
        async with open_engine() as engine:
            return await work(engine)

    return asyncio.run(opened())


def _answering(*, as_json: bool) -> AbstractContextManager[None]:
    """End a command that answers: with 1 only if something is refused, with 2 if anything else went wrong."""
    return failing_with(FAILED, as_json=as_json, is_refusal=is_refusal)
