# SPDX-License-Identifier: Apache-2.0
"""
The documents are true: tables are what the code prints, links lead somewhere, names of files exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.admin.limits import KNOWN_OPTIONS
from gateway.catalogs.glue_options import GLUE
from gateway.catalogs.login_options import SECRETS
from gateway.catalogs.registry import REST
from gateway.commit.metrics import Rejection
from gateway.policy.access import NO_CONTENT
from gateway.policy.engine import ACCESS_RULE
from gateway.policy.vocabulary import variables_of
from lakeproof.inspecting.doctor import CHECKS
from lakeproof.settings import format_settings_table
from spark_detect.status import status_metrics
from testkit.environment import PROJECT
from testkit.system.documents import CONTINUED, DOCUMENTS, blocks_of

RUN_BY = {
    "README.md": "test_readme.py and, the two commands, .ci/run",
    "docs/api.md": "test_api_page.py",
    "docs/contributing.md": "test_contributing.py",
    "docs/ledger.md": "test_ledger_page.py",
    **dict.fromkeys(CONTINUED, "test_readme.py"),
}
"""Every page with commands, and what runs them."""
MAKE = ["make run", "make test"]
"""The two commands of the README, which `.ci/run` runs."""


def test_the_documented_settings_are_the_settings() -> None:
    assert format_settings_table() in (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "kind", "secrets"),
    [
        ("Options of a foreign catalog", REST, SECRETS | {"s3.secret-access-key", "webhook-secret"}),
        ("Options of a catalog of AWS Glue", GLUE, {"glue.secret-access-key", "s3.secret-access-key"}),
    ],
)
def test_the_documented_options_of_a_kind_are_the_options(heading: str, kind: str, secrets: set[str]) -> None:
    text = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `([\w.-]+)` \| ([^|]+) \|", rows, re.MULTILINE)
    assert {name for name, _ in documented} == KNOWN_OPTIONS[kind]
    assert len(documented) == len(KNOWN_OPTIONS[kind])
    assert {name for name, value in documented if value == "secret"} == secrets


def test_every_page_with_commands_has_a_test_that_runs_them() -> None:
    pages = {str(document.relative_to(PROJECT)) for document in DOCUMENTS}
    assert {page for page in pages if blocks_of(page, "sh", "python", "console", "bash", "shell")} == set(RUN_BY)
    steps = blocks_of("README.md", "sh", "python", section="First steps")
    others = [block for block in blocks_of("README.md", "sh", "python") if block not in steps]
    assert [(language, re.findall("^[a-z]+ [a-z]+", text, re.MULTILINE)) for language, text in others] == [("sh", MAKE)]


def test_no_command_hides_in_a_block_without_a_language() -> None:
    command = re.compile(r"^```\n(?=(?:\$ )?(?:lakeproof|make|python3?|pytest) )", re.MULTILINE)
    hidden = {document.name: len(command.findall(document.read_text(encoding="utf-8"))) for document in DOCUMENTS}
    assert {name: count for name, count in hidden.items() if count} == {"auditing.md": 1}  # a bucket that no test has


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file_of_the_project(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_is_named_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:ledger|gateway|projections|lakeproof|streams|spark_detect|bench|docs|tests)/[\w/.]*)`", text
    )
    assert [path for path in named if not (PROJECT / path).exists()] == []


def test_the_documented_variables_of_access_rules_are_the_variables() -> None:
    text = (PROJECT / "docs" / "access-rules.md").read_text(encoding="utf-8")
    variables = text.partition("## Variables")[2].partition("What is no content")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", variables, re.MULTILINE)) == set(variables_of(ACCESS_RULE))
    for content_type, path in NO_CONTENT.values():
        assert f"`{content_type}` | `{path}" in text


def test_what_docstrings_say_of_the_stored_formats_is_a_section_of_their_page() -> None:
    titles = set(re.findall("^## (.+)$", (PROJECT / "docs" / "formats.md").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        title
        for package in ("ledger", "gateway", "projections", "streams", "spark_detect", "lakeproof")
        for suffix in ("py", "sql")
        for file in (PROJECT / package).rglob(f"*.{suffix}")
        for title in re.findall(r'docs/formats\.md[,(]?\s+\(?"([^"]+)"', file.read_text(encoding="utf-8"))
    }
    assert len(named) >= 4
    assert named <= titles


def test_the_documented_checks_of_the_doctor_are_its_checks() -> None:
    page = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("## What is wrong, and what to do?")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == ["settings", *CHECKS]


METRICS_IN = (
    "gateway/commit/metrics.py",
    "gateway/reconcile/metrics.py",
    "lakeproof/serving/certificate.py",
    "lakeproof/serving/metrics.py",
    "lakeproof/serving/shared_metrics.py",
    "projections/relational/metrics.py",
    "streams/state/metrics.py",
)
"""Every module that names metrics; those of detection have a prefix of their own."""


def test_the_documented_metrics_and_their_reasons_are_those_of_the_code() -> None:
    page = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = page.partition("## Metrics")[2].partition("\n## ")[0]
    named = re.findall(r"`(lakeproof_[a-z_]+)`", "".join(re.findall(r"^\| `lakeproof_[^|]*", rows, re.MULTILINE)))
    code = "".join((PROJECT / file).read_text(encoding="utf-8") for file in METRICS_IN)
    detection = {metric.name for metric in status_metrics([])}
    assert sorted(named) == sorted({*re.findall(r'"(lakeproof_[a-z_]+)"', code), *detection})
    reasons = rows.partition("| reason |")[2]
    assert re.findall(r"^\| `([a-z_]+)` \|", reasons, re.MULTILINE) == list(Rejection)
