# SPDX-License-Identifier: Apache-2.0
"""Pairs of names that a reader takes for one another."""

from __future__ import annotations

ALIKE = [
    ("finance", "Finance"),
    ("finance", "finance "),
    ("finance", "\ufb01nance"),
    ("finance", "finance\u200b"),
    ("finance", "f\u0456nance"),  # a Cyrillic i
    ("finance", "FINANCE"),
    ("finance", "F\u0406NANCE"),  # a Cyrillic capital I
    ("north", "\u039dORTH"),  # a Greek capital Nu, whose small letter looks like v
    ("invoice", "\u0399NVOICE"),  # a Greek capital Iota, which looks like a small l
    ("bill", "\u0412ILL"),  # a Cyrillic Ve before Latin capitals
    ("\u0432\u043e\u043b\u0433\u0430", "\u0412\u041e\u041b\u0413\u0410"),  # Cyrillic, small and capital
    ("paypal", "paypaI"),
    ("paypal", "PaypaI"),
    ("orders", "0rders"),
    ("straße", "STRASSE"),
    ("\u00e9t\u00e9", "e\u0301te\u0301"),
    ("a b", "a\u00a0b"),
    ("a b", "a  b"),
    ("viii", "\u2177"),
    ("finance", "\uff46\uff49\uff4e\uff41\uff4e\uff43\uff45"),  # full width
]
