# SPDX-License-Identifier: Apache-2.0
"""
A small campaign of kills: whatever is killed while clients commit, tables, log and answers agree afterwards.

`bench/crash.py` runs it at length.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from testkit.crashes.campaign import Campaign, Kill, Moment, Victim
from testkit.crashes.installation import BUILT_IN, FOREIGN, processes_of, running_installation

KILLS = (
    Kill(victim=Victim.GATEWAY, moment=Moment.DECIDED, alias=FOREIGN),
    Kill(victim=Victim.BACKEND, moment=Moment.SENT, alias=BUILT_IN),
)


def test_tables_log_and_answers_agree_after_kills(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]]
) -> None:
    said: list[str] = []
    with short_directory() as directory:
        with running_installation(directory, age) as installation:
            campaign = Campaign(installation, seed=1, say=said.append)
            campaign.run(KILLS, phase_size=len(KILLS))
            figures, wrong = campaign.figures(), installation.end_up()
        assert processes_of(directory) == []
    assert figures["violations"] + wrong == [], said
    assert figures["kills"] == len(KILLS)
    assert figures["commits"] > 0
