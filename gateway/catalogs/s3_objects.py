# SPDX-License-Identifier: Apache-2.0
"""
Metadata files in a tenant's S3-compatible store: whole objects, read and written over the checked connections of
upstreams.

Not Arrow: a store that hangs must hold up neither a thread nor another tenant, and a write is bounded by the time of
one request. An object's name is never used twice, so a write that is sent again or arrives late does no harm.

Source: Amazon S3 API reference (GetObject, PutObject), with the bucket in the path.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from gateway.catalogs.onward import Onward
from gateway.catalogs.replies import Answered, Reply
from gateway.catalogs.upstreams import Upstream
from gateway.errors import BadRequestError, GatewayError, UnavailableError, UpstreamCredentialsError
from gateway.metadata.files import METADATA_SIZE_BYTES_MAX
from projections.errors import FileUnreadableError
from projections.lake.storage import split_location, unpack_metadata

_UNRESERVED: Final = "/-._~"
"""Characters of a key that are not percent-encoded (Amazon S3, Signature Version 4, canonical URI)."""


def object_url(store: str, location: str) -> str:
    """
    Return the URL of an object below the URL of its store.

    Raises:
        BadRequestError: if it is not on S3.
    """
    try:
        scheme, path = split_location(location)
    except FileUnreadableError as error:
        raise BadRequestError(str(error), field="metadata-location") from error
    if scheme != "s3":
        raise BadRequestError(f"expected a file on S3, found {location!r:.200}", field="metadata-location")
    return f"{store}/{quote(path, safe=_UNRESERVED)}"


async def read_metadata(store: Upstream, location: str, onward: Onward) -> bytes | None:
    """
    Return a metadata file as it is stored; None if there is none.

    Raises:
        UnavailableError: if the store does not answer; UpstreamNotAllowedError if the gateway may not connect to it.
        UpstreamCredentialsError: if it refuses the gateway's credentials, or there are none.
    """
    reply = await store.ask("GET", object_url(store.uri, location), onward)
    match reply:
        case Answered(status=200, body=body):
            return body
        case Answered(status=404):
            return None
        case _:
            raise _error(store, reply)


def unpacked(location: str, stored: bytes) -> bytes:
    """
    Return the JSON of a metadata file that was read.

    Raises:
        UnavailableError: if it is compressed and damaged, or too large.
    """
    try:
        return unpack_metadata(stored, size_bytes_max=METADATA_SIZE_BYTES_MAX)
    except FileUnreadableError as error:
        raise UnavailableError(f"{location}: {error}") from error


async def write_metadata(store: Upstream, location: str, data: bytes, onward: Onward) -> None:
    """
    Write a metadata file.

    Raises as `read_metadata`; nothing names the file then.
    """
    reply = await store.ask("PUT", object_url(store.uri, location), onward, body=data)
    if not isinstance(reply, Answered) or reply.status != 200:
        raise _error(store, reply)


def _error(store: Upstream, reply: Reply) -> GatewayError:
    if isinstance(reply, Answered) and reply.status in {401, 403}:
        return UpstreamCredentialsError(
            f"the store of catalog {store.alias} refuses the gateway's credentials ({reply.status}): check the keys, "
            "their rights, s3.region and this machine's clock"
        )
    return store.unavailable(reply)
