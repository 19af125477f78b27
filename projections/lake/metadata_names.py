# SPDX-License-Identifier: Apache-2.0
"""
What the name of a metadata file says of the decision that made it. Pure.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

METADATA_ENDING: Final = ".metadata.json"
_UUID_LENGTH: Final = 36


def decision_of_file(location: str) -> str | None:
    """
    Return the decision that a metadata file is named after (`00003-<decision>.metadata.json`), if it is one of a
    decision; None if it cannot be.
    """
    text = location.rpartition("/")[2].removesuffix(METADATA_ENDING)[-_UUID_LENGTH:]
    try:
        return text if str(UUID(text)) == text else None
    except ValueError:
        return None
