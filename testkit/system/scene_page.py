# SPDX-License-Identifier: Apache-2.0
"""
`docs/scene.md` compared with what the scene prints, and written from it.

Two runs of the scene differ in ids, addresses, places in the log, counts of what raced, and times. `normal_form`
replaces exactly these; everything else on the page is what the scene prints.

To write the page from a run of your own: `make run ONCE=1 | tee printed`, then
`python -m testkit.system.scene_page printed`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from testkit.environment import PROJECT

PAGE: Final = PROJECT / "docs" / "scene.md"
README: Final = PROJECT / "README.md"
FIRST_LINE: Final = "S3, SNS and SQS on "
LAST_LINE: Final = "detection recorded "
DETECTION_STARTS: Final = "detection runs on Spark "
"""Spark starts while the scene plays: this line may stand anywhere."""

_BLOCK: Final = re.compile(r"```text\n(.*?)```", re.DOTALL)
_CHANGED: Final = re.compile(r"^(   one bit of \S+ changed in a copy:)\n.*?^(     BROKEN)$", re.DOTALL | re.MULTILINE)
"""Which bit of a copy is changed is the same; which check finds it depends on what stands there."""
_VARIES: Final = tuple(
    (re.compile(pattern, re.MULTILINE), put)
    for pattern, put in (
        (r"\S*/[0-9a-f]{16}(?=/(?:data|run)\b)", "<server>"),
        (r"\S*(?=/graph\.svg$)", "<home>"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
        (r"\+[0-9a-f]{8}\+[A-Za-z0-9+/=]+$", "+<key id>+<public key>"),
        (r"(?<![0-9a-f])(?:[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16}|[0-9a-f]{12}|[0-9a-f]{8})(?![0-9a-f])", "<hex>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<time>"),
        (r"^   \(\d+\.\d s\)$", "   (<seconds> s)"),
        (r"\bin \d+\.\d\d s, [\d,]+ entries/s", "in <seconds> s, <rate> entries/s"),
        (r"findings: [\d,]+ ms$", "findings: <time> ms"),
        (r"load took \d+\.\d ms, a small commit \d+\.\d ms", "load took <time> ms, a small commit <time> ms"),
        (r"\b(entry|decision|entries|index|snapshot) +\d+(?:(?:, | and )\d+)*", r"\1 <number>"),
        (r"\b\d+(?= entries\b|, \d+ of them signed|(?: of them)? (?:that were )?signed\b)", "<number>"),
        (r"\b\d+ of them signed", "<number> of them signed"),
        (r"\bof the \d+ that were signed", "of the <number> that were signed"),
        (r"(?<=entries <number> to )[\d,]*\d", "<number>"),
        (r"\b(same|not judged) [\d,]*\d", r"\1 <number>"),
        (r"\b[\d,]+ decisions\b", "<number> decisions"),
        (r"\bsince \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", "since <time>"),
        (r"(?<=entries/000\.p/|.tile/0/000\.p/)\d+", "<number>"),
        (r"^     \d+(?=: \S+@example\.com)", "     <number>"),
        (r"\b[\d,]+(?= (?:conflicted|writes|reads of both|batches)\b)", "<number>"),
        (r"\b[\d,]+ scans \(0 failed\) and [\d,]+ findings", "<number> scans (0 failed) and <number> findings"),
        (r"\b[\d,]+ bytes", "<number> bytes"),
        (r"\bdemo-\d+", "demo-<number>"),
        (r"such as: Personal data found: column \S+ of \S+ holds \S+ ", "such as: Personal data found: <finding> "),
    )
)


def printed_on(page: str) -> str:
    """Return the block of `page` that says what the scene prints."""
    (block,) = _BLOCK.findall(page)
    return str(block)


def normal_form(printed: str) -> list[str]:
    """Return the lines of a run of the scene, with what differs between runs replaced."""
    text = _CHANGED.sub(r"\1\n     <fault>\n\2", printed)
    for pattern, put in _VARIES:
        text = pattern.sub(put, text)
    return [line for line in text.splitlines() if not line.startswith(DETECTION_STARTS)]


def _form(line: str) -> str:
    return next(iter(normal_form(line)), line)


def recorded_of(printed: str) -> tuple[int, int]:
    """Return how many scans and findings detection says at the end to have recorded; no scan may have failed."""
    ((scans, findings),) = re.findall(
        r"^detection recorded (\d+) scans \(0 failed\) and (\d+) findings", printed, re.MULTILINE
    )
    return int(scans), int(findings)


def steps_of(lines: Iterable[str]) -> dict[str, list[str]]:
    """Return the lines of each step by its title; those before the first step by ""."""
    steps: dict[str, list[str]] = {"": []}
    for line in lines:
        title = line if re.match(r"\d+\. ", line) else next(reversed(steps))
        steps.setdefault(title, []).append(line)
    return steps


def write(printed: str) -> None:
    """Put a run of the scene on the page, and its lines in place of those that the README has of an earlier run."""
    end = printed.index("\n", printed.index(LAST_LINE))  # what follows is the shell's: how long it took, say
    printed = printed[printed.index(FIRST_LINE) : end].replace(f"{PROJECT}/", "") + "\n"
    new = {_form(line): line for line in printed.splitlines()}
    for file in (PAGE, README):
        text = file.read_text(encoding="utf-8")
        old = printed_on(text)
        chosen = "".join(f"{new.get(_form(line), line)}\n" for line in old.splitlines())
        file.write_text(text.replace(old, printed if file == PAGE else chosen), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]).read_text(encoding="utf-8"))
