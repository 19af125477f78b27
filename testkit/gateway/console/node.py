# SPDX-License-Identifier: Apache-2.0
"""
The modules of `gateway/console/static` in Node, whose WebCrypto has Ed25519 as browsers do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testkit.environment import missing
from testkit.ledger.tampering.evidence import Case

PROGRAM = Path(__file__).parent / "calls.mjs"


class ThrownError(Exception):
    """A function threw; `fault` and `index` are those of a `Broken`, else `fault` is None."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['thrown']}: {answer['message']}")
        self.fault: str | None = answer["fault"]
        self.index: int | None = answer["index"]


@dataclass(frozen=True, slots=True)
class Node:
    """A process of Node that answers calls, one after the other."""

    process: subprocess.Popen[str]

    def call(self, name: str, *args: Any) -> Any:
        """
        Call a function of the modules, and return what it returns.

        Bytes go there and back as bytes, and every whole number that is named by `int_of` as a BigInt.

        Raises:
            ThrownError: if it throws.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"name": name, "args": args}, default=_written) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline(), object_hook=_revived)
        if "thrown" in answer:
            raise ThrownError(answer)
        return answer["returned"]

    def verify(self, case: Case) -> dict[str, Any]:
        """Return what `verifyBundle` says of a bundle."""
        trust = {"trustedKeys": list(case.keys)} | ({} if case.policy is None else {"policy": case.policy})
        result: dict[str, Any] = self.call("verifyBundle", case.data, trust)
        return result


@contextmanager
def node() -> Iterator[Node]:
    """Yield a process of Node; it ends when its input does."""
    program = shutil.which("node")
    if program is None:
        missing("Node is not here, which runs the modules of the console")
    with subprocess.Popen(
        [program, "--no-warnings", str(PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        try:
            yield Node(process)
        finally:
            process.stdin.close()


def int_of(number: int) -> dict[str, str]:
    """Return a whole number as a BigInt."""
    return {"int": str(number)}


def _written(value: object) -> object:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    raise TypeError(value)


def _revived(members: dict[str, Any]) -> Any:
    if list(members) == ["hex"]:
        return bytes.fromhex(members["hex"])
    return int(members["int"]) if list(members) == ["int"] else members
