# SPDX-License-Identifier: Apache-2.0
"""
What all benches share: their options, the description of the machine, and the result file.

A figure without its circumstances claims nothing, so every result records them: machine and Python always, the server's
version if one was measured, and the time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from testkit.measured_page import RESULTS


def options(bench: str, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of a bench's options, `about` being its docstring; `--results` is among them."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS / f"{bench}.json", help="file for the raw figures")
    return parser


def circumstances() -> dict[str, str]:
    """Return what figures hold for that were measured now, without a server."""
    return {
        "machine": f"{os.cpu_count()} x {processor()}",
        "python": platform.python_version(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def circumstances_on(admin_dsn: str) -> dict[str, str]:
    """Return what figures hold for that were measured now, on this server."""
    with psycopg.connect(admin_dsn) as connection:
        server = connection.info.parameter_status("server_version")
    return {**circumstances(), "postgresql": str(server), "psycopg": psycopg.__version__}


def processor() -> str:
    """Return the processor's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def publish(found: Mapping[str, Any], results: Path) -> None:
    """Write what was found to the file of the results, and as the last line of the output."""
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))
