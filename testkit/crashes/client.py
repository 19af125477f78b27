# SPDX-License-Identifier: Apache-2.0
"""
A client process that commits snapshots to one table, one after another, until its standard input ends.

It behaves as Iceberg's clients do: it loads the table, requires the state that it has loaded, and gives each snapshot
an id that it never uses again. One with Idempotency-Keys sends a request again until the answer is definite. One
without takes 5xx and a lost connection for "commit state unknown", and goes on with another snapshot.

It writes a line before each request (`intends`), after the last byte was sent (`sent`), and after the answer (`told`).
A line is written at once, so what it has said is known whatever happens to it. It imports the standard library only,
so that many of them start quickly.

Run: `python -m testkit.crashes.client PLAN`, where PLAN is JSON with the fields of `Plan`.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

ANSWER_TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.05
"""Before a client that was not answered as it should be asks again."""
GIVE_UP_S: Final = 20.0
"""How long a request is sent again under its Idempotency-Key."""
ENDING_S: Final = 2.0
"""The same, once the client was told to end."""
AGAIN: Final = 0.1
"""The share of requests that are sent again although they were answered, as if the answer had been lost."""
LAST_DEFINITE: Final = 499
"""Answers up to this status say whether the commit was made."""
OK: Final = 200
UUID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    What a client does: commit to the table at `path` of `host` and `port`, `pause_s` after each commit at most.

    It `sees_history` unless the catalog shows of a table the current snapshot alone.
    """

    number: int
    host: str
    port: int
    path: str
    key: str
    has_idempotency_keys: bool
    sees_history: bool
    pause_s: float
    seed: str


def append_to(metadata: dict[str, Any], snapshot_id: int) -> dict[str, Any]:
    """Return the body of a commit that appends a snapshot to a table in this state."""
    parent = (metadata.get("refs") or {}).get("main", {}).get("snapshot-id")
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": max(int(time.time() * 1000), metadata["last-updated-ms"] + 1),
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    }


class Client:
    """One client; `run` commits until it is told to end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._chance = random.Random(plan.seed)  # noqa: S311 - repeatable, not secret
        self._connection: http.client.HTTPConnection | None = None
        self._headers = {"Authorization": f"Bearer {plan.key}", "Content-Type": "application/json"}

    def run(self) -> None:
        """Commit until standard input ends."""
        while not self._is_told_to_end(self._chance.uniform(0, self._plan.pause_s)):
            status, loaded = self._ask("GET", None, {})
            if status == OK and isinstance(loaded, dict):
                # Ids of 62 bits, drawn at random: no two clients ever draw the same.
                snapshot_id = (self._plan.number + 1) << 58 | self._chance.getrandbits(58)
                self._commit(snapshot_id, append_to(loaded["metadata"], snapshot_id))
            else:
                self._is_told_to_end(PAUSE_S)

    def _commit(self, snapshot_id: int, body: dict[str, Any]) -> None:
        key = self._new_key() if self._plan.has_idempotency_keys else None
        headers = {} if key is None else {"Idempotency-Key": key}
        say("intends", snapshot_id, key)
        give_up_s = time.monotonic() + GIVE_UP_S
        is_again = False
        while True:
            status, answer = self._ask("POST", body, headers, snapshot_id)
            say("told", snapshot_id, status, _kind(answer), self._shows(answer, body["updates"][0]["snapshot"]))
            is_definite = OK <= status <= LAST_DEFINITE
            if key is None or is_again:
                return
            if is_definite:
                if status != OK or self._chance.random() > AGAIN:
                    return
                is_again = True
            elif self._is_told_to_end(PAUSE_S):
                give_up_s = min(give_up_s, time.monotonic() + ENDING_S)
                time.sleep(PAUSE_S)
            if time.monotonic() > give_up_s:
                say("gives up", snapshot_id)
                return

    def _ask(
        self, method: str, body: dict[str, Any] | None, headers: dict[str, str], snapshot_id: int | None = None
    ) -> tuple[int, Any]:
        """Return status and body of the answer; status 0 if there is none."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    self._plan.host, self._plan.port, timeout=ANSWER_TIMEOUT_S
                )
                self._connection.connect()
            port = self._connection.sock.getsockname()[1]
            data = None if body is None else json.dumps(body).encode()
            self._connection.request(method, self._plan.path, data, {**self._headers, **headers})
            if snapshot_id is not None:
                say("sent", snapshot_id, port)
            answer = self._connection.getresponse()
            text = answer.read()
            if answer.will_close:
                self._close()
            return answer.status, json.loads(text) if text[:1] == b"{" else None
        except (OSError, http.client.HTTPException, ValueError):
            self._close()
            return 0, None

    def _shows(self, answer: Any, snapshot: dict[str, Any]) -> bool:
        """Tell whether an answer has a table with this snapshot; without its history, with it or a later one."""
        metadata = answer.get("metadata") if isinstance(answer, dict) else None
        if not isinstance(metadata, dict):
            return False
        is_passed = not self._plan.sees_history and metadata["last-sequence-number"] > snapshot["sequence-number"]
        snapshots = metadata.get("snapshots") or ()
        return is_passed or any(each["snapshot-id"] == snapshot["snapshot-id"] for each in snapshots)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _new_key(self) -> str:
        """Return a UUID of version 7 (RFC 9562, section 5.7)."""
        data = bytearray(self._chance.randbytes(UUID_BYTES))
        data[:6] = int(time.time() * 1000).to_bytes(6, "big")
        data[6], data[8] = 0x70 | data[6] & 0x0F, 0x80 | data[8] & 0x3F
        text = data.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    @staticmethod
    def _is_told_to_end(within_s: float) -> bool:
        """Wait so long, and tell whether standard input has ended."""
        return bool(select.select([sys.stdin], [], [], within_s)[0])


def _kind(answer: Any) -> str:
    """Return the type of the error in an answer; nothing if it has none."""
    error = answer.get("error") if isinstance(answer, dict) else None
    return f"{error.get('type')}: {error.get('message')}"[:200] if isinstance(error, dict) else ""


def say(what: str, snapshot_id: int, *more: object) -> None:
    """Write a line: what, when (of the clock that all processes share), the snapshot, and more."""
    line = json.dumps([what, time.monotonic(), str(snapshot_id), *more])
    os.write(sys.stdout.fileno(), line.encode() + b"\n")


def main(arguments: Sequence[str]) -> None:
    """Run a client with the plan that is its only argument."""
    Client(Plan(**json.loads(arguments[0]))).run()


if __name__ == "__main__":
    main(sys.argv[1:])
