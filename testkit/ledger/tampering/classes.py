# SPDX-License-Identifier: Apache-2.0
"""
All classes of tampering with a database, by name.
"""

from __future__ import annotations

from typing import Final

from testkit.ledger.tampering.columns import COLUMNS
from testkit.ledger.tampering.history import HISTORY
from testkit.ledger.tampering.instances import Tampering
from testkit.ledger.tampering.nulls import NOTHING, NULLS
from testkit.ledger.tampering.tables import ENTRIES
from testkit.ledger.tampering.tiles_and_parts import TILES_AND_PARTS

CLASSES: Final[dict[str, Tampering]] = {
    **{f"{table}.{column}": tampering for (table, column), tampering in COLUMNS.items()},
    **{tampering.__name__: tampering for tampering in (*ENTRIES, *HISTORY)},
    **TILES_AND_PARTS,
    **{f"{table}.{column} NULL": tampering for (table, column), tampering in NULLS.items()},
    **NOTHING,
}
