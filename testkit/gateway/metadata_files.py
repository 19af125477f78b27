# SPDX-License-Identifier: Apache-2.0
"""
Writes a metadata file as a commit does: first what it will be, then the file.
"""

from __future__ import annotations

from typing import Any

from gateway.metadata.files import MetadataFiles, Written


async def write_file(files: MetadataFiles, location: str, metadata: dict[str, Any], *, within: str) -> Written:
    """Write a file and return what is known of it. Raises as `prepare_file` and `write`."""
    new = files.prepare_file(location, metadata)
    await files.write(new, metadata, within=within)
    return new
