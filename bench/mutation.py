# SPDX-License-Identifier: Apache-2.0
"""
Every line of the verifier is needed: a change to it makes a test fail.

Claim: of the mutants that cosmic-ray's operators make of the verifier (except annotations, which nothing runs, and the
`*` of signatures, which the operators take for a product), the tests kill 87.5 % or more. Some mutants are equivalent
to the original, so that no test can kill them (Jia and Harman, "An Analysis and Survey of the Development of Mutation
Testing", 2011, section 2): they count as survivors here. The survivors are listed for review.

Mutants are made and tested in copies of the tree, in a temporary folder, two at once. A mutant that survives the fast
tests of its module is run with the slower ones. Finished mutants are kept in `--progress` by the content of the module,
so that an interrupted run can continue, and a changed module is run again.

Run: `python -m bench.mutation`, or with `--module ledger/format/verification.py`, `--sample 100`. Needs cosmic-ray
(`requirements/campaigns.lock`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from queue import Queue
from random import Random
from typing import Any, Final
from warnings import catch_warnings

from bench.measuring import circumstances, options, publish
from bench.mutation_modules import MODULES, Stages
from bench.mutation_worker import KILLED, SURVIVED, TIMEOUT
from testkit.environment import PROJECT

LARGE: Final = 40
"""One in so many is taken of a module where that is more than the sample, so that a large one is not seen less."""
SCORE_PERCENT_MIN: Final = 87.5
COPIED: Final = (
    "bench", "docs", "gateway", "lakeproof", "ledger", "projections", "spark_detect", "streams", "testkit", "tests",
    "pyproject.toml", "verify_lakeproof.py", "README.md", "Makefile",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change to a module: the `occurrence`-th place at which an operator of cosmic-ray can work."""

    path: str
    operator: str
    occurrence: int
    line: int
    before: str
    after: str

    def key(self, text: str) -> str:
        """Return what names this mutant of this very text."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        return f"{self.path} {digest} {self.operator} {self.occurrence}"


def mutants_of(path: str) -> Iterator[tuple[Mutant, str]]:
    """Yield the mutants of a module, each with the module's text as it is then; annotations are left alone."""
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    text = (PROJECT / path).read_text(encoding="utf-8")
    annotations, products = list(_annotations(text)), _products(text)
    tree, lines = get_ast(text), text.splitlines()
    for name in sorted(plugins.operator_names()):
        kind = plugins.get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        places = [place for node in ast_nodes(tree) for place in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(places):
            changed = mutate_code(text, operator, occurrence)
            if changed is None or changed == text or any(first <= start < end for first, end in annotations):
                continue
            if not _compiles(changed, path) or (name.startswith(_PRODUCTS) and _products(changed) == products):
                continue
            after = changed.splitlines()
            # The line that differs: a decorator that is removed leaves one line less.
            at = next((i for i, line in enumerate(lines) if i >= len(after) or after[i] != line), start[0] - 1)
            yield (
                Mutant(
                    path=path,
                    operator=name.removeprefix("core/"),
                    occurrence=occurrence,
                    line=at + 1,
                    before=lines[at].strip(),
                    after=after[at].strip() if at < len(after) else "",
                ),
                changed,
            )


_PRODUCTS: Final = "core/ReplaceBinaryOperator_Mul_"


def _products(text: str) -> int:
    """Count the products: the operators take the `*` of a signature for one, and may make another signature of it."""
    return sum(isinstance(node, ast.Mult) for node in ast.walk(ast.parse(text)))


def _compiles(text: str, path: str) -> bool:
    """Return whether this is Python at all: the `*` of a signature cannot become most other signs."""
    try:
        with catch_warnings(action="ignore"):  # `is` next to a number
            compile(text, path, "exec")
    except SyntaxError:
        return False
    return True


def _annotations(text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield where annotations begin and end: they are never evaluated (PEP 563), so a change to one changes nothing."""
    for node in ast.walk(ast.parse(text)):
        found: list[ast.expr | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            found = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = [node.returns]
        for one in found:
            if one is not None:
                yield (one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0)


class Bench:
    """A copy of the tree and the process that tests mutants in it. Owned by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in COPIED:
            source = PROJECT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "results")
                shutil.copytree(source, directory / name, ignore=ignored)
            elif source.exists():
                shutil.copy2(source, directory / name)
        if (PROJECT / ".cache").is_dir():
            (directory / ".cache").symlink_to(PROJECT / ".cache")
        # By content, not by time: a mutant is often as long as the original, and written within the same second.
        compiling = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "."]
        subprocess.run(compiling, cwd=directory, check=False, stdout=subprocess.DEVNULL)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.mutation_worker"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, path: str, text: str | None, stages: Stages, timeouts_s: Sequence[float]) -> dict[str, Any]:
        """Run the tests against a mutant of a module, or against the module as it is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"path": path, "text": text, "stages": stages, "timeouts_s": timeouts_s}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def campaign(
    paths: Sequence[str], benches: Queue[Bench], count: int, progress: Path, sample: int | None
) -> dict[str, Any]:
    """Test the mutants of each module that were not tested before; return what became of each, by module."""
    done: dict[str, dict[str, Any]] = {}
    if progress.exists():
        done = {one["key"]: one for one in map(json.loads, progress.read_text(encoding="utf-8").splitlines())}
    progress.parent.mkdir(parents=True, exist_ok=True)
    modules: dict[str, Any] = {}
    for path in paths:
        stages = MODULES[path]
        every = list(mutants_of(path))
        size = len(every) if sample is None else min(max(sample, len(every) // LARGE), len(every))
        chosen = Random(path).sample(every, size)  # noqa: S311 - places, not secrets
        source = (PROJECT / path).read_text(encoding="utf-8")
        # Those that survived are tried again: the tests may have changed.
        left = [
            (mutant, text)
            for mutant, text in chosen
            if (before := done.get(mutant.key(source))) is None or before["outcome"] == SURVIVED
        ]
        if left:
            bench = benches.get()
            baseline = bench.run(path, None, stages, [1_800.0] * len(stages))
            benches.put(bench)
            if baseline["outcome"] != SURVIVED:
                raise SystemExit(f"{path}: its tests fail as it is:\n{baseline['said']}")
            timeouts_s = [30 + 4 * spent_s for spent_s in baseline["spent_s"]]
            print(f"{path}: {len(left)} mutants, the tests take {baseline['spent_s']} s", flush=True)

            def test(item: tuple[Mutant, str]) -> tuple[Mutant, dict[str, Any]]:
                bench = benches.get()
                try:
                    return item[0], bench.run(path, item[1], stages, timeouts_s)  # noqa: B023 - run before the next
                finally:
                    benches.put(bench)

            with ThreadPoolExecutor(count) as pool, progress.open("a", encoding="utf-8") as file:
                for mutant, answer in pool.map(test, left):
                    key = mutant.key(source)
                    done[key] = {"key": key, **asdict(mutant), **answer, "said": ""}
                    file.write(json.dumps(done[key]) + "\n")
                    file.flush()
                    if answer["outcome"] == SURVIVED:
                        print(f"  {path}:{mutant.line} {mutant.operator}: {mutant.after}", flush=True)
        modules[path] = [done[mutant.key(source)] for mutant, _ in chosen]
    return modules


def summary(modules: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the figures by module and of all, and the survivors."""
    by_module: dict[str, Any] = {}
    survivors: list[dict[str, str]] = []
    for path, results in modules.items():
        counts = {outcome: sum(one["outcome"] == outcome for one in results) for outcome in (KILLED, TIMEOUT, SURVIVED)}
        by_module[path] = {
            "mutants": len(results),
            **counts,
            "killed_percent": _percent(counts[KILLED] + counts[TIMEOUT], len(results)),
        }
        survivors += [
            {"at": f"{path}:{one['line']}", **{name: one[name] for name in ("operator", "before", "after")}}
            for one in results
            if one["outcome"] == SURVIVED
        ]
    mutants = sum(one["mutants"] for one in by_module.values())
    killed = mutants - len(survivors)
    return {
        "mutants": mutants,
        "killed": killed,
        "score_percent": _percent(killed, mutants),
        "modules": by_module,
        "survivors": sorted(survivors, key=lambda one: one["at"]),
    }


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 100.0


def main() -> None:
    """Run the campaign; ends with 1 if the score is below `SCORE_PERCENT_MIN`."""
    parser = options("mutation", __doc__)
    parser.add_argument("--module", nargs="+", choices=tuple(MODULES), default=tuple(MODULES), metavar="PATH")
    parser.add_argument("--sample", type=int, help=f"so many random mutants of each module, or one in {LARGE}")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--progress", type=Path, default=PROJECT / ".cache" / "mutation.jsonl")
    arguments = parser.parse_args()
    began_s = time.perf_counter()
    benches: Queue[Bench] = Queue()
    with tempfile.TemporaryDirectory(prefix="mutation-") as directory:
        if (PROJECT.parent / "shared").is_dir():  # test vectors lie next to the tree
            (Path(directory) / "shared").symlink_to(PROJECT.parent / "shared")
        for number in range(arguments.processes):
            (Path(directory) / str(number)).mkdir()
            benches.put(Bench(Path(directory) / str(number)))
        try:
            modules = campaign(arguments.module, benches, arguments.processes, arguments.progress, arguments.sample)
        finally:
            while not benches.empty():
                benches.get().close()
    found = {
        "bench": "mutation",
        "operators": f"cosmic-ray {version('cosmic-ray')}",
        "sample_of_each_module": arguments.sample,
        "sample_of_large_modules": None if arguments.sample is None else f"1/{LARGE}",
        **summary(modules),
        "elapsed_s": round(time.perf_counter() - began_s, 1),
        **circumstances(),
    }
    publish(found, arguments.results)
    if found["score_percent"] < SCORE_PERCENT_MIN:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
