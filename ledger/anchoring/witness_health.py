# SPDX-License-Identifier: Apache-2.0
"""
How the witnesses of a policy are: what each has cosigned last, and what it has answered last.

The process that asks them stores their answers, so that every process can tell. What is stored is shown: it is no
evidence, and nothing is verified here. How far a log is witnessed follows from `published.py` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from ledger.anchoring.anchor_log import QUERIES
from ledger.anchoring.anchors import Anchor, anchor_key, parse_anchor
from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.entry import parse_entry
from ledger.format.witness_policy import WitnessPolicy
from ledger.store.session import Connection

COSIGNATURES_SEARCHED_MAX: Final = 2_000
"""The newest; what a witness cosigned before those is not looked for."""
MESSAGE_LENGTH_MAX: Final = 500


class WitnessState(StrEnum):
    """What came of the last request to a witness."""

    COSIGNED = "cosigned"
    REFUSED = "refused"
    AWAY = "away"
    """It did not answer, or with nothing that a witness answers."""
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessAnswer:
    """What a witness, by its name in the policy, has answered; `message` is for operators."""

    witness: str
    state: WitnessState
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessHealth:
    """
    One witness: what it has answered last, and the size and time of the largest checkpoint that it has cosigned (None:
    it has cosigned none of the last ones). The time is the witness's own.
    """

    name: str
    state: WitnessState
    message: str
    asked_at: datetime | None
    cosigned_size: int | None
    cosigned_at: datetime | None


async def store_answers(
    connection: Connection, log_id: int, answers: Sequence[WitnessAnswer], *, size: int, asked_at: datetime
) -> None:
    """
    Store what witnesses have answered about the checkpoint of a size; `connection` works as the signer.
    """
    if answers:
        columns = {
            "witnesses": [_text(each.witness) for each in answers],
            "states": [each.state.value for each in answers],
            "messages": [_text(each.message)[:MESSAGE_LENGTH_MAX] for each in answers],
        }
        where = {"log_id": log_id, "size": size, "asked_at": asked_at}
        await connection.execute(QUERIES["put_witness_answers"], {**where, **columns})


async def read_health(connection: Connection, log_id: int, policy: WitnessPolicy) -> list[WitnessHealth]:
    """
    Return how the witnesses of a policy are, in its order; `connection` works as the auditor.
    """
    of_log = {"log_id": log_id, "limit": COSIGNATURES_SEARCHED_MAX}
    rows = await (await connection.execute(QUERIES["witness_answers"], of_log)).fetchall()
    answers = {witness: (WitnessState(state), asked_at, message) for witness, state, asked_at, message in rows}
    rows = await (await connection.execute(QUERIES["last_cosignatures"], of_log)).fetchall()
    cosigned = {(name, bytes(key_id)): (size, bytes(time)) for name, key_id, size, time in rows}
    health = []
    for witness in policy.witnesses:
        size, time = cosigned.get((witness.key.name, witness.key.key_id), (None, b""))
        unasked = WitnessState.NOT_ASKED if size is None else WitnessState.COSIGNED
        state, asked_at, message = answers.get(_text(witness.name), (unasked, None, ""))
        health.append(
            WitnessHealth(
                name=_text(witness.name),
                state=state,
                message=message,
                asked_at=asked_at,
                cosigned_size=size,
                cosigned_at=_time(time),
            )
        )
    return health


async def read_anchors_around(
    connection: Connection, system_id: int, origin: str, *, index: int
) -> tuple[Anchor | None, Anchor | None]:
    """
    Return the newest anchor of a log below an index of the system log, and the first one from it on.

    Raises:
        BrokenError: (`Fault.ANCHOR`) if one is malformed.
    """
    place = {"system": system_id, "key": anchor_key(origin), "index": index}
    ((below, above),) = await (await connection.execute(QUERIES["anchors_around"], place)).fetchall()
    return _anchor(below), _anchor(above)


def _anchor(entry: bytes | None) -> Anchor | None:
    try:
        return None if entry is None else parse_anchor(parse_entry(bytes(entry)))
    except FormatError as error:
        raise BrokenError(Fault.ANCHOR, where="ledger.entries", expected="an anchor", found=error) from error


def _time(octets: bytes) -> datetime | None:
    try:
        return datetime.fromtimestamp(int.from_bytes(octets), UTC) if octets else None
    except (OverflowError, ValueError, OSError):  # beyond the year 9999: nobody has verified it
        return None


def _text(name: str) -> str:
    """Return a text as PostgreSQL can store it: names of a policy are octets, and answers are whatever came."""
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
