# SPDX-License-Identifier: Apache-2.0
"""
The act of a proposal: what a change of policies would have made of all that the scene has committed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from lakeproof.demo.api import FINANCE
from lakeproof.demo.command import run_command
from lakeproof.demo.scene_run import SceneRun
from ledger.format.events import ProposalReplayed, from_data

WIDENED: Final = 1
"""The exit code of `lakeproof policies replay` if something that was refused would pass."""
PROPOSED: Final = (
    f"""\
id: {FINANCE["id"]}
expression: |-
  commit.namespace[0] != 'finance' || 'data-eng' in principal.roles || 'analyst' in principal.roles
message: only roles data-eng and analyst may write to finance
""",
    """\
id: p4-channel
scope: {names: [sales.orders]}
expression: |-
  !result.exists || has_column(result, 'channel')
message: orders must have a column channel
""",
)
"""One that is in force would let through more, and a new one would refuse."""


async def proposal_is_replayed(run: SceneRun) -> None:
    """Replay two proposed policies over the log, and have recorded what was found."""
    before, home = await run.head(), run.serving.services.installation.settings.home
    with tempfile.TemporaryDirectory(prefix="lakeproof-proposal-") as folder:
        for number, text in enumerate(PROPOSED):
            (Path(folder) / f"{number}.yaml").write_text(text, encoding="utf-8")
        asked = ("policies", "replay", folder, "--tenant", run.founded.tenant.hex, "--attest")
        ran = await run_command(home, *asked, expect=WIDENED, environment=run.environment())
    run.say(
        "   $ lakeproof policies replay proposal --tenant … --attest   (analysts may write to finance; a new column)"
    )
    for line in ran.output.splitlines():
        run.say(f"     {line}")
    found = [
        from_data(ProposalReplayed, entry.data) for entry in await run.entries(before) if _is_of_replay(entry.type)
    ]
    if len(found) != 1 or not found[0].widened or not found[0].narrowed or found[0].unknown or found[0].failed:
        raise AssertionError(
            f"expected one entry with decisions that change both ways, all of them known, found {found}"
        )


def _is_of_replay(entry_type: str) -> bool:
    return entry_type == ProposalReplayed.TYPE
