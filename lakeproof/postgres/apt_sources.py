# SPDX-License-Identifier: Apache-2.0
"""
The sources that apt takes packages from on this machine, without the options that allow unsigned packages.

A source can be marked `trusted=yes` or `allow-insecure=yes`, and apt's own settings can allow the same for all sources.
Then apt installs unsigned packages. What is fetched here becomes part of a database server. So each source is written
again for a configuration of our own, with its addresses and its keys alone, and every option that is not known here is
left out: a signature is required whatever the machine allows.

Formats: sources.list(5), the one-line style and deb822.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakeproof.errors import AgeError

_ONE_LINE: Final = re.compile(
    r"deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>[^#]*)"
)
_LAX: Final = frozenset({"trusted", "allow-insecure", "allow-weak", "allow-downgrade-to-insecure"})
_NO: Final = frozenset({"no", "false", "without", "off", "disable"})
_FILE_SIZE_MAX: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    One entry of apt's sources for binary packages.

    `signed_by` is as it stands there: paths of keyrings, fingerprints, or a whole key; empty for apt's trusted keys.
    `is_lax` says that the machine would take its packages without a signature.
    """

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str
    is_lax: bool

    def stanza(self) -> str:
        """
        Return the entry in deb822 style, without any option that weakens it.

        Raises:
            AgeError: if a keyring that it names can be changed by other users of this machine.
        """
        lines = ["Types: deb", f"URIs: {' '.join(self.uris)}", f"Suites: {' '.join(self.suites)}"]
        if self.components:
            lines.append(f"Components: {' '.join(self.components)}")
        if self.signed_by:
            _check_keyrings(self.signed_by, self.uris[0])
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"


def read_sources(main: Path, parts: Path) -> list[Source]:
    """
    Return what `main` (sources.list) and the files of `parts` (sources.list.d) hold, disabled entries left out.

    Raises:
        AgeError: if a file cannot be read.
    """
    sources: list[Source] = []
    try:
        files = [main, *(sorted(parts.iterdir()) if parts.is_dir() else ())]
        for file in files:
            if not file.is_file() or file.stat().st_size > _FILE_SIZE_MAX:
                continue
            text = file.read_text("utf-8", "replace")
            if file == main or file.suffix == ".list":
                sources += _one_line_style(text)
            elif file.suffix == ".sources":
                sources += _deb822_style(text)
    except OSError as error:
        raise AgeError(f"apt's sources cannot be read ({error}): make them readable") from error
    return sources


def _one_line_style(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match is None:
            continue
        pairs = (option.partition("=") for option in (match["options"] or "").split())
        options = {name.lower().rstrip("+-"): value for name, _, value in pairs}
        yield Source(
            uris=(match["uri"],),
            suites=(match["suite"],),
            components=tuple(match["components"].split()),
            signed_by=options.get("signed-by", "").replace(",", " "),
            is_lax=any(name in _LAX and value.lower() not in _NO for name, value in options.items()),
        )


def _deb822_style(text: str) -> Iterator[Source]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n(?:[ \t]*\n)+", "\n".join(lines)):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1].isspace():
                fields[name] = f"{fields.get(name, '')}\n{line}"
            else:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        words = {name: tuple(value.split()) for name, value in fields.items()}
        if "deb" not in words.get("types", ()) or not words.get("uris") or not words.get("suites"):
            continue
        if fields.get("enabled", "yes").lower() in _NO:
            continue
        yield Source(
            uris=words["uris"],
            suites=words["suites"],
            components=words.get("components", ()),
            signed_by=fields.get("signed-by", ""),
            is_lax=any(name in fields and fields[name].lower() not in _NO for name in _LAX),
        )


def _check_keyrings(signed_by: str, uri: str) -> None:
    """Check that nobody but root can change the keys that decide; a whole key and a fingerprint stand in the source."""
    for word in signed_by.split():
        if not word.startswith("/"):
            continue
        try:
            found = Path(word).stat()
        except OSError as error:
            raise AgeError(f"the keyring {word} of the apt source {uri} cannot be read ({error.strerror})") from error
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise AgeError(
                f"the keyring {word} of the apt source {uri} can be changed by others: run chmod go-w {word}"
            )
