# SPDX-License-Identifier: Apache-2.0
"""The page of the verifier: one file, the same for one version, with nothing of another place in it."""

from __future__ import annotations

import base64
import re
from hashlib import sha256

from gateway.console.verifier_page import MODULES, verifier_page
from testkit.environment import PROJECT

STATIC = PROJECT / "gateway" / "console" / "static"
PAGE_SIZE_BYTES_MAX = 60_000


def test_the_page_of_a_version_is_always_the_same_and_names_it() -> None:
    assert verifier_page("1.2.3") == verifier_page("1.2.3") != verifier_page("1.2.4")
    assert b"Version 1.2.3." in verifier_page("1.2.3")


def test_its_policy_permits_its_script_and_its_style_and_nothing_else() -> None:
    page = verifier_page("1.2.3").decode()
    (script,) = re.findall(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', page)
    hashes = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in (script, style)]
    assert policy.split("; ") == [
        "default-src 'none'",
        f"script-src 'sha256-{hashes[0]}'",
        f"style-src 'sha256-{hashes[1]}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert page.count("<script") == page.count("</script") == page.count("<style") == 1


def test_it_holds_every_module_whole_but_for_what_joins_them() -> None:
    page = verifier_page("1.2.3").decode()
    for name in MODULES:
        text = (STATIC / name).read_text(encoding="utf-8")
        for piece in re.split(r"^import [^;]*;\n", text, flags=re.MULTILINE):
            assert piece in page
    assert not re.search(r"^import\b", page, re.MULTILINE)
    assert "{{" not in page


def test_it_loads_nothing_and_is_small() -> None:
    page = verifier_page("1.2.3")
    assert not re.search(rb"""https?://|\bsrc=|\bhref=|@import|\burl\(|\bfetch\b|\bimport\(""", page)
    assert len(page) < PAGE_SIZE_BYTES_MAX


def test_modules_and_template_are_written_as_our_sources_are() -> None:
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "SPDX-License-Identifier: Apache-2.0" in text[:120], file.name
        assert max(map(len, text.splitlines())) <= 120, file.name
