# SPDX-License-Identifier: Apache-2.0
"""
The modules that decide whether a log is broken, and the tests of each, the fastest first.

A mutant that survives one stage of tests is run in the next. If a module has many tests, those that take most of the
time are in a later stage.
"""

from __future__ import annotations

from typing import Final

from testkit.environment import PROJECT

Stages = tuple[tuple[str, ...], ...]

_FOLDER: Final = PROJECT / "tests" / "ledger"


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(str(file.relative_to(PROJECT)) for name in names for file in _FOLDER.glob(f"**/test_{name}.py"))


_SLOW: Final = (
    "a_flipped_bit_in_any_file_of_a_small_log_is_found_where_it_is",
    "any_log_verifies_and_any_changed_byte_is_found",
    "a_log_over_two_levels_of_tiles_verifies",
    "a_flipped_bit_in_a_tile_of_any_level_names_that_tile",
)
"""Tests of `test_verify.py` that take most of its time: only what survives the others meets them."""
_VERIFY: Final = (*_tests("verify"), "-k", " and ".join(f"not {name}" for name in _SLOW))
_TREE: Final[Stages] = (
    _VERIFY,
    _tests("verify_ways"),
    (*_tests("verify"), "-k", " or ".join(_SLOW)),
    _tests("verify_database", "verify_database_ways"),
)
_DATABASE: Final[Stages] = (_tests("verify_database"), _tests("verify_database_ways"), _tests("tampering"))
_FORMS: Final = _tests("two_verifiers")
MODULES: Final[dict[str, Stages]] = {
    "ledger/format/merkle.py": (_tests("merkle"), _tests("proof", "needed_checks"), _VERIFY),
    "ledger/format/tiles.py": (_tests("tiles"), *_TREE),
    "ledger/format/entry.py": (_VERIFY, _FORMS, _tests("verify_fast")),
    "ledger/format/checkpoint.py": (
        _tests("checkpoint", "needed_checks"),
        _VERIFY,
        _tests("checkpoint"),
    ),
    "ledger/format/note.py": (_tests("checkpoint", "needed_checks"), _VERIFY),
    "ledger/format/proof.py": (_tests("proof", "c2sp_sentences"), _tests("ledger_cli")),
    "ledger/format/verification.py": (
        *_TREE,
        _tests("needed_checks", "ledger_cli"),
        _tests("tampering"),
        _tests("verify_ways"),
        _VERIFY,
        _tests("verify_database_ways"),
    ),
    "ledger/verify/tree.py": _TREE,
    "ledger/verify/starting.py": (
        _tests("verify_ways"),
        _tests("verify_database_ways"),
        _tests("verify_continued"),
        _tests("continuation"),
    ),
    "ledger/verify/directory.py": (
        *_TREE[:3],
        _tests("verify_continued", "two_verifiers"),
        _tests("tampering"),
    ),
    "ledger/verify/database.py": _DATABASE,
    "ledger/verify/database_pages.py": (
        _tests("verify_database_ways"),
        _tests("tampering"),
        *_DATABASE,
    ),
    "ledger/verify/indexes.py": (_tests("tampering"),),
    "ledger/verify/parts.py": (_tests("verify_database", "erase"), _tests("tampering")),
    "ledger/verify/kernel.py": (_tests("verify_fast"), _FORMS, _tests("tampering"), _VERIFY),
    "ledger/verify/fast.py": (_tests("verify_fast"), _tests("page_hashes"), _tests("tampering"), _VERIFY),
    "ledger/verify/hashing.py": (_tests("page_hashes"), _tests("verify_fast")),
    "ledger/verify/resuming.py": (_tests("verify_ways"), _tests("verify_database_ways")),
    "ledger/verify/anchored.py": (
        _tests("ml_dsa_checkpoints"),
        _tests("verify_anchored"),
        _tests("verify_ways"),
        _tests("signer_keys"),
        _tests("verify_keys", "verify_anchored"),
    ),
    "ledger/format/key_history.py": (_tests("signer_keys", "verify_keys"), _tests("verify_stamped", "verify_ways")),
}
