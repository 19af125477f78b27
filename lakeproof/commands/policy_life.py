# SPDX-License-Identifier: Apache-2.0
"""
The commands of `lakeproof policies` about what may become of a policy: `draft`, `review` and `diff`.

And what the commands that write policies have in common: the options for their contents, and how those are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from gateway.admin.application import OPERATOR
from gateway.admin.drafted_edits import ACTIVATE_AT
from gateway.admin.limits import format_expiry, parse_expiry
from gateway.admin.policy_edits import PolicyText, text_of
from gateway.admin.shown import draft_shown, policy_shown
from gateway.control.aggregates import Policy
from gateway.control.drafts import Draft
from gateway.errors import BadRequestError
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.examples import EXAMPLES_SIZE_BYTES_MAX, parse_examples
from gateway.policy.policy_files import PolicyFile, PolicyFileError, read_policy
from gateway.policy.scopes import parse_scope
from lakeproof import console
from lakeproof.commands.opening import OpenServices, run_with_services
from lakeproof.commands.options import AsJson, OneTenant, one_of, read_bounded
from lakeproof.commands.refusals import log_to_change, run_refusable
from lakeproof.errors import LakeproofError
from lakeproof.services import Services, now
from lakeproof.tenants import find_tenant_log
from ledger.format.events import PolicyContents, ReviewVerdict
from ledger.format.json_object import parse_object

PolicyId = Annotated[str, typer.Argument(help="Its id, as `policies list` shows it.", show_default=False)]
Condition = Annotated[
    str | None, typer.Option("--expression", help="CEL; commits pass where it is true.", show_default=False)
]
Message = Annotated[
    str | None,
    typer.Option("--message", help="What a refused client reads; {commit.name} is a field.", show_default=False),
]
ScopeText = Annotated[
    str | None,
    typer.Option(
        "--scope",
        metavar="JSON",
        help='The commits it governs, as in {"names": ["sales.**"]}; without it all.',
        show_default=False,
    ),
]
ExamplesFile = Annotated[
    Path | None,
    typer.Option(
        "--examples",
        metavar="FILE",
        help="A JSON list of commits that it must allow or deny; it is saved only if they hold.",
        show_default=False,
    ),
]
ContentsFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The policy as a file, as `policies apply` reads it, in place of the options for its contents.",
        show_default=False,
    ),
]
Why = Annotated[str, typer.Option("--reason", help="Why, for the record.", show_default=False)]
ActivateAt = Annotated[
    str | None,
    typer.Option("--activate-at", metavar="TIME", help="In force from then on (RFC 3339).", show_default=False),
]
OlderVersion = Annotated[
    str | None,
    typer.Option("--from", metavar="VERSION", help="The one before, if not named.", show_default=False),
]
NewerVersion = Annotated[
    str | None,
    typer.Option("--to", metavar="VERSION", help="Or `draft`; the newest, if not named.", show_default=False),
]
ReviewedVersion = Annotated[int, typer.Option(help="Of the draft: the one that you have read.", show_default=False)]
Verdict = Annotated[
    str, typer.Option(help="approve or refuse.", autocompletion=one_of(ReviewVerdict), show_default=False)
]
_SCOPE_SIZE_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an author has written, on the command line or in a `file`."""

    text: PolicyText
    reason: str
    file: PolicyFile | None = None


def read_written(
    *,
    file: Path | None,
    expression: str | None,
    message: str | None,
    scope: str | None,
    examples: Path | None,
    reason: str,
) -> Written:
    """
    Return what an author has written; a reason on the command line stands in place of that of a file.

    Raises:
        typer.BadParameter: if it is neither there nor in a file; LakeproofError: if it is in both.
        GatewayError: if it is malformed; names the option, or the place in the file.
        LedgerError: if a file cannot be read, or the scope is no JSON object.
    """
    options = {"--expression": expression, "--message": message, "--scope": scope, "--examples": examples}
    if file is not None:
        if given := [name for name, value in options.items() if value is not None]:
            raise LakeproofError(f"--file: expected all contents in the file, found {given[0]}, too")
        policy = read_policy(file)
        text = text_of(policy)
        return Written(text=text, reason=reason or policy.reason, file=policy)
    if expression is None or message is None:
        raise missing_option("--expression" if expression is None else "--message")
    text = _read_text(expression=expression, message=message, scope=scope, examples=examples)
    return Written(text=text, reason=reason)


def missing_option(name: str) -> typer.BadParameter:
    """
    Return the error of a command that has neither an option nor a file that says it.
    """
    return typer.BadParameter("expected a value, or --file, found neither", param_hint=name)


def _read_text(*, expression: str, message: str, scope: str | None, examples: Path | None) -> PolicyText:
    named = None if scope is None else parse_object(scope, what="--scope", size_bytes_max=_SCOPE_SIZE_BYTES_MAX)
    return PolicyText(
        expression=expression,
        message=message,
        scope=parse_scope(named),
        examples=() if examples is None else parse_examples(_read_json(examples, where="--examples")),
    )


def check_named(written: Written | None, policy_id: str) -> None:
    """
    Check that a file is of the policy that is named.

    Raises:
        PolicyFileError: if it is of another; says where.
    """
    file = None if written is None else written.file
    if file is not None and file.id != policy_id:
        reason = f"id: expected {policy_id}, which the command names, found {file.id!r}"
        raise PolicyFileError(file.name, reason, place=file.place_of("id"))


@contextmanager
def placed(file: PolicyFile | None) -> Iterator[None]:
    """
    Give errors about what is saved their place in the file that it is from, if it is from one.
    """
    try:
        yield
    except PolicyNotCompiledError as error:
        if file is None:
            raise
        raise file.not_compiled(error) from error
    except BadRequestError as error:
        if file is None or not file.is_about(error):
            raise
        raise file.refused(error) from error


def read_time(text: str | None, *, field: str = ACTIVATE_AT) -> datetime | None:
    """
    Return the time that an option names, `--activate-at` if not another one, if any.

    Raises:
        BadRequestError: if it is malformed.
    """
    return None if text is None else parse_expiry(text, field=field)


def read_verdict(text: str) -> ReviewVerdict:
    """
    Return the verdict that `--verdict` names.

    Raises:
        LakeproofError: if there is none of that name.
    """
    if text not in set(ReviewVerdict):
        raise LakeproofError(f"--verdict: expected one of {', '.join(ReviewVerdict)}, found {text!r:.80}")
    return ReviewVerdict(text)


def force_words(shown: Mapping[str, Any], tenant: str) -> str:
    """
    Return a sentence that says from when a policy is in force, given how its newest version is shown.
    """
    coming = shown["coming"][-1] if shown["coming"] else None
    if coming is None and not shown["in_force"]:
        coming = shown
    if coming is None:
        return f"policy {shown['id']} v{shown['version']} is in force for tenant {tenant}"
    return f"policy {shown['id']} v{coming['version']} will be in force for tenant {tenant} at {coming['active_from']}"


def end_words(policy: Policy, tenant: str) -> str:
    """
    Return a sentence that says from when a policy that was retired is out of force.
    """
    if policy.active_from is None:
        return f"policy {policy.id} of tenant {tenant} is out of force"
    return f"policy {policy.id} of tenant {tenant} is in force until {format_expiry(policy.active_from)}"


def add_life_commands(app: typer.Typer, open_services: OpenServices) -> None:
    """
    Add `draft`, `review` and `diff` to the commands for policies.
    """

    @app.command()
    def draft(
        policy_id: PolicyId,
        *,
        tenant: OneTenant,
        file: ContentsFile = None,
        expression: Condition = None,
        message: Message = None,
        scope: ScopeText = None,
        examples: ExamplesFile = None,
        retire: Annotated[bool, typer.Option("--retire", help="Propose to take it out of force, for ever.")] = False,
        reason: Why = "",
        as_json: AsJson = False,
    ) -> None:
        """Propose contents for a policy, for somebody else to review. Nothing is in force by this."""
        if retire and any(value is not None for value in (file, expression, message, scope, examples)):
            raise LakeproofError("--retire: expected no contents for the end of a policy, found some")
        written = (
            None
            if retire
            else read_written(
                file=file, expression=expression, message=message, scope=scope, examples=examples, reason=reason
            )
        )
        check_named(written, policy_id)

        async def work(services: Services) -> Draft[PolicyContents]:
            log_id = await log_to_change(services, tenant)
            return await services.gateway.admin.draft_policy(
                log_id,
                OPERATOR,
                policy_id=policy_id,
                text=None if written is None else written.text,
                reason=reason if written is None else written.reason,
            )

        with placed(None if written is None else written.file):
            saved = run_refusable(open_services, work)
        sentence = (
            f"version {saved.version} of the draft of policy {policy_id} waits for a review: `lakeproof policies "
            f"review {policy_id} --version {saved.version}`"
        )
        console.show_done(sentence, draft_shown(saved, author=OPERATOR.actor), as_json=as_json)

    @app.command()
    def review(
        policy_id: PolicyId,
        *,
        tenant: OneTenant,
        version: ReviewedVersion,
        verdict: Verdict,
        reason: Why = "",
        activate_at: ActivateAt = None,
        as_json: AsJson = False,
    ) -> None:
        """Approve the draft of a policy, which puts it in force, or refuse it."""
        said = read_verdict(verdict)

        async def work(services: Services) -> Policy | None:
            log_id = await log_to_change(services, tenant)
            return await services.gateway.admin.review_policy(
                log_id,
                OPERATOR,
                policy_id=policy_id,
                version=version,
                verdict=said,
                reason=reason,
                activate_at=read_time(activate_at),
            )

        policy = run_refusable(open_services, work)
        shown = None if policy is None else policy_shown(policy, now=now())
        sentence = _review_words(policy_id, policy, tenant)
        document = {"id": policy_id, "draft": version, "verdict": verdict, "policy": shown}
        console.show_done(sentence, document, as_json=as_json)

    @app.command()
    def diff(
        policy_id: PolicyId,
        *,
        tenant: OneTenant,
        older: OlderVersion = None,
        newer: NewerVersion = None,
        as_json: AsJson = False,
    ) -> None:
        """Show what differs between two versions of a policy, or between one and its draft."""

        async def work(services: Services) -> dict[str, Any]:
            log_id = await find_tenant_log(services, tenant)
            return await services.gateway.admin.diff_policy(log_id, policy_id=policy_id, older=older, newer=newer)

        found = {"id": policy_id, **run_with_services(open_services, work)}
        show_diff(found, of="policy", lined="expression", as_json=as_json)


def _review_words(policy_id: str, policy: Policy | None, tenant: str) -> str:
    if policy is None:
        return f"the draft of policy {policy_id} is refused"
    if policy.retired:
        return end_words(policy, tenant)
    return force_words(policy_shown(policy, now=now()), tenant)


def show_diff(found: Mapping[str, Any], *, of: str, lined: str, as_json: bool) -> None:
    """
    Show what differs between two versions of a thing (`of`, as in `policy`), whose member `lined` is compared by lines.
    """
    if as_json:
        console.show_json(found)
        return
    for line in found[lined].splitlines():
        console.say(console.printable(line))
    for name, both in found["changed"].items():
        console.say(f"{name}:")
        console.say(f"- {console.one_line(_value(both['from']))}")
        console.say(f"+ {console.one_line(_value(both['to']))}")
    if not found[lined] and not found["changed"]:
        console.say(f"{found['from']} and {found['to']} of {of} {found['id']} are the same")


def _read_json(path: Path, *, where: str) -> Any:
    data = read_bounded(path, size_bytes_max=EXAMPLES_SIZE_BYTES_MAX)
    if len(data) > EXAMPLES_SIZE_BYTES_MAX:
        raise BadRequestError(f"expected at most {EXAMPLES_SIZE_BYTES_MAX:,} bytes, found more", field=where)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(f"{path}: expected JSON, found {error}", field=where) from error


def _value(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
