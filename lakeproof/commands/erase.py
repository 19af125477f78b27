"""
The commands that let a log forget: `erase` a person or a payload part, `retain` parts for so long and no longer.

No proof is touched: entries hold commitments alone, and those stay.
"""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakeproof.commands.exits import failure, progress
from lakeproof.commands.options import LogKeys, LogName, parsed_keys
from ledger.format.event import PART_NAME_FORM
from ledger.format.events import ErasureReason

if TYPE_CHECKING:  # at run time these would load the database driver
    from lakeproof.commands.room import OpenRoom

DAYS_MAX: Final = 36_500

_PART: Final = re.compile(rf"([0-9]{{1,18}})/({PART_NAME_FORM.pattern})")
_AGE: Final = re.compile(r"([0-9]{1,6})([dh])")

Reclaim = Annotated[
    bool, typer.Option("--reclaim", help="Write the tables that held it anew; they are locked for that time.")
]


def add_erasing(app: typer.Typer, open_room: OpenRoom) -> None:
    """
    Add `erase` and `retain`; each calls `open_room`.
    """

    @app.command()
    def erase(
        log: LogName,
        *,
        subject: Annotated[
            str | None,
            typer.Option("--subject", help="A person: 32 hex digits, or what they log in as.", show_default=False),
        ] = None,
        part: Annotated[
            str | None,
            typer.Option("--part", metavar="INDEX/NAME", help="One part of one entry.", show_default=False),
        ] = None,
        replay: Annotated[
            Path | None,
            typer.Option(
                "--replay", metavar="DIRECTORY", help="All that an export knows to be erased.", show_default=False
            ),
        ] = None,
        reason: Annotated[ErasureReason, typer.Option("--reason", help="What the log says why.")] = (
            ErasureReason.REQUEST
        ),
        key: LogKeys = None,
        reclaim: Reclaim = False,
    ) -> None:
        """Erase payload parts for ever, and every sealed copy of them; all proofs stay valid."""
        from lakeproof.commands.erase_room import erase_as_exported, erase_one_part, erase_person

        if sum(given is not None for given in (subject, part, replay)) != 1:
            raise typer.BadParameter("expected one of --subject, --part and --replay")
        with failure(), progress("entries verified") as told:
            if subject is not None:
                text = asyncio.run(erase_person(open_room, log, subject, reason=reason, reclaim=reclaim))
            elif part is not None:
                index, name = _parse_part(part)
                text = asyncio.run(
                    erase_one_part(open_room, log, index=index, part=name, reason=reason, reclaim=reclaim)
                )
            else:
                assert replay is not None  # noqa: S101  (for the type checker: one of the three was given)
                done = erase_as_exported(open_room, log, replay, keys=parsed_keys(key), reclaim=reclaim, progress=told)
                text = asyncio.run(done)
            typer.echo(text)

    @app.command()
    def retain(
        log: LogName,
        *,
        older_than: Annotated[
            str, typer.Option("--older-than", metavar="AGE", help="As in 365d or 48h.", show_default=False)
        ],
        name: Annotated[
            str | None, typer.Option("--name", help="Only parts of that name, as inputs.", show_default=False)
        ] = None,
        type_: Annotated[
            str | None,
            typer.Option("--type", help="Only parts of entries of that type, as commit.decided.", show_default=False),
        ] = None,
        reclaim: Reclaim = False,
    ) -> None:
        """Erase payload parts that were kept for so long, and dead letters; entries and proofs stay."""
        from lakeproof.commands.erase_room import Retained, erase_older

        retained = Retained(older_than=_parse_age(older_than), name=name, type=type_)
        with failure():
            typer.echo(asyncio.run(erase_older(open_room, log, retained, reclaim=reclaim)))


def _parse_part(text: str) -> tuple[int, str]:
    found = _PART.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"--part: expected INDEX/NAME, as in 17/principal, found {text!r:.80}")
    return int(found[1]), found[2]


def _parse_age(text: str) -> timedelta:
    found = _AGE.fullmatch(text)
    age = timedelta(**{"d": {"days": int(found[1])}, "h": {"hours": int(found[1])}}[found[2]]) if found else None
    if age is None or age > timedelta(days=DAYS_MAX):
        raise typer.BadParameter(f"--older-than: expected days or hours, as in 365d or 48h, found {text!r:.80}")
    return age
