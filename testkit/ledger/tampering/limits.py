# SPDX-License-Identifier: Apache-2.0
"""
What can be changed in the tables of the log without verification finding it, and why: what an auditor must know.
"""

from __future__ import annotations

from typing import Final

NOT_COVERED: Final[dict[tuple[str, str], str]] = {
    ("logs", "reader"): "the role that may read the log: a right, not a content; parts cannot be verified without it",
    (
        "parts",
        "subject",
    ): "no commitment holds it. It says whose erasure deletes the part; of a sealed part, a false one "
    "hides the part, and the report counts it among those whose keys are not here",
    (
        "parts",
        "key_id",
    ): "of a sealed part, a false one hides the part as if its key were destroyed, and the report counts "
    "it among those whose keys are not here. Whoever may change it could as well have deleted the part",
    **dict.fromkeys(
        (("subjects", name) for name in ("log_id", "actor", "identity", "issuer")),
        "who an actor is: personal, deleted when the person is erased, and so in no entry that could vouch for it",
    ),
    **dict.fromkeys(
        (("aggregates", "log_id"), ("aggregates", "key"), ("aggregates", "version")),
        "what guards check; a function of the entries, and compared with them by `verify --deep`",
    ),
    **dict.fromkeys(
        [("recorded_events", column) for column in ("log_id", "kind", "originator", "version", "group_id", "position")],
        "where events of applications' aggregates stand; a function of the entries, and compared with them by "
        "`verify --deep`",
    ),
    **dict.fromkeys(
        [("confirmations", name) for name in ("log_id", "size", "server_started_at", "entries_file", "written_in")],
        "whether the signer has seen the log in this database, since the server started: about the server, not about "
        "the log. A false one lets a restored log take entries until the signer's next round, which compares it with "
        "its own note",
    ),
    ("confirmed_logs", "log_id"): "a view: which rows of `confirmations` hold here and now; whoever replaces it, or "
    "forges such a row, does no more than that",
    **dict.fromkeys(
        (("erased_subjects", "log_id"), ("erased_subjects", "subject")),
        "whose parts are not shown. A false row hides parts, as deleting them would; a missing one shows what was not "
        "deleted yet. Erasures themselves are entries, `payload.erased`",
    ),
    **dict.fromkeys(
        (("erasures_done", "log_id"), ("erasures_done", "index")),
        "which erasures were carried out: if one is missing it is carried out again; a false one is found by "
        "`rerun_erasures`, which looks for parts that are left",
    ),
    **dict.fromkeys(
        (("key_folder", "id"), ("key_folder", "only_row")),
        "the name of the folder with the keys of sealed parts: a false one stops every process that would seal",
    ),
    **dict.fromkeys(
        [("stamps", column) for column in ("log_id", "size", "gen_time", "token")],
        "of others' making: a time stamp is verified when a root is named (--tsa-root), and counts for nothing "
        "otherwise",
    ),
    **dict.fromkeys(
        [("cosignatures", column) for column in ("log_id", "size", "name", "key_id", "signature")],
        "of others' making: cosignatures are verified by the policy that is named or configured, and count for nothing "
        "otherwise",
    ),
    **dict.fromkeys(
        [("witness_answers", column) for column in ("log_id", "witness", "size", "state", "asked_at", "message")],
        "what each witness answered last, for whoever looks after the installation: it is evidence of nothing, and the "
        "next answer writes over it",
    ),
}
"""What a change to which verification does not find, and why."""
