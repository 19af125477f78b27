# SPDX-License-Identifier: Apache-2.0
"""
Metadata files of a foreign catalog: those that are to be registered are read here first, since what they say is judged,
and those on which a recorded decision was judged are read again.

They are opened as detection opens a foreign catalog's files (`projections/lake/storage.py`): below its option
`location`, on S3, with the endpoint and the keys that its options name, by connections that the operator's rules allow.
On this machine's disks they are read only below the `location` of a catalog to which the operator has given the option
`local-files`.

Reads block. They have threads of their own, few for each catalog, so that a storage that never answers holds up nothing
else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Final, TypeVar
from uuid import UUID

from gateway.catalogs.catalog import FoundFile
from gateway.catalogs.catalog_places import LOCATION
from gateway.catalogs.judged_metadata import JudgedMetadata, is_judged
from gateway.catalogs.login import Secrets
from gateway.catalogs.places import is_plain, location_path, parse_place
from gateway.catalogs.registered import REGISTERED, check_registered
from gateway.errors import BadRequestError, UnavailableError, UnsupportedOperationError, UpstreamCredentialsError
from gateway.metadata.draft import TableMetadata
from gateway.metadata.files import METADATA_SIZE_BYTES_MAX
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from projections.egress.rules import EgressRules
from projections.errors import (
    FileMissingError,
    FileUnreadableError,
    SecretMissingError,
    StorageUnavailableError,
)
from projections.lake.storage import S3_SCHEMES, Storage, unpack_metadata

LOCAL_FILES: Final = "local-files"
"""The option with which the operator lets the gateway read files of this machine below a foreign catalog's location."""
LOCAL_FILES_ALLOWED: Final = "allowed"
READS_MAX: Final = 16
"""Files that one process reads at a time."""
READS_OF_ONE_MAX: Final = 2
"""Of them, files of one catalog."""

R = TypeVar("R")

_log = logging.getLogger(__name__)


def reading_threads() -> Executor:
    """
    Return the threads in which a process reads such files; none is started before there is one.
    """
    return ThreadPoolExecutor(READS_MAX, thread_name_prefix="foreign-files")


@dataclass(slots=True, eq=False, kw_only=True)
class UpstreamFiles:
    """
    The files of one alias of one tenant: `options` are its catalog's, `threads` those of the process.

    The event loop owns it. `turns` bounds the reads under way, those among them for which nobody waits any more.
    """

    tenant: UUID
    alias: str
    options: Mapping[str, str]
    secrets: Secrets
    egress: EgressRules
    threads: Executor
    timeout_s: float
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_OF_ONE_MAX))

    @property
    def are_readable(self) -> bool:
        """Return whether the catalog's options let the gateway read any."""
        scheme = self.options.get(LOCATION, "").partition("://")[0]
        return scheme in S3_SCHEMES or self._are_local

    @property
    def _are_local(self) -> bool:
        is_allowed = self.options.get(LOCAL_FILES) == LOCAL_FILES_ALLOWED
        return is_allowed and self.options.get(LOCATION, "").startswith("file://")

    async def find(self, location: str, *, is_view: bool) -> FoundFile:
        """
        Return the metadata file at `location`, in which a table or view is described completely.

        Raises:
            UnsupportedOperationError: if the catalog's options let the gateway read none.
            BadRequestError: if there is no such file below the catalog's location, or it is no such metadata.
            UpstreamCredentialsError: if a secret that opens the storage is missing.
            UnavailableError: if the storage does not answer.
        """
        return await self._in_thread(location, partial(self._find, is_view=is_view))

    async def read_judged(self, judged: JudgedMetadata) -> TableMetadata | None:
        """
        Return metadata that was judged once, from its file; None if that has other contents now.

        Raises as `find`.
        """
        return await self._in_thread(judged.location, partial(self._read_judged, judged))

    async def _in_thread(self, location: str, read: Callable[[str], R]) -> R:
        """Have a file read, if the catalog's options let the gateway do that."""
        if not self.are_readable:
            raise UnsupportedOperationError(
                f"catalog {self.alias}: expected a catalog whose metadata files the gateway can read, since it judges "
                "what is registered: nothing was sent; add the catalog under another alias, with the options location "
                "(s3://…) and s3.*"
            )
        path = location_path(location, field=REGISTERED)
        parse_place(location, field=REGISTERED)
        if not is_plain(path.removeprefix("/")):
            raise BadRequestError(
                f"expected a plain location (no '..', no empty folder, no %, ?, # or \\), found {location!r:.200}",
                field=REGISTERED,
            )
        try:
            async with asyncio.timeout(self.timeout_s):
                await self.turns.acquire()
                reading = self.threads.submit(read, location)
                reading.add_done_callback(partial(self._end, asyncio.get_running_loop()))
                return await asyncio.wrap_future(reading)
        except TimeoutError as error:
            raise UnavailableError(
                f"the storage of catalog {self.alias} has not answered within {self.timeout_s:g} s, nothing was "
                "changed: try again"
            ) from error

    def _end(self, loop: asyncio.AbstractEventLoop, _reading: Future[R]) -> None:
        """Let the next one read, in whichever thread: perhaps long after nobody waits for this one any more."""
        with suppress(RuntimeError):  # the loop is closed, and nobody waits for anything
            loop.call_soon_threadsafe(self.turns.release)

    def _find(self, location: str, *, is_view: bool) -> FoundFile:
        """Read it and check what it says, in a thread."""
        stored, metadata = self._read(location)
        check_registered(metadata, is_view=is_view)
        return FoundFile(location=location, sha256=sha256(stored).hexdigest(), metadata=metadata)

    def _read_judged(self, judged: JudgedMetadata, location: str) -> TableMetadata | None:
        """Read it and compare, in a thread."""
        stored, metadata = self._read(location)
        return metadata if is_judged(judged, stored=stored, metadata=metadata) else None

    def _read(self, location: str) -> tuple[bytes, TableMetadata]:
        """Return the bytes of a file, and the metadata that they are."""
        try:
            stored = self._storage().read_bytes(location, size_bytes_max=METADATA_SIZE_BYTES_MAX)
            data = unpack_metadata(stored, size_bytes_max=METADATA_SIZE_BYTES_MAX)
            return stored, TableMetadata(parse_object(data, what="metadata file"))
        except SecretMissingError as error:
            raise UpstreamCredentialsError(
                f"the gateway has no credentials for the storage of catalog {self.alias}: a secret that its options "
                "name is not there"
            ) from error
        except StorageUnavailableError as error:
            _log.info("a file to register in catalog %s cannot be read: %s", self.alias, error)
            raise UnavailableError(
                f"the storage of catalog {self.alias} does not answer, nothing was changed: try again"
            ) from error
        except (FileMissingError, FileUnreadableError, FormatError) as error:
            # What there is instead is none of the caller's business.
            _log.info("a file to register in catalog %s cannot be read: %s", self.alias, error)
            raise BadRequestError(
                f"expected a metadata file below {self.options[LOCATION]} that the catalog's options open, found none "
                f"at {location!r:.200}",
                field=REGISTERED,
            ) from error

    def _storage(self) -> Storage:
        if self._are_local:
            return Storage(within=(self.options[LOCATION],))
        return Storage.of_foreign_catalog(self.options, tenant=self.tenant, secrets=self.secrets, egress=self.egress)
