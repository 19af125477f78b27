"""
The act of the graph: five questions about one table, answered by one openCypher query, and as a picture.
"""

from __future__ import annotations

from typing import Final

from lakeproof.demo import elsewhere, engine
from lakeproof.demo.command import run_command
from lakeproof.demo.stage import Stage
from ledger.format.event import format_key
from projections.graph.answers import TableAnswers, Work
from projections.graph.read import open_graph

PICTURE: Final = "graph.svg"
SHOWN: Final = 3


async def graph_answers(stage: Stage) -> None:
    """Ask about the table on S3, and draw it."""
    await stage.projected()
    table = format_key("table", (elsewhere.ALIAS, *elsewhere.CUSTOMERS))
    async with stage.reading() as connection:
        answers = await (await open_graph(connection)).answers(table)
    source = format_key("table", (engine.ALIAS, *engine.CUSTOMERS))
    if not answers.writes or not answers.ungoverned or [data.key for data in answers.made_from] != [source]:
        raise AssertionError(f"expected writes, one ungoverned snapshot and {source} as the source, found {answers}")
    if not answers.found or not answers.allowed_by or not answers.read_by:
        raise AssertionError(f"expected findings, policies that allowed it, and a reader, found {answers}")
    _say(stage, answers)
    picture = stage.serving.services.installation.settings.home / PICTURE
    drawn = ("projections", "graph", table, "--tenant", stage.founded.tenant.hex, "--svg", str(picture))
    await run_command(picture.parent, *drawn)
    stage.say(f"   the same as a picture: {picture}")


def _say(stage: Stage, answers: TableAnswers) -> None:
    wrote = ", ".join(f"{write.principal} ({write.operation}, {write.outcome})" for write in answers.writes[:SHOWN])
    stage.say(f"   who wrote {answers.table}? {wrote}")
    stage.say(f"     and nobody that a decision names: snapshot {answers.ungoverned[0].snapshot_id}")
    stage.say(
        f"   from what was it made? {', '.join(data.key for data in answers.made_from)}, by {_jobs(answers.made_by)}"
    )
    allowed = ", ".join(f"{policy.id} v{policy.version}" for policy in answers.allowed_by)
    stage.say(f"   which policy allowed it? {allowed}")
    found = ", ".join(f"{each.column}: {each.kind} ({each.confidence_percent})" for each in answers.found)
    stage.say(f"   what was found in it? {found}")
    stage.say(f"   who else reads from it? {_jobs(answers.read_by)}")


def _jobs(work: tuple[Work, ...]) -> str:
    jobs = ["/".join(each.job) for each in work if each.job is not None]
    return ", ".join(jobs) or "nobody has said so"
