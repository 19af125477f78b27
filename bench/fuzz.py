# SPDX-License-Identifier: Apache-2.0
"""
Fuzzing: every parser of the log, given arbitrary bytes, raises only documented errors.

Claim: after `--seconds` on each target of `testkit.fuzzing.targets`, guided by the coverage of our code, no target has
raised another error, hung, or accepted bytes that are not the only encoding of what it read.

Each target runs in its own process, `--parallel` of them at a time, from a corpus of valid examples. The findings are
in `results/fuzz.json`: runs, edges covered, and for each crash the input in base64 and the end of the output.

Run: `.venv/bin/python bench/fuzz.py --seconds 600`. Needs atheris (`requirements/campaigns.lock`).
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.measuring import circumstances, options, publish
from testkit.environment import PROJECT

INPUT_SIZE_BYTES_MAX: Final = 16_384
HANG_S: Final = 10
MEMORY_MB_MAX: Final = 2_048
END_TIMEOUT_S: Final = 120
OUTPUT_LENGTH_MAX: Final = 4_000

COVERED: Final = re.compile(r"cov: (\d+) ft: (\d+)")
STATISTIC: Final = re.compile(r"stat::(\w+):\s+(\d+)")


def fuzz(name: str, arguments: list[str]) -> None:
    """Fuzz one target until libFuzzer's limits in `arguments` end this process."""
    import atheris

    with atheris.instrument_imports(include=["ledger"]):
        from testkit.fuzzing.targets import targets

    atheris.Setup([name, *arguments], targets()[name].run)
    atheris.Fuzz()


def run_target(name: str, seeds: tuple[bytes, ...], *, seconds: int) -> dict[str, Any]:
    """Fuzz one target in a process of its own, and return what came of it."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as directory:
        corpus, crashes = Path(directory, "corpus"), Path(directory, "crashes")
        corpus.mkdir()
        crashes.mkdir()
        for number, seed in enumerate(seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
        limits = [
            str(corpus),
            f"-max_total_time={seconds}",
            f"-max_len={INPUT_SIZE_BYTES_MAX}",
            f"-timeout={HANG_S}",
            f"-rss_limit_mb={MEMORY_MB_MAX}",
            f"-artifact_prefix={crashes}/",
            "-print_final_stats=1",
        ]
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, __file__, "--target", name, *limits],
            cwd=PROJECT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + END_TIMEOUT_S,
            check=False,
        )
        output = done.stdout.decode(errors="replace")
        covered = COVERED.findall(output)
        statistics = dict(STATISTIC.findall(output))
        inputs = [base64.b64encode(file.read_bytes()).decode() for file in sorted(crashes.iterdir())]
        return {
            "target": name,
            "seconds": round(time.monotonic() - started),
            "runs": int(statistics.get("number_of_executed_units", 0)),
            "edges": int(covered[-1][0]) if covered else 0,
            "features": int(covered[-1][1]) if covered else 0,
            "corpus": len(list(corpus.iterdir())),
            "peak_memory_mb": int(statistics.get("peak_rss_mb", 0)),
            "crashes": inputs or ([] if done.returncode == 0 else [f"exit {done.returncode} without an input"]),
            "said": "" if done.returncode == 0 else output[-OUTPUT_LENGTH_MAX:],
        }


def main() -> None:
    """Fuzz all targets, or those that are named, and write the results."""
    from testkit.fuzzing.targets import targets

    parser = options("fuzz", __doc__)
    parser.add_argument("--seconds", type=int, default=20, help="on each target")
    parser.add_argument("--parallel", type=int, default=2, help="targets at a time")
    parser.add_argument("--only", nargs="*", help="these targets; what was found of the others stays in the results")
    arguments = parser.parse_args()
    chosen = {name: target for name, target in targets().items() if not arguments.only or name in arguments.only}
    with ThreadPoolExecutor(arguments.parallel) as pool:
        running = [pool.submit(run_target, name, t.seeds, seconds=arguments.seconds) for name, t in chosen.items()]
        results = []
        for one in running:
            results.append(one.result())
            print("{target:20} {seconds:5} s {runs:12,} runs {edges:6,} edges".format(**results[-1]), flush=True)
            for line in (*results[-1]["crashes"], results[-1]["said"]):
                if line:
                    print(line, flush=True)
    kept = arguments.only and arguments.results.exists()
    before = json.loads(arguments.results.read_text(encoding="utf-8"))["targets"] if kept else []
    found = {result["target"]: result for result in (*before, *results)}
    results = [found[name] for name in targets() if name in found]
    document = {
        "bench": "fuzz",
        "parallel": arguments.parallel,
        "versions": {name: version(name) for name in ("atheris", "cryptography", "orjson")},
        "targets": results,
        "crashes": sum(len(result["crashes"]) for result in results),
        **circumstances(),
    }
    publish(document, arguments.results)
    if document["crashes"]:
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--target"]:
        fuzz(sys.argv[2], sys.argv[3:])
    else:
        main()
