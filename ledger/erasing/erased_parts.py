"""
Which payload parts a log says are erased, told from its `payload.erased` entries alone.

Where parts are written anew, from a copy that is older than an erasure, this keeps out what the log itself has erased.
Of many erasures by age only the latest of each kind counts, so it stays small in a log that is retained every day.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledger.events import PayloadErased


class ErasedParts:
    """What these erasures name; each was checked (`events.check_erased`)."""

    def __init__(self, erasures: Iterable[PayloadErased]) -> None:
        self._subjects: set[str] = set()
        self._single: set[tuple[int, str | None]] = set()
        self._before: dict[tuple[str | None, str | None], int] = {}
        for erased in erasures:
            if erased.subject is not None:
                self._subjects.add(erased.subject)
            elif erased.index is not None:
                self._single.add((erased.index, erased.name))
            elif erased.before is not None:
                kind = (erased.name, erased.type)
                self._before[kind] = max(erased.before, self._before.get(kind, 0))

    def names(self, *, index: int, type: str, part: str, subject: str | None) -> bool:  # noqa: A002  (an entry's word)
        """Tell whether `part` of the entry at `index`, of this `type`, is erased; it is about `subject`, if anybody."""
        if subject in self._subjects or (index, part) in self._single:
            return True
        kinds = ((None, None), (part, None), (None, type), (part, type))
        return any(index < self._before.get(kind, 0) for kind in kinds)
