# SPDX-License-Identifier: Apache-2.0
"""
What the processes of detection are given, in files: Spark shows its options in plans, logs and pages.

Two files of mode 0600 in one folder. `driver.json` holds the connection strings, for the driver's processes alone;
`lake.json` says how files are opened, for executors as well, and names the folder with the tenants' secrets. On a
cluster the folder and the secrets have to be where the executors see them under the same path, as a mounted secret is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import orjson

from ledger.errors import FormatError
from ledger.files.atomic import Forced, replace_file
from ledger.format.events import from_data, to_data
from ledger.format.json_object import parse_object
from projections.egress.rules import EgressRules
from projections.lake.secrets import SecretDirectory
from projections.lake.storage import Storage
from projections.relational.catalogs import CatalogRow, storage_of
from spark_detect.errors import DetectionError

DRIVER_FILE: Final = "driver.json"
LAKE_FILE: Final = "lake.json"
FILE_SIZE_BYTES_MAX: Final = 2**20

D = TypeVar("D")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """
    How files are opened: this installation's own warehouse and properties, where tenants' secrets are, and where files
    of their catalogs may be (`upstreams_allowed`, as `projections.egress.rules` spells it).
    """

    warehouse: str
    properties: Mapping[str, str] = field(repr=False)
    secrets: str
    upstreams_allowed: str

    def storage_of(self, catalog: CatalogRow) -> Storage:
        """
        Return how the files of a catalog are opened.

        Raises:
            SecretMissingError: if a secret that its options name is not there.
        """
        return storage_of(
            catalog,
            warehouse=self.warehouse,
            ours=self.properties,
            secrets=SecretDirectory(Path(self.secrets)),
            egress=EgressRules.parse(self.upstreams_allowed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the driver's processes work with: connection strings of the roles detector and appender, and Spark."""

    detector_dsn: str = field(repr=False)
    appender_dsn: str = field(repr=False)
    batch_bytes_max: int
    master: str
    java_home: str


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder with both files of one detection job."""

    folder: Path

    def write(self, driver: Driver, lake: Lake) -> None:
        """
        Write both files, each whole or not at all.

        Raises:
            DetectionError: if they cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name, content in ((DRIVER_FILE, driver), (LAKE_FILE, lake)):
                replace_file(self.folder / name, orjson.dumps(to_data(content)), forced=Forced.NOTHING)
        except OSError as error:
            raise DetectionError(f"{self.folder} cannot be written ({error.strerror}): make it writable") from error

    @property
    def spark(self) -> Path:
        """Where Spark writes what it needs for a while."""
        return self.folder / "spark"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint: it may be deleted whenever detection does not run."""
        return self.folder / "checkpoint"

    def clear(self) -> None:
        """Remove both files."""
        for name in (DRIVER_FILE, LAKE_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def driver(self) -> Driver:
        """
        Return what the driver's processes work with.

        Raises:
            DetectionError: if the file is not there, is none, or can be read by others.
        """
        return _read(self.folder / DRIVER_FILE, Driver)

    def lake(self) -> Lake:
        """
        Return how files are opened.

        Raises:
            DetectionError: as `driver`.
        """
        return _read(self.folder / LAKE_FILE, Lake)


def _read(path: Path, kind: type[D]) -> D:
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise DetectionError(
            f"{path} cannot be read ({error.strerror}): executors need it under the same path as the driver"
        ) from error
    if mode & 0o077:
        raise DetectionError(f"{path} can be read by others: run chmod 600 {path}")
    try:
        return from_data(kind, parse_object(data, what=path.name, size_bytes_max=FILE_SIZE_BYTES_MAX))
    except FormatError as error:
        raise DetectionError(f"{path}: expected what `lakeproof detect run` writes ({error})") from error
