# SPDX-License-Identifier: Apache-2.0
"""
The eventsourcing library's own test cases for those who store its events.

They import the cipher that stands on pycryptodome, which nothing of ours needs; the library's other cipher, over
cryptography, has the same interface and stands in for it.
"""

from __future__ import annotations

import sys

import eventsourcing.cryptography

sys.modules.setdefault("eventsourcing.cipher", eventsourcing.cryptography)

from eventsourcing.tests import persistence  # noqa: E402

__all__ = ["persistence"]
