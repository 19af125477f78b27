# SPDX-License-Identifier: Apache-2.0
"""
Values as Apache AGE writes and reads them: JSON, in which vertices, edges and paths have a type suffix. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

from ledger.errors import FormatError
from ledger.format.canonical import Json
from projections.entries import encode_json

_STRING_OR_SUFFIX: Final = re.compile(r'"(?:[^"\\]|\\.)*"|::[a-z]+')


def agtype(value: Json) -> str:
    """
    Return `value` as agtype text. AGE reads JSON as agtype, since a type suffix is only ever outside of a string.
    """
    return encode_json(value)


def parse_agtype(text: str | None) -> Json:
    """
    Return the value that AGE writes as `text`, without the type suffixes of vertices, edges and paths; NULL is None.

    Raises:
        FormatError: if `text` is not JSON with type suffixes.
    """
    if text is None:
        return None
    bare = _STRING_OR_SUFFIX.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
    try:
        return cast("Json", json.loads(bare))
    except (ValueError, RecursionError) as error:
        raise FormatError("agtype", expected="JSON with type suffixes", found=text) from error
