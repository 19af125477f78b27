# SPDX-License-Identifier: Apache-2.0
"""
What docs/engines.md tells an engine's user to configure, taken from the page, so that a test runs what the page says.

The page speaks of one catalog, `lake`, at one address; a test puts its own in their places.
"""

from __future__ import annotations

import re
from typing import Final

from testkit.system.documents import blocks_of

PAGE: Final = "docs/engines.md"
URL: Final = "http://127.0.0.1:8181"
ALIAS: Final = "lake"
KEY: Final = "KEY"


def configuration(engine: str, language: str, *, url: str = URL, alias: str = ALIAS, key: str = KEY) -> str:
    """Return the one block in `language` of an engine's section, for the catalog `alias` of the gateway at `url`."""
    ((_, text),) = blocks_of(PAGE, language, section=engine)
    for old, new in {rf"{re.escape(URL)}": url, rf"\b{ALIAS}\b": alias, rf"\b{KEY}\b": key}.items():
        text = re.sub(old, new, text)
    return text
