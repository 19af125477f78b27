"""
Writes `docs/measured.md`: what `bench/results` holds of the log, in words, so that nobody has to read JSON.

Nothing is measured here. A test compares the page with the files, so neither can be changed alone.

Run: `python -m testkit.measured_page`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from testkit.environment import PROJECT

RESULTS: Final = PROJECT / "bench" / "results"
PAGE: Final = PROJECT / "docs" / "measured.md"
HEAD: Final = """\
# What was measured

Every figure of this page comes from a file in `bench/results`, where it stands with its circumstances; each file is
made by the bench of its name. Figures hold for the machine that is named, nothing is claimed of others.
"""

Found = Mapping[str, Any]


def append(found: Found) -> Iterator[str]:
    yield "Entries of 1 KB a second, against a plain INSERT of the same bytes with a unique id, neither chained nor"
    yield "hashed, and against eventsourcing's recorder:"
    yield "| callers | log | plain INSERT | ratio | p99 of the log | eventsourcing |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for run in found["runs"]:
        stock = f"{run['stock']['per_second']:,}" if "stock" in run else ""
        log = run["log"]
        yield (
            f"| {run['callers']:,} | {log['per_second']:,} | {run['plain']['per_second']:,} | {run['log_to_plain']} | "
            f"{log['p99_ms']} ms | {stock} |"
        )
    many = found["many_logs"]
    yield f"`append_many`: {found['append_many_per_second']:,} a second. {many['logs']} logs with an event each:"
    costs = ", ".join(f"{one['cost_percent']} % at {one['callers']} callers" for one in found["idempotency"])
    yield f"{many['flushes']} flushes. Idempotent ids cost {costs} (below zero: less than the noise)."


def idempotency(found: Found) -> Iterator[str]:
    yield f"{found['groups']:,} groups, each submitted {found['times']} times by {found['processes']} processes, with"
    yield f"{_counts(found['trouble'])}: {found['in_the_log']:,} in the log, {found['other_bodies_refused']} other"
    yield "bodies under an id that was taken refused."


def writers(found: Found) -> Iterator[str]:
    told = found["told"]
    yield f"{found['processes']} processes wrote {found['logs']} logs for {found['seconds']} s, with"
    yield f"{_counts(found['trouble'])}. {told['asked']:,} answers, all true: {told['in']:,} in,"
    yield f"{told['not in']:,} not in, {told['unknown']:,} unknown. Indices without a gap; a following reader missed"
    yield "none and saw none twice."


def faults(found: Found) -> Iterator[str]:
    yield f"{found['points']:,} faults at statements of append, seal, publish and erase (errors, crashes, ended"
    yield f"sessions, cut wires, killed processes, stopped servers): {len(found['failures'])} broke a promise."


def prove(found: Found) -> Iterator[str]:
    inclusion, first = found["inclusion"], found["inclusion_first_on_a_connection"]
    finding = found["finding_the_log_and_first_inclusion"]
    yield f"In a log of {found['entries']:,} entries, nothing kept in memory: inclusion p50 {inclusion['p50_ms']} ms,"
    yield f"p99 {inclusion['p99_ms']} ms; consistency p50 {found['consistency']['p50_ms']} ms. The first on a new"
    yield f"connection: p50 {first['p50_ms']} ms, together with finding the log {finding['p50_ms']} ms. Checking one:"
    yield f"{found['checking']['p50_ms']} ms. Reading all leaf hashes instead: {found['baseline_all_leaves_ms']:,} ms."


def receipts(found: Found) -> Iterator[str]:
    took = found["append_to_receipt"]
    yield f"At {found['per_second']:,} events a second, from append to receipt: p50 {took['p50_ms']} ms, p99"
    yield f"{took['p99_ms']} ms; append alone p50 {found['append_alone']['p50_ms']} ms."


def forks(found: Found) -> Iterator[str]:
    kinds = ", ".join(f"{kind} {one['found']} of {one['trials']}" for kind, one in found["by_kind"].items())
    yield f"{found['found']:,} of {found['trials']:,} forks found at the next checkpoint ({kinds});"
    yield f"{len(found['accused'])} of {found['honest_trials']:,} honest logs accused."


def verify(found: Found) -> Iterator[str]:
    yield "Entries of about 500 bytes a second; *hash* is SHA-256 over them and nothing else, *exact* our own path"
    yield "without the compiled kernel:"
    yield f"| from | {' | '.join(_SIDES)} |"
    yield f"|---{'|---:' * len(_SIDES)}|"
    for source in ("directory", "database"):
        rates = found[source]["500 bytes"]
        cells = [f"{rates[name]['per_s']:,}" if name in rates else "" for name in _SIDES]
        yield f"| {source} | {' | '.join(cells)} |"
    since = found["since"]
    yield f"From a checkpoint on, {since['new']:,} new entries of {since['entries']:,}:"
    yield f"{since['since']['elapsed_ms']} ms, with the kernel loaded {since['since, kernel']['elapsed_ms']} ms."


def tamper(found: Found) -> Iterator[str]:
    yield f"{found['instances']:,} random changes of {found['classes_run']} classes: {found['found']:,} found,"
    yield f"{found['class_and_index_right']:,} with the right class of fault and the right index. Entry by entry were"
    yield f"verified {found['efforts']['exact']:,}, with the compiled kernel, which accepted"
    yield f"{found['pages_accepted_by_the_kernel']:,} pages of what was not changed, {found['efforts']['fast']:,}."
    yield "| class | instances | found | class and index right | named as |"
    yield "|---|---:|---:|---:|---|"
    for name, one in sorted(found["classes"].items(), key=lambda item: -item[1]["instances"]):
        counts = " | ".join(f"{one[key]:,}" for key in ("instances", "found", "class_and_index_right"))
        yield f"| {name} | {counts} | {', '.join(one['faults'])} |"


def mutation(found: Found) -> Iterator[str]:
    sample = found["sample_of_each_module"]
    of = f" (a random sample of {sample} of each of {len(found['modules'])} modules"
    of = f"{of}, and {found['sample_of_large_modules']} of large ones)" if sample else ""
    yield f"{found['killed']:,} of {found['mutants']:,} mutants of the verifier{of} are killed by the tests,"
    yield f"{found['score_percent']} %. Mutants that are equivalent to the original, which no test can kill, count as"
    yield "survivors."


def fuzz(found: Found) -> Iterator[str]:
    targets = found["targets"]
    yield f"{len(targets)} parsers, at least {min(one['seconds'] for one in targets) // 60} minutes each,"
    yield f"{sum(one['runs'] for one in targets):,} runs: {sum(len(one['crashes']) for one in targets)} errors that are"
    yield "not our own."


def round_trips(found: Found) -> Iterator[str]:
    yield f"{found['entries']:,} random entries through PostgreSQL, a dump and its restoration, and an export:"
    yield f"{len(found['alarms'])} alarms."


def key_flood(found: Found) -> Iterator[str]:
    quiet, attacked, first = found["quiet"], found["attacked"], found["first_request_of_a_key_attacked"]
    refused = sum(count for side in (attacked, first) for status, count in side["answers"].items() if status != "200")
    yield f"{found['connections']} connections present wrong API keys to a real `lakeproof up`, each as soon as it was"
    yield f"refused. Requests with a valid key: p50 {attacked['p50_ms']} ms, p99 {attacked['p99_ms']} ms; in quiet p50"
    yield f"{quiet['p50_ms']} ms, p99 {quiet['p99_ms']} ms ({found['ratio_p50']} and {found['ratio_p99']} times). The"
    yield f"first request with a key that the process has not seen: p50 {first['p50_ms']} ms. {refused} of"
    yield f"{attacked['requests'] + first['requests']:,} valid requests were refused, and all of"
    yield f"{found['wrong_keys']['401']:,} wrong keys."


def erasure(found: Found) -> Iterator[str]:
    yield f"{found['erased']:,} of {found['parts']:,} payload parts erased in {found['elapsed_s']} s."


def noisy_neighbour(found: Found) -> Iterator[str]:
    yield "Commits of one tenant, one after another over HTTP against `lakeproof up`, while"
    yield f"{found['attacking_clients']} clients of another tenant attack without a pause, and for"
    yield f"{found['seconds']:g} s before that. Claimed is a 99th percentile below three times the quiet one, and no"
    yield "refusal:"
    yield "| attack | commits | p50 quiet | p50 attacked | p99 quiet | p99 attacked | ratio | refused |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for one in found["attacks"]:
        quiet, attacked = one["quiet"], one["attacked"]
        yield (
            f"| {one['attack']} | {attacked['commits']:,} | {quiet['p50_ms']} ms | {attacked['p50_ms']} ms | "
            f"{quiet['p99_ms']} ms | {attacked['p99_ms']} ms | {one['p99_ratio']} | {one['refused']} |"
        )


_SIDES: Final = ("hash", "exact", "1 process", "2 processes")
SECTIONS: Final[tuple[tuple[str, Callable[[Found], Iterator[str]]], ...]] = (
    ("Append", append),
    ("Idempotency", idempotency),
    ("Writers in trouble", writers),
    ("Faults at every statement", faults),
    ("Proofs", prove),
    ("Receipts", receipts),
    ("Forks", forks),
    ("Verification", verify),
    ("Tampering", tamper),
    ("Mutants of the verifier", mutation),
    ("Fuzzing", fuzz),
    ("No false alarm", round_trips),
    ("Erasure", erasure),
    ("A flood of wrong keys", key_flood),
    ("A noisy neighbour", noisy_neighbour),
)


def page(results: Path) -> str:
    """Return the page over the results that are there."""
    parts = [HEAD]
    for title, tell in SECTIONS:
        file = results / f"{tell.__name__}.json"
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            parts.append(f"## {title}\n\n{_typeset(tell(found))}\n\n{_where(file, found)}\n")
    return "\n".join(parts)


def _typeset(lines: Iterator[str]) -> str:
    """Return lines as Markdown: rows of tables as they are, what stands between them as paragraphs."""
    blocks = []
    for is_table, block in groupby(lines, key=lambda line: line.startswith("|")):
        told = list(block)
        blocks.append("\n".join(told) if is_table else fill(" ".join(told), 120, break_on_hyphens=False))
    return "\n\n".join(blocks)


def _where(file: Path, found: Found) -> str:
    machine = found.get("machine")
    told = [f"`bench/results/{file.name}`", machine if isinstance(machine, str) else None]
    told += [f"PostgreSQL {found['postgresql']}"] if "postgresql" in found else []
    told += [str(found["measured_at"])[:10]] if "measured_at" in found else []
    return "*" + ", ".join(text for text in told if text) + "*"


def _counts(trouble: Mapping[str, int]) -> str:
    return ", ".join(f"{count} times {name}" for name, count in trouble.items())


if __name__ == "__main__":
    PAGE.write_text(page(RESULTS), encoding="utf-8")
