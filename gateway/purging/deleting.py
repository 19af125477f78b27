# SPDX-License-Identifier: Apache-2.0
"""
Deletes files of tables, on this machine or in an object store.

A file of this machine is reached from its catalog's folder, one folder after the other, none of them a link: whoever
can write into a table's folder could put a link there that leads to another table's, also while a purge is at work.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

from gateway.purging.own_files import OwnFile
from projections.errors import FileMissingError, FileUnreadableError, StorageUnavailableError
from projections.lake.storage import Storage, classify_error

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LINK_IN_THE_WAY: Final = frozenset({errno.ELOOP, errno.ENOTDIR})
_NO_FILE: Final = frozenset({errno.EISDIR, errno.EPERM})
"""What systems say of a folder that is to be unlinked."""


class Deletion(StrEnum):
    """What became of a file that was to be deleted."""

    DELETED = "deleted"
    MISSING = "missing"
    KEPT = "kept"


class FileDeleter:
    """Deletes files; `storage` opens object stores. Everything blocks."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def delete(self, file: OwnFile) -> tuple[Deletion, int | None]:
        """
        Delete a file; return what became of it, and its size in bytes (None: the storage does not tell).

        A file is kept if a link is on the way to it, or it is a folder.

        Raises:
            StorageUnavailableError: if the storage does not answer, or does not permit it.
        """
        try:
            return self._delete_object(file.location) if file.root is None else _delete_local(file.root, file.segments)
        except FileMissingError:
            return Deletion.MISSING, None
        except FileUnreadableError:
            return Deletion.KEPT, None  # a storage of a kind that is not known here
        except OSError as error:
            raise StorageUnavailableError(f"{file.location}: cannot be deleted: {error}") from error

    def _delete_object(self, location: str) -> tuple[Deletion, int | None]:
        from pyarrow import ArrowException
        from pyarrow.fs import FileType

        filesystem, path = self._storage.filesystem(location)
        try:
            info = filesystem.get_file_info(path)
            if info.type == FileType.NotFound:
                return Deletion.MISSING, None
            if info.type != FileType.File:
                return Deletion.KEPT, None
            filesystem.delete_file(path)
        except (OSError, ArrowException) as error:
            found = classify_error(location, error)
            if isinstance(found, FileMissingError):
                raise found from error
            raise StorageUnavailableError(str(found)) from error  # what is not permitted now may be another time
        return Deletion.DELETED, info.size


def _delete_local(root: Path, segments: tuple[str, ...]) -> tuple[Deletion, int | None]:
    *folders, name = segments
    try:
        with _folder(root, folders) as descriptor:
            size_bytes = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
            os.unlink(name, dir_fd=descriptor)  # of a link the link alone
    except FileNotFoundError:
        return Deletion.MISSING, None
    except OSError as error:
        if error.errno in _LINK_IN_THE_WAY | _NO_FILE and _is_no_file(root, segments):
            return Deletion.KEPT, None
        raise
    return Deletion.DELETED, size_bytes


def _is_no_file(root: Path, segments: tuple[str, ...]) -> bool:
    """Return whether a link or another file is in the way, or there is a folder: not that deleting is forbidden."""
    path = root.joinpath(*segments)
    return path.is_dir() or any(folder.is_symlink() or not folder.is_dir() for folder in _line(root, segments[:-1]))


def _line(root: Path, folders: tuple[str, ...]) -> list[Path]:
    return [root.joinpath(*folders[:length]) for length in range(1, len(folders) + 1)]


@contextmanager
def _folder(root: Path, names: list[str]) -> Iterator[int]:
    """Yield a descriptor of a folder below `root`, which the operator may have made a link."""
    descriptor = os.open(root, _FOLDER)
    try:
        for name in names:
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)
