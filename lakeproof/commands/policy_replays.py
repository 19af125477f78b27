# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof policies replay`: what proposed policies would have decided.

Exit codes: 0 no verdict changes, 1 something that was refused would pass, 2 something that passed would be refused or
could not be decided, or the replay itself failed. If both directions occur it is 1: what is let through counts more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gateway.admin.application import OPERATOR
from gateway.admin.policy_apply import check_compiles
from gateway.policy.policy_files import PolicyFile, read_policies
from gateway.replaying.application import attest, replay_since
from gateway.replaying.callers import names_of
from gateway.replaying.comparing import Change
from gateway.replaying.coverage import coverage_lines
from gateway.replaying.replay import Group, Proposed, Replayed
from gateway.replaying.spans import EXPECTED, span_of
from lakeproof import console
from lakeproof.commands.exits import failing_with, progress
from lakeproof.commands.opening import OpenServices, run_with_services
from lakeproof.commands.options import AsJson, OneTenant
from lakeproof.page_access import page_access
from lakeproof.serving.processes import cores
from lakeproof.tenants import find_tenant
from ledger.errors import LedgerError
from ledger.format.canonical import format_time
from ledger.format.events import ProposalReplayed
from ledger.format.verification import ProgressCallback

if TYPE_CHECKING:
    from lakeproof.services import Services

NO_CHANGE: Final = 0
WIDENED: Final = 1
NARROWED: Final = 2
SHOWN_MAX: Final = 40
"""Kinds of changes shown to people; programs get all of them."""

_ORDER: Final = (Change.WIDENED, Change.NARROWED, Change.FAILED, Change.UNKNOWN)


def add_replay(app: typer.Typer, open_services: OpenServices) -> None:
    """
    Add `replay` to the commands for policies.
    """

    @app.command()
    def replay(
        path: Annotated[
            Path, typer.Argument(metavar="FILE|DIR", help="Proposed policies, as YAML.", show_default=False)
        ],
        *,
        tenant: OneTenant,
        since: Annotated[str, typer.Option(help="How far back: 90m, 12h, 30d, 8w.")] = "30d",
        coverage: Annotated[
            bool, typer.Option("--coverage", help="Say how many decisions reached each branch, and which none did.")
        ] = False,
        attest: Annotated[bool, typer.Option("--attest", help="Record in the log what was found.")] = False,
        as_json: AsJson = False,
    ) -> None:
        """Judge recorded decisions again with proposed policies. Exit code 0: no change, 1: widened, 2: narrowed."""
        with failing_with(NARROWED, as_json=as_json):
            back = parse_since(since)
            files = read_policies(path)
            with progress("entries") as show_progress:
                replaying = partial(
                    _replay, tenant=tenant, files=files, back=back, covers=coverage, attests=attest, show=show_progress
                )
                report = run_with_services(open_services, replaying)
        if as_json:
            console.show_json(report.shown())
        else:
            for line in report.lines():
                console.say(line)
        if report.found.counts[Change.UNKNOWN] == report.found.decisions:
            console.complain("none of the decisions could be judged again: what they were judged on is not known")
        raise typer.Exit(exit_code(report.found))


def parse_since(text: str) -> timedelta:
    """
    Return a span of time like `30d`: a whole number of minutes, hours, days or weeks.

    Raises:
        LedgerError: if it is none, or longer than a hundred years.
    """
    span = span_of(text)
    if span is None:
        raise LedgerError(f"--since: {EXPECTED}, found {text!r:.40}")
    return span


async def _replay(
    services: Services,
    *,
    tenant: str,
    files: Sequence[PolicyFile],
    back: timedelta,
    covers: bool,
    attests: bool,
    show: ProgressCallback,
) -> ReplayReport:
    tenant_id, log_id = await find_tenant(services, tenant)
    gateway = services.gateway
    for file in files:
        await check_compiles(services.engine, file, log_id=log_id, timeout_s=gateway.judge.timeout_s)
    proposal = [Proposed(id=file.id, expression=file.expression, scope=file.scope) for file in files]
    since = gateway.clock() - back
    found = await replay_since(
        gateway,
        tenant_id,
        log_id,
        proposal,
        since=since,
        covers=covers,
        progress=show,
        access=page_access(services, tenant_id) if cores() > 1 else None,
    )
    names = await names_of(gateway, tenant_id, log_id, {group.actor: group.first for group in found.groups})
    attested = await attest(gateway, log_id, proposal, found, actor=OPERATOR.actor) if attests else None
    return ReplayReport(found=found, names=names, files=files, since=since, attested=attested)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay found, with the names of callers by actor, and the event that records it with its index."""

    found: Replayed
    names: Mapping[str, str]
    files: Sequence[PolicyFile]
    since: datetime
    attested: tuple[ProposalReplayed, int] | None

    def shown(self) -> dict[str, object]:
        """Return it for programs."""
        found = self.found
        return {
            "policies": len(self.files),
            "since": format_time(self.since),
            "first": found.first,
            "end": found.end,
            "decisions": found.decisions,
            "counts": {change.value: found.counts[change] for change in Change},
            "changes": [self._shown(group) for group in self._groups()],
            "changes_not_listed": found.ungrouped,
            "unknown": [{"why": why, "decisions": count} for why, count in found.unknown.most_common()],
            "digests": {"proposal": found.proposal, "inputs": found.inputs, "verdicts": found.verdicts},
            **({"coverage": self._coverage()} if found.coverage else {}),
            "attested": None if self.attested is None else self.attested[1],
        }

    def lines(self) -> Iterator[str]:
        """Yield it for people."""
        found = self.found
        yield (
            f"{found.decisions:,} decisions in entries {found.first:,} to {found.end - 1:,}, since "
            f"{self.since.isoformat(timespec='seconds')}; {len(self.files)} proposed"
        )
        yield ", ".join(f"{change.value.replace('_', ' ')} {found.counts[change]:,}" for change in Change)
        changes = [group for group in self._groups() if group.change is not Change.UNKNOWN]
        for group in changes[:SHOWN_MAX]:
            by = f"by {group.rule or 'no policy'}, of {self._name(group)}; the first is entry {group.first}"
            yield f"{group.change.value:<9} {group.count:>9,}  {console.one_line(f'{group.path} {by}')}"
        if len(changes) > SHOWN_MAX or found.ungrouped:
            more = len(changes[SHOWN_MAX:])
            yield f"and {more:,} more kinds of changes: --json lists them; {found.ungrouped:,} decisions are not listed"
        for why, count in found.unknown.most_common():
            yield f"unknown   {count:>9,}  {why}"
        for covered in self._coverage():
            yield from map(console.one_line, coverage_lines(covered))
        yield f"proposal {found.proposal}"
        yield f"inputs   {found.inputs}"
        yield f"verdicts {found.verdicts}"
        if self.attested is not None:
            yield f"attested in entry {self.attested[1]:,}"

    def _groups(self) -> list[Group]:
        return sorted(self.found.groups, key=lambda group: (_ORDER.index(group.change), -group.count))

    def _coverage(self) -> list[dict[str, Any]]:
        """Return the coverage of each policy, with places in its file."""
        files = {file.id: file for file in self.files}
        return [one.shown(files[one.policy].place_in_expression) for one in self.found.coverage]

    def _name(self, group: Group) -> str:
        return self.names.get(group.actor, group.actor)

    def _shown(self, group: Group) -> dict[str, object]:
        return {
            "change": group.change.value,
            "policy": group.rule,
            "target": group.path,
            "principal": self._name(group),
            "actor": group.actor,
            "decisions": group.count,
            "first_index": group.first,
            "why": group.why,
        }


def exit_code(found: Replayed) -> int:
    """
    Return the exit code; if both directions occur, what is let through counts more. Nothing known is no success.
    """
    counts = found.counts
    if counts[Change.WIDENED]:
        return WIDENED
    is_lost = counts[Change.UNKNOWN] == found.decisions
    return NARROWED if counts[Change.NARROWED] or counts[Change.FAILED] or is_lost else NO_CHANGE
