# SPDX-License-Identifier: Apache-2.0
"""
Confusable names: two names that a reader cannot tell apart, or that differ only by case, share a skeleton. Pure.

A skeleton of a name is the one that UTS 39 defines (section 4, data in `unicode/confusables.txt`), with the case
folded, too. A name has up to three, because shape and case cannot be folded in one order: a capital I looks like a
small l, and is the capital of a small i. The database calls them looks.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

import orjson

SKELETONS_VERSION: Final = "1/18.0.0"
"""Version of these rules and of Unicode's data. Skeletons that are stored with another version are computed again."""
DIGEST_SIZE_BYTES: Final = 16

_SPACES: Final = re.compile(r"\s+")
# Default_Ignorable_Code_Point: characters that are not shown.
_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def find_ignorable(text: str) -> str | None:
    """
    Return the first character of `text` that is not shown (Default_Ignorable_Code_Point), if any.
    """
    found = _IGNORABLE.search(text)
    return None if found is None else found[0]


def skeleton(text: str) -> str:
    """
    Return the skeleton of `text` (UTS 39, section 4): strings that look alike have the same one.
    """
    decomposed = _IGNORABLE.sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFD", decomposed.translate(_prototypes()))


@lru_cache(maxsize=4_096)
def skeletons(name: str) -> frozenset[str]:
    """
    Return the case-folded skeletons of `name`; two names are confusable if they share one.
    """
    text = _SPACES.sub(" ", unicodedata.normalize("NFKC", _IGNORABLE.sub("", name))).strip()
    readings = (
        skeleton(text),  # shape first, then case
        text,  # case first, then shape
        _spelled(text),  # letters of other scripts as the Latin ones that they look like, capitals as capitals
    )
    return frozenset(skeleton(unicodedata.normalize("NFKC", reading).casefold()) for reading in readings)


def skeleton_columns(*path: str) -> dict[str, object]:
    """
    Return the columns `looks` and `looks_version` of the row of the table or namespace at `path`.

    Each skeleton is stored as the first 16 bytes of the SHA-256 of a JSON list: the parent levels and the skeleton.
    Tables and namespaces of one parent share one set of values, because a path names at most one object.
    """
    *parent, name = path
    digests = (hashlib.sha256(orjson.dumps([*parent, each])).digest() for each in skeletons(name))
    return {"looks": sorted(digest[:DIGEST_SIZE_BYTES] for digest in digests), "looks_version": SKELETONS_VERSION}


def are_alike(one: str, other: str) -> bool:
    """
    Return whether two names are confusable.
    """
    return not skeletons(one).isdisjoint(skeletons(other))


def _spelled(text: str) -> str:
    """Letters of other scripts as the Latin ones they look like; a capital stroke is I, not the prototype l."""
    spelled = []
    for character in unicodedata.normalize("NFD", text):
        prototype = _prototypes().get(ord(character), character)
        if character.isascii() or not prototype.isascii():
            spelled.append(character)
        else:
            spelled.append("I" if prototype == "l" and character.isupper() else prototype)
    return "".join(spelled)


@cache
def _prototypes() -> Mapping[int, str]:
    """The prototype of each confusable character."""
    lines = files("gateway").joinpath("unicode", "confusables.txt").read_text(encoding="ascii").splitlines()
    prototypes: dict[int, str] = {}
    for line in lines:
        if line.startswith("#"):
            continue
        prototype, *alike = line.split()
        text = "".join(chr(int(point, 16)) for point in prototype.split("+"))
        prototypes |= {int(point, 16): text for point in alike}
    return prototypes
