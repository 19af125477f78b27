# SPDX-License-Identifier: Apache-2.0
"""
What the words of the console mean: those of its pages that a reader may meet for the first time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A word, the `id` by which pages link to it, what it means, and the document in docs/ that says more."""

    id: str
    word: str
    meaning: str
    document: str = ""


TERMS: Final[Mapping[str, Sequence[Term]]] = {
    "The log and its proofs": (
        Term(
            id="log",
            word="Log, entry, index",
            meaning="All that is decided and observed is appended to the tenant's log, one entry each, numbered from "
            "0. Entries are never changed or removed.",
            document="ledger.md",
        ),
        Term(
            id="actor",
            word="Actor",
            meaning="Who caused an entry, as a pseudonym. The name stands beside the entry and can be erased, and "
            "only those see it who may read on what was judged. What the gateway does by itself is by system.",
            document="ledger.md",
        ),
        Term(
            id="commitment",
            word="Part, commitment",
            meaning="What is personal or bulky is kept beside an entry as a part of it. The entry holds a commitment, "
            "a salted hash of the part: the part can be erased, but not exchanged.",
            document="ledger.md",
        ),
        Term(
            id="checkpoint",
            word="Signed, checkpoint",
            meaning="The leaf hashes of all entries form one Merkle tree. A checkpoint is its size and root hash, "
            "signed with the log's key: it fixes every entry before it.",
            document="ledger.md",
        ),
        Term(
            id="proof",
            word="Proof",
            meaning="The hashes that lead from an entry to a signed root. Whoever has the log's verifier key can "
            "check with them that the entry is in the log, and that nothing before it was changed, without "
            "this server.",
            document="auditing.md",
        ),
        Term(
            id="anchor",
            word="Anchored",
            meaning="The installation's own log has taken in the root of the tenant's log. To change the tenant's "
            "history, that log would have to be changed, too.",
            document="auditing.md",
        ),
        Term(
            id="witness",
            word="Witness, time stamp",
            meaning="A witness is a server of somebody else that signs a checkpoint, too, if the log has only grown. "
            "A time stamp is a signed statement of an authority that the checkpoint existed at a time.",
            document="auditing.md",
        ),
        Term(
            id="evidence",
            word="Evidence",
            meaning="A file with entries, their proofs and the parts that are disclosed. The verifier checks it in a "
            "browser, or on a command line, without a network.",
            document="auditing.md",
        ),
        Term(
            id="as-of",
            word="As of entry",
            meaning="A list as it was when the log ended with that entry.",
            document="operations.md",
        ),
    ),
    "Commits and decisions": (
        Term(
            id="decision",
            word="Decision",
            meaning="Before anything is changed, access rules and policies judge a commit. It is approved, rejected "
            "(a rule says no), undecidable (a rule failed, or needs what is not known: the commit is "
            "refused), or conflicted (the table has changed since the client read it).",
            document="architecture.md",
        ),
        Term(
            id="outcome",
            word="Outcome",
            meaning="What became of an approved commit: accepted by the catalog, conflicted (another commit came "
            "first), refused or failed there, or unknown, because the catalog has not told. Pages count "
            "refused and failed ones as failed.",
            document="architecture.md",
        ),
        Term(
            id="open-decision",
            word="Open decision",
            meaning="An approved change of a foreign catalog whose outcome is not known yet. The reconciler asks the "
            "catalog until it tells.",
            document="operations.md",
        ),
        Term(
            id="policy",
            word="Policy, access rule",
            meaning="An access rule says who may do what. A policy says what a commit may contain. Both are "
            "expressions in CEL, the Common Expression Language; an access rule can be a policy in Cedar instead.",
            document="policies.md",
        ),
        Term(
            id="shadowed",
            word="Dead, shadowed",
            meaning="An access rule is dead if it holds for no request, and shadowed if other rules decide wherever it "
            "holds. What is proven holds for every request that there can be; the rest was tried on many.",
            document="access-rules.md",
        ),
        Term(
            id="draft",
            word="Draft, review",
            meaning="A draft is a proposed version of a policy or restriction. It counts once another person approves "
            "it.",
            document="policies-in-force.md",
        ),
        Term(
            id="replay",
            word="Replay",
            meaning="Recorded decisions judged again with another text, to see which would be others. Nothing is "
            "changed.",
            document="policies.md",
        ),
        Term(
            id="restriction",
            word="Restriction",
            meaning="A row filter and column masks of tables: written, tested and stored, not enforced yet.",
            document="restrictions.md",
        ),
    ),
    "Data": (
        Term(
            id="catalog",
            word="Catalog, namespace, table",
            meaning="A table is named as engines name it: the alias of its catalog, its namespace, and its own name, "
            "with dots between.",
            document="engines.md",
        ),
        Term(
            id="snapshot",
            word="Snapshot",
            meaning="A state of an Iceberg table. A commit that writes data adds one, and its number names it.",
        ),
        Term(
            id="finding",
            word="Finding, confidence",
            meaning="What a scan took for personal data: a kind, in a column, with how sure it is and how many values "
            "matched; never a value. A person confirms or dismisses it.",
            document="arrivals.md",
        ),
        Term(
            id="lineage",
            word="Lineage",
            meaning="What a table was made from and what was made from it, as engines and pipelines report it.",
            document="arrivals.md",
        ),
    ),
    "Operating": (
        Term(
            id="runner",
            word="Runner",
            meaning="A process that follows the log: the read models, alerts (sends alerts of findings), observe "
            "(records commits that bypassed the gateway), and detection (scans what was committed).",
            document="operations.md",
        ),
        Term(
            id="read-model",
            word="Read model, generation, rebuild",
            meaning="Tables, graph and counts that pages read, made from the log alone. A rebuild makes the next "
            "generation and compares it with the one that is read.",
            document="operations.md",
        ),
        Term(
            id="dead-letter",
            word="Dead letter",
            meaning="A message that could not be handled after some attempts. It is kept with the reason, until it is "
            "replayed.",
            document="operations.md",
        ),
        Term(
            id="tenant",
            word="Tenant",
            meaning="One organisation or team, with a log, keys, catalogs and rules of its own. Nobody sees anything "
            "of another.",
            document="operations.md",
        ),
    ),
}
