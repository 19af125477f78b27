# SPDX-License-Identifier: Apache-2.0
"""
Where this process has left tables of the built-in catalog: their rows, unless another process has changed them since.

Nothing depends on it but the time that a commit takes: its guard compares the pointer (`as_known.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic
from typing import Final

from gateway.catalogs.catalog import Loaded
from gateway.fresh import Pointer, TableRow
from gateway.identifiers import Target
from ledger.values import value_class

TABLES_MAX: Final = 4_096
"""Tables whose rows are known, some 4 MB; of more, those that were changed last."""
PAUSE_S: Final = 5.0
"""How long a table's row is read for each commit after one was tried in vain."""


@value_class
class KnownTable:
    """The row of a table, since `since_s` on the clock of `monotonic`; None: it is to be read."""

    row: TableRow | None
    since_s: float


class KnownTables:
    """The rows of tables as this process has left them. Event loop only."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[int, Target], KnownTable] = OrderedDict()

    def get(self, log_id: int, target: Target) -> KnownTable | None:
        """Return what is known of a table of a log, if its row is."""
        known = self._known.get((log_id, target))
        return None if known is None or known.row is None else known

    def left(self, log_id: int, target: Target, left: Loaded) -> None:
        """Note that a commit has left a table so."""
        key, now_s = (log_id, target), self._clock()
        known = self._known.get(key)
        if known is not None and known.row is None and now_s - known.since_s < PAUSE_S:
            return
        if left.metadata_location is None or left.metadata_sha256 is None:
            return
        pointer = Pointer(
            metadata_location=left.metadata_location,
            metadata_sha256=left.metadata_sha256,
            places=left.places,
            is_view=target.is_view,
        )
        self._keep(key, KnownTable(row=TableRow(namespace_exists=True, pointer=pointer), since_s=now_s))

    def tried_in_vain(self, log_id: int, target: Target) -> None:
        """Note that a commit on what is known of a table was not made: another process changes it, or it is refused."""
        self._keep((log_id, target), KnownTable(row=None, since_s=self._clock()))

    def _keep(self, key: tuple[int, Target], known: KnownTable) -> None:
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > TABLES_MAX:
            self._known.popitem(last=False)
