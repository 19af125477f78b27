# SPDX-License-Identifier: Apache-2.0
"""
The log of three entries that `docs/ledger.md` works through, byte for byte the same whenever it is made.

`python -m testkit.ledger.example_log docs/example-log` writes it anew; a test compares what is there with this.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from ledger.files.directory import KEY_FILE
from ledger.format.event import Event, Part, prepare
from ledger.format.events import CommitOutcome, CommitSettled, PolicyCreatedV1, to_data
from ledger.format.events.commits import OutcomeEvidence
from ledger.format.note import Ed25519Signer
from ledger.format.sequence import Group, SequencedEntry
from testkit.ledger.logs import sequenced, write_directory

ORIGIN = "logs.example/00112233445566778899aabbccddeeff"
SIGNER = Ed25519Signer.from_seed(name=ORIGIN, seed=sha256(b"the key of an example").digest())
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADA = "6f1d2c3b4a5968778695a4b3c2d1e0f0"
TABLE_UUID = "0b9f0b7e-4c9c-4a57-a6f0-0c5d7a1f5f0e"


def example_rows() -> list[SequencedEntry]:
    """Return the three entries: a policy, and the outcomes of two commits, with who made the second as a part."""
    policy = PolicyCreatedV1(
        id="0190", version=1, expression="!has(table.properties.frozen)", message="the table is frozen"
    )
    made = [
        Event(type=policy.TYPE, version=1, key="policy:0190", actor="system", occurred_at=NOON, data=to_data(policy))
    ]
    for number, outcome in ((1, CommitOutcome.CONFLICTED), (2, CommitOutcome.ACCEPTED)):
        settled = CommitSettled(
            decision=f"0195-{number}",
            evidence=OutcomeEvidence.ANSWER,
            metadata_location=None,
            metadata_sha256=None,
            outcome=outcome,
            snapshots=(f"730284756102938475{number}",),
            table_uuid=TABLE_UUID,
        )
        part = Part(name="principal", payload=b'{"sub":"ada@example.org"}', salt=sha256(b"salt").digest(), subject=ADA)
        made.append(
            Event(
                type=settled.TYPE,
                version=1,
                key="table:lake/sales/orders",
                actor=ADA,
                occurred_at=NOON,
                data=to_data(settled),
                parts=(part,) if number == 2 else (),
            )
        )
    groups = [
        Group(id=UUID(f"0195518b-2400-7000-8000-00000000000{number}"), then=(prepare(event),))
        for number, event in enumerate(made)
    ]
    return sequenced(groups, log=ORIGIN)[0]


def write_example(path: Path) -> None:
    """Write the directory of the example."""
    write_directory(path, example_rows(), SIGNER, parts=True)
    (path / KEY_FILE).write_text(SIGNER.verifier_key.format() + "\n")


if __name__ == "__main__":
    write_example(Path(sys.argv[1]))
