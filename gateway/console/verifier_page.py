# SPDX-License-Identifier: Apache-2.0
"""
The verifier for an auditor's own browser: one HTML file with all of its script, which works from a disk.

A verifier that is loaded from the party to be checked proves little: that party may change it for one visit. So it is a
file to keep. Its bytes depend on the version alone, and their SHA-256 is in the system log (`verifier.published`).

Guarantee: the page runs the scripts of `static/` and no other, and connects to nothing, because its content policy (CSP
Level 3) permits exactly the script and the style with these hashes.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

MODULES: Final = ("proof.mjs", "evidence.mjs", "verifier.mjs")
"""The scripts, each before those that import it."""

_STATIC: Final = files(__package__) / "static"
_IMPORT: Final = re.compile(r"^import \{[^}]*\} from '\./(?:proof|evidence)\.mjs';\n", re.MULTILINE)
_PLACE: Final = re.compile(r"\{\{ (\w+) \}\}")


@cache
def verifier_page(version: str) -> bytes:
    """
    Return the page of this version of Lakeproof.

    The modules become one: a browser loads no module from a disk, so their imports of each other are left out.
    """
    script = "".join(_IMPORT.sub("", _read(name)) for name in MODULES)
    style = _read("verifier.css")
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    content = {"policy": policy, "script": script, "style": style, "version": version}
    return _PLACE.sub(lambda place: content[place[1]], _read("verifier.html")).encode()


def _source(text: str) -> str:
    """Return what names an inline script or style in a content policy (CSP Level 3, section 2.3.1, `hash-source`)."""
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")
