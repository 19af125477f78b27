# SPDX-License-Identifier: Apache-2.0
"""
What the settings say about anchoring the system log: its witnesses, a time-stamping authority, places to publish to.

What is configured and cannot be used is an error: without it, checkpoints would be published that no witness has
cosigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lakeproof.errors import SettingsError
from lakeproof.settings import Settings
from ledger.anchoring.archive import ArchiveError, BucketAccess, CheckpointArchive
from ledger.anchoring.archives import parse_archive
from ledger.anchoring.stamping import Authority
from ledger.anchoring.timestamp import parse_roots
from ledger.errors import LedgerError
from ledger.files.bounded_http import check_url
from ledger.format.witness_policy import WitnessPolicy
from ledger.witness.client import check_urls

FILE_SIZE_BYTES_MAX: Final = 1_000_000
PLACES_MAX: Final = 16
NOT_PUBLISHED: Final = (
    "nobody outside keeps a checkpoint of the logs, so setting back database and home together could not be noticed: "
    "set LAKEPROOF_PUBLISH_TO to a bucket under object lock, a git repository or a file that others collect, or "
    "LAKEPROOF_WITNESS_POLICY, or LAKEPROOF_TIME_STAMP_URL"
)


def load_policy(settings: Settings) -> WitnessPolicy | None:
    """
    Return the witness policy of the system log, or None if none is configured.

    Raises:
        SettingsError: if the file cannot be read, is no policy, or has a URL that cannot be requested. Nothing may be
            published without the policy.
    """
    if settings.witness_policy is None:
        return None
    try:
        policy = WitnessPolicy.parse(_read(settings.witness_policy, "LAKEPROOF_WITNESS_POLICY"))
        check_urls(policy)
    except LedgerError as error:
        raise SettingsError(f"LAKEPROOF_WITNESS_POLICY: {settings.witness_policy}: {error}: correct it") from error
    return policy


def load_authority(settings: Settings) -> Authority | None:
    """
    Return the time-stamping authority, or None if none is configured.

    Raises:
        SettingsError: if its URL cannot be requested, its roots are not given or cannot be read, or its policy is
            no object identifier.
    """
    if settings.time_stamp_url is None:
        return None
    if settings.time_stamp_roots is None:
        raise SettingsError(
            "LAKEPROOF_TIME_STAMP_URL is set without LAKEPROOF_TIME_STAMP_ROOTS: name the file with the root "
            "certificates of that authority, since a stamp that nobody can check is worth nothing"
        )
    try:
        check_url(settings.time_stamp_url)
    except LedgerError as error:
        raise SettingsError(f"LAKEPROOF_TIME_STAMP_URL: {error}: correct it") from error
    pem = _read(settings.time_stamp_roots, "LAKEPROOF_TIME_STAMP_ROOTS")
    try:
        return Authority(url=settings.time_stamp_url, roots=parse_roots(pem), policy=settings.time_stamp_policy)
    except LedgerError as error:
        raise SettingsError(f"the time-stamping authority of LAKEPROOF_TIME_STAMP_*: {error}: correct it") from error


def load_places(settings: Settings) -> Sequence[CheckpointArchive]:
    """
    Return the places that the settings name, perhaps none.

    Raises:
        SettingsError: if one of them is no place, is named twice, or they are too many.
    """
    access = bucket_access(settings)
    named = [text.strip() for text in (settings.publish_to or "").split(",") if text.strip()]
    try:
        places = [parse_archive(text, access) for text in named]
    except ArchiveError as error:
        raise SettingsError(f"LAKEPROOF_PUBLISH_TO: {error}") from error
    if len({place.where for place in places}) != len(places) or len(places) > PLACES_MAX:
        raise SettingsError(f"LAKEPROOF_PUBLISH_TO: expected at most {PLACES_MAX} places, each once")
    return places


def bucket_access(settings: Settings) -> BucketAccess:
    """
    Return how the buckets of this installation are reached.
    """
    return BucketAccess(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key_id=settings.s3_access_key_id,
        secret_access_key=settings.s3_secret_access_key,
    )


def is_published_outside(settings: Settings) -> bool:
    """
    Return whether the settings publish the checkpoints of the system log to anybody outside.
    """
    return any((settings.publish_to, settings.witness_policy, settings.time_stamp_url))


def _read(path: Path, variable: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}): correct {variable}") from error
    if len(data) > FILE_SIZE_BYTES_MAX:
        raise SettingsError(f"{path} is over {FILE_SIZE_BYTES_MAX} bytes: correct {variable}")
    return data
