# SPDX-License-Identifier: Apache-2.0
"""
Manifest lists and manifests that were read already, as PyIceberg takes them; and what it raises on bytes that are none.

Whoever reads them takes their bytes from a tenant's `Storage`: PyIceberg's own files and its cache know no tenants.
"""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Final, NoReturn

from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile

MANIFEST_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
"""The largest manifest list or manifest that is read."""

UNDECODABLE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    ResolveError,
    SystemError,
    TypeError,
    ValueError,
    zlib.error,
)
"""
What PyIceberg's Avro reader raises on bytes that are no manifest: it has no error of its own for that, and its compiled
half asks for a negative or a boundless number of bytes.
"""


class FileInMemory(InputFile):
    """A file of which `data` is all that there is."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's signature
        return BytesIO(self._data)


class StorageInMemory(FileIO):
    """A storage of that one file, which cannot be changed."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__()
        self._file = FileInMemory(location, data)

    def new_input(self, location: str) -> InputFile:  # noqa: ARG002 - there is no other
        return self._file

    def new_output(self, location: str) -> OutputFile:
        _refuse(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        _refuse(location)


def _refuse(location: object) -> NoReturn:
    raise NotImplementedError(f"manifests are only read, and {location} was to be changed")
