"""
What can be wrong with lineage that is sent to us.
"""

from __future__ import annotations

from projections.errors import ProjectionError


class InvalidLineageError(ProjectionError):
    """It is no OpenLineage event, or over a limit; `field` is the path of the member that is wrong."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason
