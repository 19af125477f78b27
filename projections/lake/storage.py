# SPDX-License-Identifier: Apache-2.0
"""
Opens the files that locations name, as a catalog's options say: local files, and S3-compatible stores.

Properties have PyIceberg's names (`s3.endpoint`, `s3.region`, …), so the same ones open a file here, through PyIceberg,
and in another process. A missing file is final; storage that does not answer is tried again, so errors say which it is.

Locations come from tenants: from what they commit, and from manifests that they wrote. So a storage opens nothing
outside the folders `within`. A storage that a tenant's options describe never uses this installation's credentials or
files, and connects only to its own endpoint, and only if the operator's rules allow it (`projections/egress`).

Arrow is imported when a file is opened: with NumPy it takes a tenth of a command's start, and most commands open none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit
from uuid import UUID

from projections.egress.connecting import checked_addresses
from projections.egress.proxy import LOOPBACK, Destination, proxy_for
from projections.egress.rules import EgressRules
from projections.errors import (
    AddressRefusedError,
    FileMissingError,
    FileUnreadableError,
    NameUnresolvedError,
    StorageUnavailableError,
)
from projections.lake.secrets import REFERENCE

if TYPE_CHECKING:
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

S3_PROPERTIES: Final = (
    "s3.endpoint",
    "s3.region",
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
)
"""
All that a tenant's options say about how its files are opened. What else a library would take (a class to load, a
proxy, another store) is in no list, and so has no effect.
"""
S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
NOWHERE: Final = "s3://nowhere/"
"""The folder of a foreign catalog that does not say where its files are: none is opened."""
REGION_DEFAULT: Final = "us-east-1"
"""For a foreign catalog that names none: otherwise Amazon's library takes one from this machine's environment."""
AMAZON: Final = tuple(
    Destination(host=host, port=443, below=True) for host in ("amazonaws.com", "amazonaws.com.cn", "api.aws")
)
"""Where files are if the options name no endpoint."""
CONNECT_TIMEOUT_S: Final = 5
REQUEST_TIMEOUT_S: Final = 30
ATTEMPTS: Final = 2
"""More would only delay the error: readers try again, with pauses of their own."""
FILESYSTEMS_CACHED: Final = 128
_GZIP_MAGIC: Final = b"\x1f\x8b"


class SecretStore(Protocol):
    """Where secrets are kept (see `projections.lake.secrets.SecretDirectory`)."""

    def read(self, tenant: UUID, secret: str) -> str:
        """Return the tenant's secret of that id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """
    How the files of one catalog are opened: none outside the folders `within` (None: any), and by connections that
    `egress` allows (None: the operator has named the endpoint himself). Printed, it shows no secret.
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    within: tuple[str, ...] | None = None
    egress: EgressRules | None = None

    @classmethod
    def of_foreign_catalog(
        cls, options: Mapping[str, str], *, tenant: UUID, secrets: SecretStore, egress: EgressRules
    ) -> Storage:
        """
        Return the storage of a foreign catalog, as its `options` describe it.

        Its files are below its option `location`, never on this machine's disk. Without keys in its options, requests
        are anonymous. Connections are made where `egress` allows.

        Raises:
            SecretMissingError: if a secret that is named is not there.
        """
        own = {name: value for name, value in options.items() if name in S3_PROPERTIES}
        for name, value in own.items():
            if value.startswith(REFERENCE):
                own[name] = secrets.read(tenant, value.removeprefix(REFERENCE))
        if "s3.access-key-id" not in own:
            own["s3.anonymous"] = "true"
        own.setdefault("s3.region", REGION_DEFAULT)
        location = options.get("location", "")
        within = location if location.partition("://")[0] in S3_SCHEMES else NOWHERE
        return cls(properties=own, within=(within,), egress=egress)

    def filesystem(self, location: str) -> tuple[FileSystem, str]:
        """
        Return the file system that holds `location`, and the path on it.

        Raises:
            FileUnreadableError: if the location is of no kind that is known here, or outside the folders `within`, or
                its endpoint is not one that `egress` allows.
            StorageUnavailableError: if its endpoint has no address now.
        """
        scheme, path = split_location(location)
        if self.within is not None:
            _check_within(location, path, scheme, self.within)
        if scheme == "s3":
            return _s3(tuple(sorted(self.properties.items())), self._proxy(location)), path
        return _local(), path

    def _proxy(self, location: str) -> _Proxy | None:
        """
        Return the proxy that Arrow's S3 client has to connect through; None if it may connect by itself.

        The endpoint is checked here to say what is wrong with it, and by the proxy at each connection.
        """
        if self.egress is None:
            return None
        endpoint = self.properties.get("s3.endpoint")
        proxy = proxy_for(self.egress)
        if endpoint is None:
            return _Proxy(port=proxy.port, token=proxy.token(*AMAZON))
        try:
            destination = Destination.of_url(endpoint)
            checked_addresses(self.egress, destination.host, destination.port)
        except NameUnresolvedError as error:
            raise StorageUnavailableError(f"{location}: s3.endpoint: {error}") from error
        except (AddressRefusedError, ValueError) as error:
            raise FileUnreadableError(f"{location}: s3.endpoint: {error}") from error
        return _Proxy(port=proxy.port, token=proxy.token(destination))

    def read_bytes(self, location: str, *, size_bytes_max: int) -> bytes:
        """
        Return the whole file; blocks.

        Raises:
            FileMissingError: if there is no such file.
            FileUnreadableError: if it is larger, or may not be read.
            StorageUnavailableError: if the storage does not answer: another time it may.
        """
        from pyarrow import ArrowException

        filesystem, path = self.filesystem(location)
        try:
            with filesystem.open_input_file(path) as stream:
                if (size_bytes := stream.size()) > size_bytes_max:
                    raise FileUnreadableError(
                        f"{location}: expected at most {size_bytes_max} bytes, found {size_bytes}"
                    )
                return bytes(stream.read(size_bytes_max))
        except (OSError, ArrowException) as error:
            raise classify_error(location, error) from error


def classify_error(
    location: str, error: OSError | ArrowException
) -> FileMissingError | FileUnreadableError | StorageUnavailableError:
    """
    Return the error for `location` that the file system's error stands for.

    Unless the file itself is certainly at fault, the storage is: that is tried again.
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


def nearest_catalog(folders: Iterable[tuple[str, str]], location: str) -> str | None:
    """
    Return the alias (of alias and folder) whose folder is the longest that holds `location`, at a path boundary; None
    if none does.

    Folders of catalogs may be nested. The most specific one decides, so a table belongs to the same catalog whether S3,
    a callback or an observation reported the file. If several aliases have the same folder, the first one wins.
    """
    kind, path = _split_or_none(location) or ("", "")
    found: tuple[int, str] | None = None
    for alias, text in sorted(folders):
        folder = _split_or_none(text)
        if folder is None or folder[0] != kind or not path.startswith(f"{folder[1].rstrip('/')}/"):
            continue
        length = len(folder[1].rstrip("/"))
        if found is None or length > found[0]:
            found = length, alias
    return None if found is None else found[1]


def unpack_metadata(data: bytes, *, size_bytes_max: int) -> bytes:
    """
    Return the JSON of a metadata file: `data`, decompressed if it is gzip (`write.metadata.compression-codec`).

    Raises:
        FileUnreadableError: if it is damaged, or has more than `size_bytes_max` bytes once unpacked.
    """
    if not data.startswith(_GZIP_MAGIC):
        return data
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacking.decompress(data, size_bytes_max + 1)
    except zlib.error as error:
        raise FileUnreadableError(f"metadata file: expected gzip: {error}") from error
    if len(unpacked) > size_bytes_max:
        raise FileUnreadableError(f"metadata file: expected at most {size_bytes_max} bytes, unpacked, found more")
    return unpacked


def _split_or_none(location: str) -> tuple[str, str] | None:
    try:
        return split_location(location)
    except FileUnreadableError:
        return None


def _check_within(location: str, path: str, scheme: str, within: Sequence[str]) -> None:
    if not any(_is_within(path, scheme, folder) for folder in within):
        raise FileUnreadableError(
            f"{location}: expected a file below {' or '.join(within)}, where this catalog's files are"
        )


def _is_within(path: str, scheme: str, within: str) -> bool:
    kind, folder = split_location(within)
    if scheme == "file":
        # A link that leads out of the folder is outside: the path is judged as the system will follow it.
        path, folder = str(Path(path).resolve()), str(Path(folder).resolve())
    return kind == scheme and path.startswith(f"{folder.rstrip('/')}/") and ".." not in path.split("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proxy:
    port: int
    token: str = field(repr=False)


@lru_cache(maxsize=1)
def _local() -> FileSystem:
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem()


@lru_cache(maxsize=FILESYSTEMS_CACHED)
def _s3(properties: tuple[tuple[str, str], ...], proxy: _Proxy | None) -> FileSystem:
    """A file system holds its connections: one for each way to reach an object store, in each process."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    known = dict(properties)
    endpoint = known.get("s3.endpoint")
    return S3FileSystem(
        access_key=known.get("s3.access-key-id"),
        secret_key=known.get("s3.secret-access-key"),
        session_token=known.get("s3.session-token"),
        anonymous=known.get("s3.anonymous") == "true",
        region=known.get("s3.region"),
        endpoint_override=endpoint,
        proxy_options=None
        if proxy is None
        else {"scheme": "http", "host": LOOPBACK, "port": proxy.port, "username": proxy.token, "password": ""},
        connect_timeout=float(known.get("s3.connect-timeout", CONNECT_TIMEOUT_S)),
        request_timeout=float(known.get("s3.request-timeout", REQUEST_TIMEOUT_S)),
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )
