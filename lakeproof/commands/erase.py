# SPDX-License-Identifier: Apache-2.0
"""
The commands that let a log forget: `erase` a person or a payload part, `retain` parts for so long and no longer.

No proof is touched: entries hold commitments alone, and those stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakeproof.commands.exits import Done, failure, progress
from lakeproof.commands.opening import OpenInstallation, run_with_auditor
from lakeproof.commands.options import AsJson, LogKeys, LogName, parsed_keys
from lakeproof.log_names import find_named_log
from ledger.erasing.erase import Eraser, Erasure, ErasureRequest, NoSuchSubjectError
from ledger.erasing.rerun import exported_erasures
from ledger.errors import LedgerError
from ledger.files.directory import CHECKPOINT_FILE, LogDirectory
from ledger.format.event import PART_NAME_FORM
from ledger.format.events import ErasureReason, PayloadErased
from ledger.format.note import VerifierKey
from ledger.format.verification import ProgressCallback, read_checkpoint
from ledger.proving.export import as_reader
from ledger.recovering.recover import count_shared
from ledger.store.queries import load_queries
from ledger.store.read import Log, first_index_since, read_head
from ledger.store.session import Connection
from ledger.verify.directory import verify_directory

if TYPE_CHECKING:
    from lakeproof.installation import Installation


DAYS_MAX: Final = 36_500

_PART: Final = re.compile(rf"([0-9]{{1,18}})/({PART_NAME_FORM.pattern})")
_AGE: Final = re.compile(r"([0-9]{1,6})([dh])")

Reclaim = Annotated[
    bool, typer.Option("--reclaim", help="Rewrite the tables that held it; they are locked for that time.")
]


def add_commands(app: typer.Typer, open_installation: OpenInstallation) -> None:
    """
    Add `erase` and `retain`; each calls `open_installation`.
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
        as_json: AsJson = False,
    ) -> None:
        """Erase payload parts for ever, and every sealed copy of them; all proofs stay valid."""
        if sum(given is not None for given in (subject, part, replay)) != 1:
            raise typer.BadParameter("expected one of --subject, --part and --replay")
        with failure(), progress("entries verified") as show_progress:

            async def work(installation: Installation, auditor: Connection) -> Done:
                if subject is not None:
                    return await erase_person(installation, auditor, log, subject, reason=reason, reclaim=reclaim)
                if part is not None:
                    index, name = _parse_part(part)
                    return await erase_one_part(
                        installation, auditor, log, index=index, part=name, reason=reason, reclaim=reclaim
                    )
                assert replay is not None  # noqa: S101  (for the type checker: one of the three was given)
                return await erase_as_exported(
                    installation, auditor, log, replay, keys=parsed_keys(key), reclaim=reclaim, progress=show_progress
                )

            done = run_with_auditor(open_installation, work)
        done.show(as_json=as_json)

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
        as_json: AsJson = False,
    ) -> None:
        """Erase payload parts that were kept for so long, and dead letters; entries and proofs stay."""
        retained = Retained(older_than=_parse_age(older_than), name=name, type=type_)
        with failure():
            erasing = partial(erase_older, name=log, retained=retained, reclaim=reclaim)
            run_with_auditor(open_installation, erasing).show(as_json=as_json)


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


_QUERIES: Final = load_queries("ledger.store", "search.sql")
_SUBJECT: Final = re.compile(r"[0-9a-f]{32}")
_REMAINS: Final = (
    "sealed copies in backups, replicas and archived WAL cannot be read any more; who it was, and what read models had "
    "of it, remains in WAL segments and free pages until they are written over (--reclaim rewrites those tables)"
)
_RECLAIMED: Final = (
    "the tables that held it were rewritten; WAL segments from before go with the next checkpoints and archives, "
    "and backups from before say who it was until they expire"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """How long payload parts are kept, and which."""

    older_than: timedelta
    name: str | None
    type: str | None

    @property
    def is_everything(self) -> bool:
        """Whether all that is as old is meant."""
        return self.name is None and self.type is None


async def erase_person(
    installation: Installation, auditor: Connection, name: str, subject: str, *, reason: ErasureReason, reclaim: bool
) -> Done:
    """
    Erase a person (32 hex digits, or the identity that they log in with) from a log, and say what that did.

    Raises:
        NoSuchSubjectError: if the log knows nobody of that name.
        LedgerError: if it cannot be done.
    """
    from lakeproof.erasing import open_eraser  # the whole system: only what erases needs it

    async with open_eraser(installation, auditor) as eraser:
        log = await find_named_log(installation, auditor, name)
        erased = await eraser.erase_person(log, await _subject(auditor, log, subject), _request(reason))
        return await _finish(installation, log, erased, reclaim=reclaim)


async def erase_one_part(
    installation: Installation,
    auditor: Connection,
    name: str,
    *,
    index: int,
    part: str,
    reason: ErasureReason,
    reclaim: bool,
) -> Done:
    """
    Erase one payload part of one entry, and say what that did.

    Raises:
        NoSuchSubjectError: if the log has no such part.
        LedgerError: if it cannot be done.
    """
    from lakeproof.erasing import open_eraser  # the whole system: only what erases needs it

    async with open_eraser(installation, auditor) as eraser:
        log = await find_named_log(installation, auditor, name)
        erased = await eraser.erase_part(log, index, part, _request(reason))
        return await _finish(installation, log, [erased], reclaim=reclaim)


async def erase_older(
    installation: Installation, auditor: Connection, name: str, retained: Retained, *, reclaim: bool
) -> Done:
    """
    Erase the payload parts that were kept as long as they may be, and say what that did.

    Where all of them are meant, dead letters of that age are deleted, too.

    Raises:
        LedgerError: if it cannot be done.
    """
    # Here: only what erases needs the whole system.
    from lakeproof.erasing import delete_dead_letters, open_eraser, reclaim_dead_letters

    async with open_eraser(installation, auditor) as eraser:
        log = await find_named_log(installation, auditor, name)
        request, since = _request(ErasureReason.RETENTION), datetime.now(UTC) - retained.older_than
        lines, members = [], _members([], reclaim=reclaim)
        size = (await read_head(auditor, log.log_id)).size
        if before := await first_index_since(auditor, log.log_id, since, size=size):
            erased = await eraser.erase_before(log, before, request, name=retained.name, type=retained.type)
            done = await _finish(installation, log, [erased], reclaim=reclaim)
            lines.append(done.text)
            members = done.members
        deleted = 0
        if retained.is_everything and (deleted := await delete_dead_letters(installation, log, since)):
            lines.append(f"{deleted:,} dead letters deleted: messages that could not be handled, as they came")
            if reclaim:
                await reclaim_dead_letters(installation)
        said = "\n".join(lines) or "nothing was erased: nothing is as old as that"
        return Done(said, {**members, "dead_letters": deleted})


async def erase_as_exported(
    installation: Installation,
    auditor: Connection,
    name: str,
    directory: Path,
    *,
    keys: list[VerifierKey],
    reclaim: bool,
    progress: ProgressCallback,
) -> Done:
    """
    Erase what an export of the log knows to be erased and the log itself, set back to a backup, does not.

    The log may have diverged since, for example by this very erasure. So an erasure that names an index applies only to
    the entries that both the log and the export begin with.

    Raises:
        BrokenError: if the export does not verify.
        LedgerError: if it cannot be done.
    """
    from lakeproof.erasing import open_eraser  # the whole system: only what erases needs it

    async with open_eraser(installation, auditor) as eraser:
        log = await find_named_log(installation, auditor, name)
        report = verify_directory(directory, keys or _signing_keys(installation, log, directory), progress=progress)
        files = LogDirectory(directory)
        shared = await count_shared(auditor, log, files, origin=report.origin, size=report.size)
        erasures = list(exported_erasures(directory, size=report.size))
        known = [await _erase_again(eraser, log, each, shared=shared) for each in erasures]
        done = await _finish(installation, log, [each for each in known if each is not None], reclaim=reclaim)
        elsewhere, said = sum(each.index is not None and each.index >= shared for each in erasures), done.text
        if elsewhere:
            said += f"\n{elsewhere:,} more name entries that only the export has: both share those below {shared:,}"
        return Done(said, {**done.members, "only_in_export": elsewhere})


def _signing_keys(installation: Installation, log: Log, directory: Path) -> Sequence[VerifierKey]:
    """Return the keys that may have signed an export as large as this one: it may be from before a rotation."""
    history, note = installation.open_keys().keys.history, LogDirectory(directory).read_checkpoint()
    exported = read_checkpoint(note, history, where=CHECKPOINT_FILE, origin=log.origin)
    return history.keys_for(log.origin, exported.size)


async def _erase_again(eraser: Eraser, log: Log, erased: PayloadErased, *, shared: int) -> Erasure | None:
    """
    Erase what is there of it; None if this log has never come to know it.

    Entries from `shared` on are others than the exported ones, even those that are appended only now. A person is the
    same in both: nobody else is ever given those 128 random bits.
    """
    request = _request(erased.reason)
    try:
        if erased.subject is not None:
            return await eraser.erase_subject(log, erased.subject, request)
        if erased.index is not None and erased.index < shared:
            return await eraser.erase_part(log, erased.index, erased.name or "", request)
    except NoSuchSubjectError:
        return None
    if not (before := min(erased.before or 0, shared)):
        return None
    return await eraser.erase_before(log, before, request, name=erased.name, type=erased.type)


async def _finish(installation: Installation, log: Log, erased: Sequence[Erasure], *, reclaim: bool) -> Done:
    members = _members(erased, reclaim=reclaim)
    lines = [f"{each.parts:,} payload parts deleted; entry {each.index} of {each.origin} says so" for each in erased]
    if copies := sum(each.copies for each in erased):
        lines.append(f"{copies:,} copies of the login erased: in dead letters, waiting messages and files of this home")
    if not erased:
        return Done(f"nothing was erased: {log.origin} knows nothing of it", members)
    if reclaim:
        from lakeproof.erasing import reclaim_erased

        await reclaim_erased(installation, log, max(each.index for each in erased))
    return Done("\n".join((*lines, _RECLAIMED if reclaim else _REMAINS)), members)


def _members(erased: Sequence[Erasure], *, reclaim: bool) -> Mapping[str, object]:
    return {
        "erased": [
            {"log": each.origin, "entry": each.index, "parts": each.parts, "copies": each.copies} for each in erased
        ],
        "reclaimed": bool(erased) and reclaim,
    }


def _request(reason: ErasureReason) -> ErasureRequest:
    return ErasureRequest(reason=reason, at=datetime.now(UTC))


async def _subject(auditor: Connection, log: Log, name: str) -> str:
    if _SUBJECT.fullmatch(name):
        return name
    if log.reader is None:
        raise LedgerError(f"subject {name!r:.100}: expected 32 hex digits in a log without a tenant")
    async with as_reader(auditor, log):
        query = {"log_id": log.log_id, "identity": name}
        row = await (await auditor.execute(_QUERIES["actors_of_identity"], query)).fetchone()
    if row is None:
        raise NoSuchSubjectError(
            f"log {log.origin}: expected 32 hex digits or an identity that it knows, found neither"
        )
    return str(row[0])
