# SPDX-License-Identifier: Apache-2.0
"""
The name of the rules in force: what a scan is marked with, so that a snapshot is scanned once under each set of rules.
"""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import Final

from ledger.format import canonical
from ledger.format.canonical import Json
from spark_detect.classify import confidence, names, rules


def ruleset_id() -> str:
    """
    Return `v<version>-<12 hex digits>` of the SHA-256 of every table and threshold of the rules, in canonical JSON.
    """
    tables: Json = {
        "cards": [[first, last, list(lengths)] for first, last, lengths in rules.CARD_NETWORKS],
        "evidence": {kind.value: repr(asdict(thresholds)) for kind, thresholds in confidence.THRESHOLDS.items()},
        "files": list(rules.FILE_ENDINGS),
        "ibans": {str(length): countries for length, countries in rules.IBAN_LENGTHS.items()},
        "names": {
            "changes": {kind.value: sorted(found) for kind, found in names.CHANGES_MEANING.items()},
            "denies": sorted(names.DENIES),
            "keeps": sorted(names.KEEPS_MEANING),
            "together": sorted(names.WRITTEN_TOGETHER),
            "terms": {kind.value: sorted(terms) for kind, terms in names.TERMS.items()},
        },
        "phones": {str(code): list(lengths) for code, lengths in rules.PHONE_LENGTHS.items()},
        "phone_countries": rules.PHONE_COUNTRIES,
        "ssn_advertised": list(rules.SSN_ADVERTISED),
        "version": rules.VERSION,
    }
    return f"v{rules.VERSION}-{sha256(canonical.encode(tables)).hexdigest()[:12]}"


RULESET: Final = ruleset_id()
"""The id of the rules that this program scans by."""
