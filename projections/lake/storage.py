"""
Opens the files that locations name, as a catalog's options say: local files, and S3 or what speaks like it.

Properties carry PyIceberg's names (`s3.endpoint`, `s3.region`, …), so that the same ones open a file here, through
PyIceberg, and in another process. Whether a file is missing, or its storage does not answer, is told apart: the one is
for ever, the other is tried again.

Locations come from tenants: from what they commit, and from manifests they wrote. So a storage opens nothing outside
the folder `within`, and one that a tenant's options describe never uses this installation's credentials or files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow.fs as pafs
from pyarrow import ArrowException

from projections.errors import FileMissingError, FileUnreadableError, StorageUnavailableError
from projections.lake.secrets import REFERENCE

S3_PROPERTIES: Final = (
    "s3.endpoint",
    "s3.region",
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
)
S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
NOWHERE: Final = "s3://nowhere/"
"""Of a catalog elsewhere that does not say where its files are, none is opened."""
CONNECT_TIMEOUT_S: Final = 5
REQUEST_TIMEOUT_S: Final = 30
ATTEMPTS: Final = 2
"""More would only take longer to say that a store is away: whoever reads tries again, with pauses of its own."""
FILESYSTEMS_CACHED: Final = 128


class Secrets(Protocol):
    """Where secrets are kept (see `projections.lake.secrets.SecretDirectory`)."""

    def read(self, tenant: UUID, secret: str) -> str:
        """Return the tenant's secret of that id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """
    How the files of one catalog are opened: none outside the folder `within` (None: any). Printed, it shows no secret.
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    within: str | None = None

    @classmethod
    def elsewhere(cls, options: Mapping[str, str], *, tenant: UUID, secrets: Secrets) -> Storage:
        """
        Return the storage of a catalog that is elsewhere, as its `options` tell.

        Its files are below its option `location`, never on this machine's disk, and without keys of its own it is asked
        without any.

        Raises:
            SecretMissingError: if a secret that is named is not there.
        """
        own = {name: value for name, value in options.items() if name in S3_PROPERTIES}
        for name, value in own.items():
            if value.startswith(REFERENCE):
                own[name] = secrets.read(tenant, value.removeprefix(REFERENCE))
        if "s3.access-key-id" not in own:
            own["s3.anonymous"] = "true"
        location = options.get("location", "")
        return cls(properties=own, within=location if location.partition("://")[0] in S3_SCHEMES else NOWHERE)

    def filesystem(self, location: str) -> tuple[pafs.FileSystem, str]:
        """
        Return the file system that holds `location`, and the path on it.

        Raises:
            FileUnreadableError: if the location is of no kind that is known here, or outside the folder `within`.
        """
        scheme, path = split_location(location)
        if self.within is not None:
            _check_within(location, path, scheme, self.within)
        if scheme == "s3":
            return _s3(tuple(sorted(self.properties.items()))), path
        return _local(), path

    def read_bytes(self, location: str, *, size_bytes_max: int) -> bytes:
        """
        Return the whole file; blocks.

        Raises:
            FileMissingError: if there is no such file.
            FileUnreadableError: if it is larger, or may not be read.
            StorageUnavailableError: if the storage does not answer: another time it may.
        """
        filesystem, path = self.filesystem(location)
        try:
            with filesystem.open_input_file(path) as stream:
                if (size_bytes := stream.size()) > size_bytes_max:
                    raise FileUnreadableError(
                        f"{location}: expected at most {size_bytes_max} bytes, found {size_bytes}"
                    )
                return bytes(stream.read(size_bytes_max))
        except (OSError, ArrowException) as error:
            raise explain(location, error) from error


def explain(
    location: str, error: OSError | ArrowException
) -> FileMissingError | FileUnreadableError | StorageUnavailableError:
    """
    Return what went wrong with `location`, by what the file system says.

    Whatever is not certainly the file's own fault is called the storage's: it is tried again, not given up.
    """
    text = " ".join(str(error).split())[:300]
    if isinstance(error, FileNotFoundError | NotADirectoryError) or "NO_SUCH_BUCKET" in text:
        return FileMissingError(f"{location}: expected a file, found none")
    if isinstance(error, PermissionError | IsADirectoryError) or "ACCESS_DENIED" in text or "is a directory" in text:
        return FileUnreadableError(f"{location}: expected a file that may be read: {text}")
    return StorageUnavailableError(f"{location}: the storage does not answer: {text}")


def split_location(location: str) -> tuple[str, str]:
    """
    Return ("s3", bucket/key) or ("file", absolute path), as engines read locations: percent signs stand for themselves.

    Raises:
        FileUnreadableError: if it is of no kind that is known here.
    """
    scheme, separator, rest = location.partition("://")
    if separator and scheme in S3_SCHEMES and rest.strip("/"):
        return "s3", rest
    path = urlsplit(location).path if scheme == "file" else location.removeprefix("file:")
    if (scheme == "file" or not separator) and path.startswith("/") and "\0" not in path:
        return "file", path
    raise FileUnreadableError(f"{location}: expected a location that begins with file: or s3:")


def _check_within(location: str, path: str, scheme: str, within: str) -> None:
    kind, folder = split_location(within)
    if scheme == "file":
        # A link that leads out of the folder is outside: the path is judged as the system will follow it.
        path, folder = str(Path(path).resolve()), str(Path(folder).resolve())
    if kind != scheme or not path.startswith(f"{folder.rstrip('/')}/") or ".." in path.split("/"):
        raise FileUnreadableError(f"{location}: expected a file below {within}, where this catalog's files are")


@lru_cache(maxsize=1)
def _local() -> pafs.FileSystem:
    return pafs.LocalFileSystem()


@lru_cache(maxsize=FILESYSTEMS_CACHED)
def _s3(properties: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    """A file system holds its connections: one for each way to reach an object store, in each process."""
    known = dict(properties)
    endpoint = known.get("s3.endpoint")
    return pafs.S3FileSystem(
        access_key=known.get("s3.access-key-id"),
        secret_key=known.get("s3.secret-access-key"),
        session_token=known.get("s3.session-token"),
        anonymous=known.get("s3.anonymous") == "true",
        region=known.get("s3.region"),
        endpoint_override=endpoint,
        connect_timeout=float(known.get("s3.connect-timeout", CONNECT_TIMEOUT_S)),
        request_timeout=float(known.get("s3.request-timeout", REQUEST_TIMEOUT_S)),
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )
