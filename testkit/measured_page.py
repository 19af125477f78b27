# SPDX-License-Identifier: Apache-2.0
"""
Writes `docs/measured.md`: the results of `bench/results` in words, so that nobody has to read JSON.

Nothing is measured here. A test compares the page with the files, so neither can change alone.

Run: `python -m testkit.measured_page`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from testkit.crashes.installation import ALIASES
from testkit.environment import PROJECT
from testkit.measured_gateway import gateway

RESULTS: Final = PROJECT / "bench" / "results"
PAGE: Final = PROJECT / "docs" / "measured.md"
HEAD: Final = """\
# What was measured

Every figure on this page comes from a file in `bench/results`, which also records how it was measured. The bench of the
same name makes the file. The figures hold for the named machine only.
"""

OVER_NAMED: Final = 10
"""Questions about a large tenant that are named because their answers took too long."""

Found = Mapping[str, Any]


def append(found: Found) -> Iterator[str]:
    yield "1 KB entries per second, compared with a plain INSERT of the same bytes with a unique id, neither chained"
    yield "nor"
    yield "hashed, and with the recorder of the eventsourcing library:"
    yield "| concurrent callers | log | plain INSERT | ratio | p99 of the log | eventsourcing |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for run in found["runs"]:
        stock = f"{run['stock']['per_second']:,}" if "stock" in run else ""
        log = run["log"]
        yield (
            f"| {run['callers']:,} | {log['per_second']:,} | {run['plain']['per_second']:,} | {run['log_to_plain']} | "
            f"{log['p99_ms']} ms | {stock} |"
        )
    many = found["many_logs"]
    yield f"`append_many` appends {found['append_many_per_second']:,} entries per second. One event for each of"
    yield f"{many['logs']} logs takes {many['flushes']} flushes to disk on average."
    costs = ", ".join(f"{one['cost_percent']} % at {one['callers']} callers" for one in found["idempotency"])
    yield f"Idempotent group ids cost {costs} (below zero: less than the noise)."


def idempotency(found: Found) -> Iterator[str]:
    yield f"{found['processes']} processes submitted {found['groups']:,} groups {found['times']} times each, under"
    yield "faults:"
    yield f"{_counts(found['trouble'])}. {found['in_the_log']:,} groups are in the log, each once."
    yield f"{found['other_bodies_refused']} groups with another body under an id already used were refused."


def writers(found: Found) -> Iterator[str]:
    answers = found["told"]
    yield f"{found['processes']} processes wrote {found['logs']} logs for {found['seconds']} s, under faults:"
    yield f"{_counts(found['trouble'])}. {answers['asked']:,} groups were submitted, and every answer was true:"
    yield f"{answers['in']:,} groups are in the log, {answers['not in']:,} are not, and of {answers['unknown']:,} the"
    yield "outcome"
    yield "was reported as unknown. The processes of the others were killed before an answer. The indices have no"
    yield "gap, and a"
    yield "reader that followed the logs missed no entry and saw none twice."


def faults(found: Found) -> Iterator[str]:
    yield f"{found['points']:,} faults were injected at the statements of append, seal, publish and erase: errors,"
    yield "crashes,"
    yield "ended sessions, cut connections, killed processes, stopped servers."
    yield f"{len(found['failures'])} of them broke a guarantee."


def prove(found: Found) -> Iterator[str]:
    inclusion, first = found["inclusion"], found["inclusion_first_on_a_connection"]
    finding = found["finding_the_log_and_first_inclusion"]
    yield f"Proofs from a log of {found['entries']:,} entries, with nothing cached: inclusion p50"
    yield f"{inclusion['p50_ms']} ms,"
    yield f"p99 {inclusion['p99_ms']} ms; consistency p50 {found['consistency']['p50_ms']} ms. The first inclusion"
    yield "proof on a"
    yield f"new connection takes p50 {first['p50_ms']} ms, and {finding['p50_ms']} ms if the log has to be looked up"
    yield "first."
    yield f"Checking a proof takes {found['checking']['p50_ms']} ms. Reading all leaf hashes instead takes"
    yield f"{found['baseline_all_leaves_ms']:,} ms."


def receipts(found: Found) -> Iterator[str]:
    took = found["append_to_receipt"]
    yield f"At {found['per_second']:,} events per second, from append to signed receipt: p50 {took['p50_ms']} ms, p99"
    yield f"{took['p99_ms']} ms. The append alone takes p50 {found['append_alone']['p50_ms']} ms."


def forks(found: Found) -> Iterator[str]:
    kinds = ", ".join(f"{kind} {one['found']} of {one['trials']}" for kind, one in found["by_kind"].items())
    yield f"{found['found']:,} of {found['trials']:,} forks were found at the next checkpoint ({kinds})."
    yield f"{len(found['accused'])} of {found['honest_trials']:,} honest logs were reported as forks."


def replay(found: Found) -> Iterator[str]:
    yield f"`lakeproof policies replay` over {found['decisions']:,} decisions and their outcomes, of {found['tables']}"
    read = f" and {found['readers']} that read the log" if "readers" in found else ""
    yield f"tables, with {found['workers']} worker processes{read}. The peer is cel-python's"
    yield "interpreter on variables that were made before, of a sample; it reads no log. Equal inputs are evaluated"
    yield "once:"
    yield "| proposal | policies | evaluated | decisions per second | peer | ratio |"
    yield "|---|---:|---:|---:|---:|---:|"
    for run in found["runs"]:
        yield (
            f"| {run['proposal']} | {run['policies']} | {run['evaluated']:,} | {run['decisions_per_s']:,} | "
            f"{run['peer_decisions_per_s']:,} | {run['ours_to_peer']} |"
        )


def policies(found: Found) -> Iterator[str]:
    yield f"How long {found['policies']} policies take on one worker, as the gateway calls it, over {found['calls']:,}"
    yield "calls. *mix* has five that compare every column with every other; *unchanged* is the mix on inputs that were"
    yield "judged before: verdicts are kept. The peer is cel-python's interpreter in the calling process, on the same"
    yield "expressions and variables, at its best:"
    yield "| policies | columns | median | p99 | peer | ratio to the median |"
    yield "|---|---:|---:|---:|---:|---:|"
    for run in found["runs"]:
        yield (
            f"| {run['kind']} | {run['columns']} | {run['p50_ms']} ms | {run['p99_ms']} ms | {run['peer_ms']:,} ms | "
            f"{run['peer_to_ours']} |"
        )


def listing(found: Found) -> Iterator[str]:
    peer = found.get("peer", "the peer")
    yield f"How long `GET .../tables` takes for {found['names']:,} tables under {found['rule_count']} access rules,"
    yield "through a socket on a real `lakeproof up` (medians). Before each first list other rules come into force."
    yield f"The operator may see all. {peer} knows no rules, and gives all names to everybody, in pages of 1,000:"
    yield f"| rules | shown | first page of 100 | first list of all | next one | the operator's | {peer} |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for run in found["runs"]:
        waits = ("page_ms", "first_ms", "next_ms", "operator_ms", "peer_ms")
        cells = (f"{run[name]:,} ms" if name in run else "" for name in waits)
        yield f"| {run['rules']} | {run['shown']:,} | {' | '.join(cells)} |"


def access_rules(found: Found) -> Iterator[str]:
    yield f"{found['requests']:,} random requests were judged by a real Nessie and here, by the same {found['files']}"
    yield f"files with {found['rules']:,} random rules in {found['sets']} sets: {found['different'] or 'none'} of them"
    yield "differently."
    yield "What was asked, with how often it was permitted and refused:"
    yield "| request | permitted | refused |"
    yield "|---|---:|---:|"
    for asked in sorted({*found["permitted"], *found["refused"]}):
        yield f"| `{asked}` | {found['permitted'].get(asked, 0):,} | {found['refused'].get(asked, 0):,} |"


def looking(found: Found) -> Iterator[str]:
    has = found["contents"]
    yield f"How long the read API and the console answer about a tenant with {has['entries']:,} entries,"
    yield f"{has['tables']:,} tables, and a graph of {has['edges']:,} edges and {has['vertices']:,} vertices, through a"
    yield "socket on a real `lakeproof up`. Each route is asked at the start, in the middle and at the end of the log,"
    yield "with filters that match often, rarely and never, about the table that has most and about a usual one, as"
    yield "an operator who sees all and as a caller whose rules show one table in ten. A row has the worst of what was"
    yield "asked of a route. The read models are filled by the projections' own code; those of a small tenant of the"
    yield "same kind were compared with what projecting its log gives. The peer is plain SQL that reads the rows of the"
    yield "same page."
    yield "| route | p50 | p95 | p99 | p95 of 8 at once | bytes | statements | times the peer |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for route, looks in groupby(sorted(found["looks"], key=lambda look: str(look["route"])), key=lambda x: x["route"]):
        of_route = list(looks)
        worst = {name: max(look["1"][name] for look in of_route) for name in ("p50_ms", "p95_ms", "p99_ms")}
        at_once = max(look["8"]["p95_ms"] for look in of_route)
        size, statements = (max(look[name] for look in of_route) for name in ("bytes", "statements"))
        to_peer = [look["to_peer"] for look in of_route if "to_peer" in look]
        ratio = f"{max(to_peer):g}" if to_peer else ""
        yield (
            f"| `{route}` | {worst['p50_ms']:.1f} ms | {worst['p95_ms']:.1f} ms | {worst['p99_ms']:.1f} ms | "
            f"{at_once:.1f} ms | {size:,} | {statements:g} | {ratio} |"
        )
    first = ", ".join(f"{one['p95_ms']:.1f} ms ({where})" for where, one in found["follow_first_entry"].items())
    yield f"The first entry of a log that is followed is there after p95 {first}."
    over = found["over_the_goal"]
    asked = len(found["looks"])
    claim = "The claim, 95 of 100 answers within 100 ms and pages within 150 ms,"
    if over:
        yield f"{claim} does not hold for {len(over)} of {asked} questions, such as {', '.join(over[:OVER_NAMED])}."
    else:
        yield f"{claim} holds for all {asked} questions."


def verify(found: Found) -> Iterator[str]:
    yield "Entries of about 500 bytes verified per second. *hash* is SHA-256 over the entries and nothing else;"
    yield "*exact* is"
    yield "our own path without the compiled kernel; *processes* use the kernel:"
    yield f"| from | {' | '.join(_SIDES)} |"
    yield f"|---{'|---:' * len(_SIDES)}|"
    for source in ("directory", "database"):
        rates = found[source]["500 bytes"]
        cells = [f"{rates[name]['per_s']:,}" if name in rates else "" for name in _SIDES]
        yield f"| {source} | {' | '.join(cells)} |"
    since = found["since"]
    yield f"Verifying the {since['new']:,} entries after a checkpoint in a log of {since['entries']:,} takes"
    yield f"{since['since']['elapsed_ms']} ms, or {since['since, kernel']['elapsed_ms']} ms if the kernel is already"
    yield "loaded."


def tamper(found: Found) -> Iterator[str]:
    yield f"Of {found['instances']:,} random changes in {found['classes_run']} classes, {found['found']:,} were found,"
    yield f"{found['class_and_index_right']:,} with the right class of fault and the right index."
    yield f"{found['efforts']['exact']:,} were verified entry by entry, {found['efforts']['fast']:,} with the"
    yield "compiled kernel,"
    yield f"which accepted {found['pages_accepted_by_the_kernel']:,} unchanged pages meanwhile."
    yield "| class | instances | found | class and index right | reported as |"
    yield "|---|---:|---:|---:|---|"
    for name, one in sorted(found["classes"].items(), key=lambda item: -item[1]["instances"]):
        counts = " | ".join(f"{one[key]:,}" for key in ("instances", "found", "class_and_index_right"))
        yield f"| {name} | {counts} | {', '.join(one['faults'])} |"


def mutation(found: Found) -> Iterator[str]:
    sample = found["sample_of_each_module"]
    of = f" (a random sample of {sample} of each of {len(found['modules'])} modules"
    of = f"{of}, and {found['sample_of_large_modules']} of large ones)" if sample else ""
    yield f"The tests kill {found['killed']:,} of {found['mutants']:,} mutants of the verifier{of},"
    yield f"{found['score_percent']} %. Mutants that are equivalent to the original count as survivors; no test can"
    yield "kill"
    yield "them."


def fuzz(found: Found) -> Iterator[str]:
    targets = found["targets"]
    yield f"{len(targets)} parsers were fuzzed for at least {min(one['seconds'] for one in targets) // 60} minutes"
    yield "each,"
    yield f"{sum(one['runs'] for one in targets):,} runs in all. {sum(len(one['crashes']) for one in targets)} runs"
    yield "ended in an"
    yield "error other than those that the parser documents."


def round_trips(found: Found) -> Iterator[str]:
    yield f"{found['entries']:,} random entries went through PostgreSQL, a dump and its restoration, and an export."
    yield f"Verification raised {len(found['alarms'])} alarms."


def key_flood(found: Found) -> Iterator[str]:
    quiet, attacked, first = found["quiet"], found["attacked"], found["first_request_of_a_key_attacked"]
    refused = sum(count for side in (attacked, first) for status, count in side["answers"].items() if status != "200")
    yield f"{found['connections']} connections send wrong API keys to a real `lakeproof up`, each again as soon as it"
    yield "is"
    yield f"refused. Meanwhile, requests with a valid key take p50 {attacked['p50_ms']} ms, p99 {attacked['p99_ms']}"
    yield "ms; without"
    yield f"the flood, p50 {quiet['p50_ms']} ms, p99 {quiet['p99_ms']} ms. The ratios are {found['ratio_p50']} and"
    yield f"{found['ratio_p99']}. The first request with a key that the process has not seen takes p50"
    yield f"{first['p50_ms']} ms."
    yield f"{refused} of {attacked['requests'] + first['requests']:,} valid requests were refused, and all"
    yield f"{found['wrong_keys']['401']:,} requests with wrong keys."


def erasure(found: Found) -> Iterator[str]:
    yield f"Erasing {found['erased']:,} of {found['parts']:,} payload parts takes {found['elapsed_s']} s."


def noisy_neighbour(found: Found) -> Iterator[str]:
    yield "One tenant commits over HTTP to `lakeproof up`, one commit after another: first for"
    yield f"{found['seconds']:g} s alone, then while {found['attacking_clients']} clients of another tenant attack"
    yield "without"
    yield "pause. The claim: the 99th percentile under attack is below three times the one alone, and no commit is"
    yield "refused."
    yield "| attack | commits | p50 alone | p50 attacked | p99 alone | p99 attacked | ratio | refused |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for one in found["attacks"]:
        quiet, attacked = one["quiet"], one["attacked"]
        yield (
            f"| {one['attack']} | {attacked['commits']:,} | {quiet['p50_ms']} ms | {attacked['p50_ms']} ms | "
            f"{quiet['p99_ms']} ms | {attacked['p99_ms']} ms | {one['p99_ratio']} | {one['refused']} |"
        )


def crash(found: Found) -> Iterator[str]:
    after = found["reconciled_after_deadline_s"]
    yield f"{found['kills']:,} times something got SIGKILL while {found['clients']} client processes committed through"
    yield "a built-in alias and through two foreign ones, in front of Apache Iceberg's own REST server and of Nessie:"
    yield "at random, right after a request was sent, right after its decision or its outcome was in the log. Then"
    yield "tables, log and answers were"
    yield f"compared: {found['commits']:,} commits, {found['repeated_requests']:,} requests that were sent again under"
    yield f"their Idempotency-Key, and {len(found['violations'])} contradictions. The claim: a commit in a table has"
    yield "its outcome in the log, an outcome in the log has its commit in the table, no answer was wrong, the log"
    yield "verifies, and no process is left behind."
    yield f"The reconciler recorded {found['reconciled']:,} of the commits, p50 {after['p50']} s and at most"
    yield f"{after['max']} s after the decision's deadline, with what it needs killed meanwhile."
    yield "Cut off are requests at which a kill was aimed and that got no answer, or 5xx. A pause is the longest time"
    yield "between acknowledged commits after a kill:"
    yield "| killed | times | cut off | built-in: p50 | longest | Iceberg's: p50 | longest | Nessie: p50 | longest |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for victim, one in found["by_victim"].items():
        pauses = (f"{one[f'{alias}_pause_s'][which]} s" for alias in ALIASES for which in ("p50", "max"))
        yield f"| {victim} | {one['kills']} | {one['cut_off']} of {one['aimed']} | {' | '.join(pauses)} |"


_SIDES: Final = ("hash", "exact", "1 process", "2 processes")
SECTIONS: Final[tuple[tuple[str, Callable[[Found], Iterator[str]]], ...]] = (
    ("Append", append),
    ("Idempotency", idempotency),
    ("Writers under faults", writers),
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
    ("Flood of wrong keys", key_flood),
    ("Noisy neighbour", noisy_neighbour),
    ("Kills during commits", crash),
    ("Gateway", gateway),
    ("Policies", policies),
    ("Replay of policies", replay),
    ("Access rules beside Nessie", access_rules),
    ("Lists under access rules", listing),
    ("Reading", looking),
)


def page(results: Path) -> str:
    """Return the page over the results that are there."""
    parts = [HEAD]
    for title, describe in SECTIONS:
        file = results / f"{describe.__name__}.json"
        if file.exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            parts.append(f"## {title}\n\n{_typeset(describe(found))}\n\n{_where(file, found)}\n")
    return "\n".join(parts)


def _typeset(lines: Iterator[str]) -> str:
    """Return lines as Markdown: rows of tables as they are, the text between them as paragraphs."""
    blocks = []
    for is_table, block in groupby(lines, key=lambda line: line.startswith("|")):
        text = list(block)
        blocks.append("\n".join(text) if is_table else fill(" ".join(text), 120, break_on_hyphens=False))
    return "\n\n".join(blocks)


def _where(file: Path, found: Found) -> str:
    machine = found.get("machine")
    facts = [f"`bench/results/{file.name}`", machine if isinstance(machine, str) else None]
    facts += [f"PostgreSQL {found['postgresql']}"] if "postgresql" in found else []
    facts += [str(found["measured_at"])[:10]] if "measured_at" in found else []
    return "*" + ", ".join(fact for fact in facts if fact) + "*"


def _counts(trouble: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count} times)" for name, count in trouble.items())


if __name__ == "__main__":
    PAGE.write_text(page(RESULTS), encoding="utf-8")
