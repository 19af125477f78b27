"""
Metadata files of tables as they lie in the lake: perhaps compressed, and written by somebody else.
"""

from __future__ import annotations

import zlib
from typing import Final

from projections.errors import FileUnreadableError

_GZIP: Final = b"\x1f\x8b"


def unpack_metadata(data: bytes, *, size_bytes_max: int) -> bytes:
    """
    Return what a metadata file says: `data`, or what gzip has made it of (property `write.metadata.compression-codec`).

    Raises:
        FileUnreadableError: if it is not what it seems, or has more than `size_bytes_max` bytes once unpacked.
    """
    if not data.startswith(_GZIP):
        return data
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacking.decompress(data, size_bytes_max + 1)
    except zlib.error as error:
        raise FileUnreadableError(f"metadata file: expected gzip: {error}") from error
    if len(unpacked) > size_bytes_max:
        raise FileUnreadableError(f"metadata file: expected at most {size_bytes_max} bytes, unpacked, found more")
    return unpacked
