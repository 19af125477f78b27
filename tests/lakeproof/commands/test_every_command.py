# SPDX-License-Identifier: Apache-2.0
"""
What holds of every command: its verb, its help, and a form of its result for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from lakeproof import cli
from testkit.lakeproof.command_tree import FoundCommand, every_command

VERBS: Final = frozenset({"list", "show", "create", "change", "delete"})
OTHER_VERBS: Final = {
    "access-rules import": "creates what is written in a file",
    "access-rules who": "asks the rules about every caller, and changes nothing",
    "access-rules what": "asks the rules about every operation, and changes nothing",
    "access-rules lint": "says which rules in force do nothing",
    "policies draft": "proposes contents, which are in force only once somebody else approves them",
    "policies review": "approves or refuses what somebody else has proposed",
    "policies diff": "compares two versions",
    "findings review": "says of a finding whether it is real",
    "policies test": "runs the examples of files",
    "policies lint": "says what looks wrong in files",
    "policies apply": "creates, changes and deletes what it takes to have in force what files say",
    "policies replay": "judges recorded decisions again, with other policies",
    "policies explain": "shows how one decision came about",
    "policies compile": "shows what an expression reads, and saves nothing",
    "restrictions draft": "proposes contents, which are saved only once somebody else approves them",
    "restrictions review": "approves or refuses what somebody else has proposed",
    "restrictions diff": "compares two versions",
    "restrictions test": "runs the examples of files",
    "catalogs check": "asks what is behind an alias, and changes nothing",
    "catalogs transfer": "moves a place between two tenants",
    "keys rotate": "creates one key and ends another",
    "console login": "makes a link that counts once, which nothing lists or shows again",
    "dead-letters replay": "handles messages again",
    "projections status": "how far they are; there is no list that people edit",
    "projections rebuild": "compares what it makes with what is there",
    "projections replace": "makes it again without comparing",
    "projections prune": "drops generations, not a thing that people name",
    "graph traverse": "follows edges from a table",
    "streams run": "a process",
    "streams consume": "a process",
    "streams status": "how far they are",
    "detect run": "a process",
    "detect request": "asks a process for work",
    "detect status": "how far it is",
}
"""The verbs that say what none of the five says, and what that is."""
SINGLE: Final = frozenset({"up", "demo", *cli.SINGLE})
"""Commands without a group."""
LEDGER: Final = "ledger"
"""The group of commands on logs: their verbs are those of proofs (verify, prove, export) and of keys that sign."""
WITHOUT_JSON: Final = {
    "up": "serves; LAKEPROOF_LOG_FORMAT=json makes its lines JSON",
    "demo": "plays a scene for people, then serves as `up` does",
    "detect run": "serves; its lines are the log's",
    "ledger witness serve": "serves, and prints no result",
}
"""Commands without `--json`, and why."""


@pytest.fixture(scope="module")
def commands() -> Mapping[str, FoundCommand]:
    return every_command()


def test_every_group_has_one_scheme_of_verbs(commands: Mapping[str, FoundCommand]) -> None:
    found = {name for name, each in commands.items() if len(each.words) > 1 and each.words[0] != LEDGER}
    others = {name for name in found if name.split()[-1] not in VERBS}
    assert others == set(OTHER_VERBS)
    assert {name for name, each in commands.items() if len(each.words) == 1} == SINGLE


def test_every_command_that_prints_a_result_prints_it_for_programs_too(commands: Mapping[str, FoundCommand]) -> None:
    assert {name for name, each in commands.items() if "--json" not in each.options} == set(WITHOUT_JSON)


def test_every_command_says_in_a_sentence_what_it_does(commands: Mapping[str, FoundCommand]) -> None:
    for name, each in commands.items():
        first = each.help.strip().partition("\n")[0]
        assert first[:1].isupper(), name
        assert first.endswith("."), name


def test_what_takes_something_out_of_force_says_what_stays(commands: Mapping[str, FoundCommand]) -> None:
    for group in ("policies", "restrictions", "access-rules", "catalogs", "keys"):
        assert "for ever" in commands[f"{group} delete"].help
        assert "The log keeps" in commands[f"{group} delete"].help.replace("the log keeps", "The log keeps")
