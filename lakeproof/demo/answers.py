# SPDX-License-Identifier: Apache-2.0
"""
The act of the graph: five questions about one table, answered by its graph, and as a drawing.
"""

from __future__ import annotations

from typing import Final

from lakeproof.demo import engine, foreign_catalog
from lakeproof.demo.command import run_command
from lakeproof.demo.scene_run import SceneRun
from ledger.format.event import format_key
from projections.graph.answers import RunSummary, TableAnswers
from projections.graph.read import open_graph

PICTURE: Final = "graph.svg"
SHOWN: Final = 3


async def graph_answers(run: SceneRun) -> None:
    """Ask about the table on S3, and draw it."""
    await run.projected()
    table = format_key("table", (foreign_catalog.ALIAS, *foreign_catalog.CUSTOMERS))
    async with run.reading() as connection:
        answers = await (await open_graph(connection)).answers(table)
    source = format_key("table", (engine.ALIAS, *engine.CUSTOMERS))
    if not answers.writes or not answers.ungoverned or [data.key for data in answers.made_from] != [source]:
        raise AssertionError(f"expected writes, one ungoverned snapshot and {source} as the source, found {answers}")
    if not answers.found or not answers.allowed_by or not answers.read_by:
        raise AssertionError(f"expected findings, policies that allowed it, and a reader, found {answers}")
    _say(run, answers)
    picture = run.serving.services.installation.settings.home / PICTURE
    drawn = ("graph", "show", table, "--tenant", run.founded.tenant.hex, "--svg", str(picture))
    await run_command(picture.parent, *drawn)
    run.say(f"   the same as a picture: {picture}")


def _say(run: SceneRun, answers: TableAnswers) -> None:
    wrote = ", ".join(f"{write.principal} ({write.operation}, {write.outcome})" for write in answers.writes[:SHOWN])
    run.say(f"   who wrote {answers.table}? {wrote}")
    run.say(f"     and nobody that a decision names: snapshot {answers.ungoverned[0].snapshot_id}")
    run.say(
        f"   from what was it made? {', '.join(data.key for data in answers.made_from)}, by {_jobs(answers.made_by)}"
    )
    allowed = ", ".join(f"{policy.id} v{policy.version}" for policy in answers.allowed_by)
    run.say(f"   which policy allowed it? {allowed}")
    found = ", ".join(f"{each.column}: {each.kind} ({each.confidence_percent})" for each in answers.found)
    run.say(f"   what was found in it? {found}")
    run.say(f"   who else reads from it? {_jobs(answers.read_by)}")


def _jobs(work: tuple[RunSummary, ...]) -> str:
    jobs = ["/".join(each.job) for each in work if each.job is not None]
    return ", ".join(jobs) or "nobody has said so"
