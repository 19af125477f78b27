# SPDX-License-Identifier: Apache-2.0
"""
The options of a catalog of kind `glue`: where AWS Glue and the store of its tables are, and the keys for both. Pure.

Names are those of Apache Iceberg's own clients. The keys are named twice, since the store's are also those with which
detection and observation read files (`s3.*`, as for any foreign catalog).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from gateway.catalogs.login_options import (
    ACCESS_KEY_ID,
    ENABLED,
    MISSING_BOTOCORE,
    S3,
    SECRET_ACCESS_KEY,
    SIGNING_NAME,
    SIGNING_REGION,
    SIGV4,
)
from gateway.catalogs.urls import URI
from gateway.errors import BadRequestError

LOCATION: Final = "location"
GLUE_ENDPOINT: Final = "glue.endpoint"
GLUE_ID: Final = "glue.id"
GLUE: Final = "glue"
"""The name of AWS Glue in a signature, and what its options begin with."""
REQUIRED: Final = (
    LOCATION,
    *(f"{service}.{name}" for service in (GLUE, S3) for name in ("region", "access-key-id", "secret-access-key")),
)
GLUE_OPTIONS: Final = frozenset({*REQUIRED, GLUE_ENDPOINT, GLUE_ID, "s3.endpoint"})

_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ACCESS_KEY_ID = re.compile(r"[A-Za-z0-9_]{1,128}")
_CATALOG_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:/_.-]{0,254}")
"""The id of an AWS account, or of one of its catalogs (`<account>:s3tablescatalog/<bucket>`)."""


def check_glue_options(options: Mapping[str, str]) -> None:
    """
    Check the options of a catalog of kind `glue`, all URLs among them being plain ones and all secrets references.

    Raises:
        BadRequestError: if a required one is missing, or one is malformed.
    """
    for name in REQUIRED:
        if name not in options:
            raise _bad(name, "expected it for a catalog of kind glue, found none")
    for service in (GLUE, S3):
        region, key = options[f"{service}.region"], options[f"{service}.access-key-id"]
        if not _REGION.fullmatch(region):
            # It becomes part of a host name.
            raise _bad(f"{service}.region", f"expected a region as in eu-central-1, found {region!r:.80}")
        if not _ACCESS_KEY_ID.fullmatch(key):
            raise _bad(f"{service}.access-key-id", "expected 1 to 128 letters, digits and '_', found others")
    if GLUE_ID in options and not _CATALOG_ID.fullmatch(options[GLUE_ID]):
        raise _bad(GLUE_ID, f"expected the id of a Glue catalog, found {options[GLUE_ID]!r:.80}")
    if not options[LOCATION].startswith("s3://"):
        raise _bad(LOCATION, f"expected s3://bucket/…, where the gateway writes, found {options[LOCATION]!r:.80}")
    if find_spec("botocore") is None:
        raise _bad("glue.access-key-id", f"{MISSING_BOTOCORE}: pip install 'lakeproof[streams]'")


def login_options(options: Mapping[str, str], service: str) -> dict[str, str]:
    """
    Return the options with which the gateway reaches `service`, Glue or S3, as an upstream: its URL and signatures.
    """
    region = options[f"{service}.region"]
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return {
        URI: options.get(f"{service}.endpoint", f"https://{service}.{region}.{domain}"),
        SIGV4: ENABLED,
        SIGNING_NAME: service,
        SIGNING_REGION: region,
        ACCESS_KEY_ID: options[f"{service}.access-key-id"],
        SECRET_ACCESS_KEY: options[f"{service}.secret-access-key"],
    }


def _bad(name: str, text: str) -> BadRequestError:
    return BadRequestError(text, field=f"options.{name}")
