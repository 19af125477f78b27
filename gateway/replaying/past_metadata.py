# SPDX-License-Identifier: Apache-2.0
"""
Reads the metadata that decisions were judged on, wherever it is.

Guarantee: what is returned has the digest that the log names. Files of built-in catalogs are opened with the
installation's own keys; those of a foreign catalog only through the tenant's catalog of that alias, as it is registered
now, with its options and below its location. What a foreign catalog has answered is compared with what it answers now,
once for each table, and with the file at its location.

A foreign catalog that does not answer makes its tables unknown and stops nothing: it is asked no more in the same
replay. An object store of the installation that does not answer stops the replay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID

from gateway.catalogs.catalog import ChangedBy, Forwards
from gateway.catalogs.judged_metadata import DigestOf, JudgedMetadata
from gateway.catalogs.registry import Adapter
from gateway.commit.gateway import Gateway
from gateway.control.plane import ControlState
from gateway.errors import GatewayError, UnavailableError, UpstreamCredentialsError
from gateway.identifiers import Target
from gateway.metadata.draft import TableMetadata
from gateway.metadata.files import MetadataFiles
from gateway.replaying.recorded import File

READS_AT_ONCE: Final = 2
"""Of one foreign catalog: its engines need it, too."""

FindCatalog: TypeAlias = Callable[[str], Adapter]
"""Returns the tenant's catalog behind an alias; raises GatewayError if there is none (any more)."""
Wanted: TypeAlias = tuple[File, Target]
"""Metadata of the past, and the table or view that it is of."""

_log = logging.getLogger(__name__)


async def past_metadata(gateway: Gateway, tenant: UUID, log_id: int) -> PastMetadata:
    """
    Return what reads the metadata of a tenant, with its catalogs as they are registered now.

    Raises:
        UnavailableError: if these cannot be read.
    """
    return past_metadata_in(gateway, tenant, await gateway.control.current(log_id))


def past_metadata_in(gateway: Gateway, tenant: UUID, state: ControlState) -> PastMetadata:
    """
    Return the same for whoever has what is in force now already.
    """
    return PastMetadata(gateway.catalogs.files, partial(gateway.catalog, tenant, state))


@dataclass(slots=True, eq=False)
class PastMetadata:
    """The metadata of one tenant, for one replay. Event loop only."""

    files: MetadataFiles
    find_catalog: FindCatalog
    _answered: dict[Target, JudgedMetadata | None] = field(default_factory=dict)
    """What foreign catalogs have now, of each target that was asked for."""
    _silent: set[str] = field(default_factory=set)
    """The aliases of foreign catalogs that do not answer, or are not there any more."""

    async def read(self, wanted: Sequence[Wanted]) -> list[TableMetadata | None]:
        """
        Return the metadata of each; None for one that is not there any more, or cannot be read.

        Raises:
            UnavailableError: if the installation's own object store does not answer.
        """
        own = [file for file, _ in wanted if file.of is None]
        foreign = [each for each in wanted if each[0].of is not None]
        found: dict[str | None, TableMetadata | None] = {}
        if own:
            read = await self.files.read_old([(file.location, str(file.sha256)) for file in own])
            found.update(zip((file.sha256 for file in own), read, strict=True))
        if foreign:
            lanes = {alias: asyncio.Semaphore(READS_AT_ONCE) for alias in {target.alias for _, target in foreign}}
            reading = (self._read_foreign(lanes[target.alias], file, target) for file, target in foreign)
            read = await asyncio.gather(*reading)
            found.update(zip((file.sha256 for file, _ in foreign), read, strict=True))
        return [found[file.sha256] for file, _ in wanted]

    async def _read_foreign(self, lane: asyncio.Semaphore, file: File, target: Target) -> TableMetadata | None:
        async with lane:
            if target.alias in self._silent:
                return None
            try:
                catalog = self.find_catalog(target.alias)
            except GatewayError:
                self._silent.add(target.alias)
                return None
            if catalog.changed_by is ChangedBy.GUARD:
                return None  # the alias is another catalog's now
            try:
                return await self._read_from(catalog, _judged(file), target)
            except (UnavailableError, UpstreamCredentialsError) as error:
                _log.warning("what catalog %s had is not known: %s", target.alias, error)
                self._silent.add(target.alias)
            except GatewayError as error:
                _log.info("what %s was cannot be read: %s", target.path, error)
            return None

    async def _read_from(self, catalog: Forwards, judged: JudgedMetadata, target: Target) -> TableMetadata | None:
        if judged.of is DigestOf.ANSWER and self._answered.get(target, judged) == judged:
            loaded = await catalog.load(target)
            self._answered[target] = loaded.judged
            if loaded.judged == judged and isinstance(loaded.metadata, TableMetadata):
                return loaded.metadata
        return await catalog.read_judged(target, judged)


def _judged(file: File) -> JudgedMetadata:
    if file.of is None or file.sha256 is None:
        raise AssertionError("only what has a digest is wanted, and of a foreign catalog it says of what")
    return JudgedMetadata(location=file.location, of=file.of, sha256=file.sha256)
