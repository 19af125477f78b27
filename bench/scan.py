# SPDX-License-Identifier: Apache-2.0
"""
How fast columns are scanned, in millions of cells per second and core, compared with other ways to do it.

Claim: the compiled kernel, which finds *and validates* five kinds in one pass, scans at least 6 million cells per
second and core of a customer table: more than Arrow's regular expressions, which only search, and many times more than
Spark's `rlike` or Presidio's recognizers.

All sides read the same values in the same run, in turns:

- `numba`: `scan_array` with the compiled kernel; `fallback`: the same counts by the tests' oracle, Arrow's expressions
  and numpy;
- `pyarrow`: one `match_substring_regex` for each kind, nothing validated;
- `rlike`: the same five expressions in Spark, `local[1]`, over the same rows as cached columns;
- `presidio`: its five pattern recognizers without a language model, over fewer rows. It is not a dependency: name an
  interpreter that has `presidio-analyzer` with `--presidio`; without it this side is left out.

The figures are processor time (`process_time`, or that of the JVM), medians of rounds, so that other load on the
machine matters little. `table` is over all columns, of which numbers and dates cost next to nothing; `text` is over the
columns of strings.

Run: `.venv/bin/python bench/scan.py`. The last line is JSON with all figures.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.measuring import circumstances, options, publish
from spark_detect.classify import RULESET, ColumnCounts, classify
from spark_detect.classify.columns import scan_array, warm_up
from testkit.spark_detect import oracle
from testkit.spark_detect.families import LOOK_ALIKE, TRUE, Family, column

ROUNDS = 5
"""Times that each side has its turn: what else the machine does then falls on all."""

TEXT: dict[str, Family] = {
    "name": lambda random: f"{random.choice(('Anna', 'Bo', 'Carla'))} {random.choice(('Rossi', 'van der Berg', 'Li'))}",
    "email": TRUE["email"][2],
    "ssn": TRUE["ssn dashed"][2],
    "credit_card": TRUE["card dashed"][2],
    "phone": TRUE["phone german"][2],
    "iban": TRUE["iban"][2],
    "order_number": LOOK_ALIKE["order number of 16 digits"][1],
    "part_number": LOOK_ALIKE["part number 3-2-4"][1],
    "comment": LOOK_ALIKE["free text"][1],
    "session": LOOK_ALIKE["uuid"][1],
    "country": lambda random: random.choice(("DE", "FR", "IT", "US")),
    "status": lambda random: random.choice(("active", "closed", "waiting for payment")),
}

EXPRESSIONS = {
    "us_ssn": r"\b[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}\b",
    "email": r"\b[A-Za-z0-9._%+'-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,63}\b",
    "credit_card": r"\b[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{1,7}\b",
    "phone": r"(?:\+|\b00?)[1-9][0-9 ()./-]{7,18}[0-9]\b|\(?\b[2-9][0-9]{2}\)?[ .-][0-9]{3}[ .-][0-9]{4}\b",
    "iban": r"\b[A-Z]{2}[0-9]{2}(?: ?[0-9A-Z]{4}){2,7}(?: ?[0-9A-Z]{1,4})?\b",
}  # fmt: skip
"""What is searched for where nothing is validated."""

PRESIDIO = """
import json, sys, time
from presidio_analyzer import predefined_recognizers as found
names = ("UsSsnRecognizer", "EmailRecognizer", "CreditCardRecognizer", "PhoneRecognizer", "IbanRecognizer")
recognizers = [getattr(found, name)() for name in names]
columns = json.load(sys.stdin)
def look(values):
    for value in values:
        for recognizer in recognizers:
            recognizer.analyze(value, recognizer.supported_entities, None)
look([values[0] for values in columns.values()])
took = {}
for name, values in columns.items():
    before = time.process_time()
    look(values)
    took[name] = time.process_time() - before
from importlib.metadata import version
print(json.dumps({"took": took, "version": version("presidio-analyzer")}))
"""

Seconds = dict[str, float]
"""Time of the processor, by column."""


def customers(rows: int) -> pa.Table:
    """Return the table that is scanned."""
    texts = {name: pa.array(column(family, rows, seed=name)) for name, family in TEXT.items()}
    days = [date(2020, 1, 1) + timedelta(days=number % 2_000) for number in range(rows)]
    amounts = [Decimal(number * 37 % 100_000) / 100 for number in range(rows)]
    return pa.table({"id": pa.array(range(rows)), "since": pa.array(days), "amount": pa.array(amounts), **texts})


def clock(side: Callable[[pa.ChunkedArray], Any], table: pa.Table) -> Seconds:
    """Return how long `side` takes for each column."""
    took = {}
    for name in table.column_names:
        before = time.process_time()
        side(table[name])
        took[name] = time.process_time() - before
    return took


def by_fallback(values: pa.ChunkedArray) -> None:
    """Count without a compiler; what is no text is left out."""
    if pa.types.is_string(values.type):
        for chunk in values.chunks:
            oracle.count_matches(chunk.cast(pa.large_string()), None)


def by_expressions(values: pa.ChunkedArray) -> None:
    """Search for every expression; what is no text is left out."""
    if pa.types.is_string(values.type):
        for expression in EXPRESSIONS.values():
            pc.sum(pc.match_substring_regex(values, expression))


class Rlike:
    """The expressions in Spark, over rows that it holds in memory."""

    def __init__(self, table: pa.Table, directory: Path) -> None:
        from pyspark.sql import SparkSession  # what has a JVM is only there if it is asked for
        from pyspark.sql import functions as f

        pq.write_table(table.select(list(TEXT)), directory / "customers.parquet")
        options: dict[str, bool | float | int | str | None] = {
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.log.level": "ERROR",
        }
        self._spark = SparkSession.builder.config(map=options).getOrCreate()
        self._rows = self._spark.read.parquet(str(directory / "customers.parquet")).cache()
        self._rows.count()
        self._f = f
        self.version = self._spark.version
        gateway: Any = self._spark.sparkContext._gateway  # noqa: SLF001 - its JVM's time is what is measured
        self._stat = Path(f"/proc/{gateway.proc.pid}/stat")

    def __call__(self) -> Seconds:
        """Return how long each column takes, everything else that a query costs subtracted."""
        return {name: max(self._query(name, EXPRESSIONS) - self._query(name, {}), 0.0) for name in TEXT}

    def _query(self, name: str, expressions: dict[str, str]) -> float:
        f = self._f
        matches = [f.sum(f.col(name).rlike(text).cast("int")) for text in expressions.values()]
        before = self._processor_s()
        self._rows.agg(f.sum(f.length(name)), *matches).collect()
        return self._processor_s() - before

    def _processor_s(self) -> float:
        fields = self._stat.read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End the session and its JVM."""
        self._spark.stop()


def by_presidio(python: Path, table: pa.Table) -> tuple[Seconds, str]:
    """Return how long Presidio takes for each column of text, and its version."""
    values = {name: table[name].to_pylist() for name in TEXT}
    done = subprocess.run(
        [python, "-c", PRESIDIO], input=json.dumps(values), capture_output=True, text=True, check=True
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["took"], answer["version"]


def figures(rounds: list[Seconds], rows: int, columns: int) -> dict[str, Any]:
    """Return millions of cells a second and core: of the table, of its text, and of each column of text."""
    median = {name: statistics.median(took.get(name, 0.0) for took in rounds) for name in rounds[0]}
    text_s = sum(median[name] for name in TEXT)
    return {
        "table": round(rows * columns / sum(median.values()) / 1e6, 3),
        "text": round(rows * len(TEXT) / text_s / 1e6, 3),
        "columns": {name: round(rows / median[name] / 1e6, 3) for name in TEXT if median[name] > 0},
    }


def compare(rows: int, presidio: Path | None, presidio_rows: int) -> dict[str, Any]:
    """Measure all sides; returns the figures and the machine they hold for."""
    table = customers(rows)
    before = time.perf_counter()
    warm_up()
    warm_up_s = round(time.perf_counter() - before, 3)
    columns = len(table.column_names)
    sides: dict[str, list[Seconds]] = {"numba": [], "fallback": [], "pyarrow": [], "rlike": []}
    with tempfile.TemporaryDirectory(prefix="lp-bench-") as directory:
        rlike = Rlike(table, Path(directory))
        try:
            rlike()  # the JVM compiles while it runs
            for _ in range(ROUNDS):
                sides["numba"].append(clock(scan_array, table))
                sides["fallback"].append(clock(by_fallback, table))
                sides["pyarrow"].append(clock(by_expressions, table))
                sides["rlike"].append(rlike())
        finally:
            rlike.stop()
    found: dict[str, Any] = {name: figures(rounds, rows, columns) for name, rounds in sides.items()}
    versions = {"numba": numba.__version__, "pyarrow": pa.__version__, "numpy": np.__version__, "spark": rlike.version}
    found["presidio"] = "absent"
    if presidio is not None:
        took, versions["presidio"] = by_presidio(presidio, table.slice(0, presidio_rows))
        found["presidio"] = figures([took], presidio_rows, columns)
    print("          Mcells/s/core    table     text   numba is, on text")
    for name, side in found.items():
        if isinstance(side, dict):
            side["numba_is"] = round(found["numba"]["text"] / side["text"], 1)
            print(f"{name:>12} {side['table']:>21} {side['text']:>8} {side['numba_is']:>9} times as fast")
        else:
            print(f"{name:>12} {side:>21}")
    return {
        "bench": "scan",
        "rows": rows,
        "columns": columns,
        "rounds": ROUNDS,
        "sides": found,
        "warm_up_s": warm_up_s,
        "findings": findings(table),
        "ruleset": RULESET,
        "versions": versions,
        **circumstances(),
    }


def findings(table: pa.Table) -> dict[str, dict[str, int]]:
    """Return what was found: the percent of each kind, by column."""
    counts: dict[str, ColumnCounts] = {name: scan_array(table[name]) for name in table.column_names}
    found = {name: {f.kind.value: f.confidence_percent for f in classify(name, c)} for name, c in counts.items()}
    return {name: percents for name, percents in found.items() if percents}


def main() -> None:
    """Run the comparison and print it."""
    parser = options("scan", __doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--presidio", type=Path, help="an interpreter that has presidio-analyzer")
    parser.add_argument("--presidio-rows", type=int, default=1_000)
    arguments = parser.parse_args()
    found = compare(arguments.rows, arguments.presidio, arguments.presidio_rows)
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
