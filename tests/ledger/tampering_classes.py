"""
All classes of tampering with a database, by name.
"""

from __future__ import annotations

from typing import Final

from tests.ledger.tampering import Tampering
from tests.ledger.tampering_beside import BESIDE
from tests.ledger.tampering_columns import COLUMNS
from tests.ledger.tampering_history import HISTORY
from tests.ledger.tampering_nulls import NOTHING, NULLS
from tests.ledger.tampering_tables import ENTRIES

CLASSES: Final[dict[str, Tampering]] = {
    **{f"{table}.{column}": tampering for (table, column), tampering in COLUMNS.items()},
    **{tampering.__name__: tampering for tampering in (*ENTRIES, *HISTORY)},
    **BESIDE,
    **{f"{table}.{column} NULL": tampering for (table, column), tampering in NULLS.items()},
    **NOTHING,
}
