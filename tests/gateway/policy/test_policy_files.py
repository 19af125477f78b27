# SPDX-License-Identifier: Apache-2.0
"""
Files of policies: what is read, and that everything else is refused with file, line and column.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy import policy_files
from gateway.policy.engine import Outcome
from gateway.policy.policy_files import (
    DEPTH_MAX,
    FILE_SIZE_BYTES_MAX,
    PolicyFileError,
    format_members,
    open_document,
    parse_examples_text,
    parse_policy,
    read_policies,
)

FILE: Final = """\
id: orders-keep-tenant
# Comments are the author's alone.
expression: |
  // a comment of CEL
  result.columns.exists(c, c.name == "tenant_id")

message: Keep the column tenant_id
reason: Rows are separated by tenant
scope:
  catalogs: [lake]
  names: [sales.orders, "sales.**"]
  kinds: [table]
  operations: [table.commit, table.create]
examples:
  - expect: allow
    name: with the column
    given:
      result: {exists: true, columns: [{id: 1, name: tenant_id, type: string}]}
  - expect: deny
    name: no
    given: {commit: {name: 2026-01-01}}
"""


def refused(text: str | bytes) -> str:
    with pytest.raises(PolicyFileError) as caught:
        parse_policy(text.encode() if isinstance(text, str) else text, name="p.yaml")
    return str(caught.value)


def test_a_file_says_a_policy_with_scope_reason_and_examples() -> None:
    policy = parse_policy(FILE.encode(), name="p.yaml")

    assert policy.id == "orders-keep-tenant"
    assert policy.expression == '// a comment of CEL\nresult.columns.exists(c, c.name == "tenant_id")'
    assert (policy.message, policy.reason) == ("Keep the column tenant_id", "Rows are separated by tenant")
    assert policy.scope.catalogs == ("lake",)
    assert policy.scope.names == ("sales.orders", "sales.**")
    assert policy.scope.kinds == ("table",)
    assert policy.scope.operations == ("table.commit", "table.create")
    assert [(one.expect, one.name) for one in policy.examples] == [
        (Outcome.ALLOW, "with the column"),
        (Outcome.DENY, "no"),  # a text, not false
    ]
    assert policy.examples[1].given == {"commit": {"name": "2026-01-01"}}  # a text, not a day


def test_scope_reason_and_examples_may_be_left_out() -> None:
    policy = parse_policy(b"{id: p, expression: 'true', message: never}", name="p.yaml")

    assert (policy.expression, policy.reason, policy.examples) == ("true", "", ())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id:", "di:", "p.yaml:1:1: expected some of id, expression, message, reason, scope, examples, found 'di'"),
        ("reason:", "raeson:", "p.yaml:8:1: expected some of id, expression, message, reason, scope, examples, found"),
        ("kinds:", "kindz:", "p.yaml:9:1: scope: expected some of catalogs, names, kinds, operations, properties, "),
        ("[table]", "[tabel]", "p.yaml:12:11: scope.kinds[0]: expected some of table, view, namespace, found 'tabel'"),
        ("expect: allow", "expect: alow", "p.yaml:15:5: examples[0].expect: expected allow or deny, found 'alow'"),
        ("name: tenant_id", "nam: tenant_id", "p.yaml:18:40: examples[0].given.result.columns[0]: expected"),
        ("commit: {name", "comit: {name", "p.yaml:21:5: examples[1].given: expected some of table, result, commit"),
        ("id: 1,", "id: 1.5,", "p.yaml:18:45: expected an integer of at most 18 digits, found 1.5: write it as a text"),
        ("id: 1,", f"id: {9 * 10**18},", "p.yaml:18:45: expected an integer of at most 18 digits, found 9000000"),
        ("id: 1,", "1: x,", "p.yaml:18:41: expected a text as a name, found 1: write it in quotes"),
        ("id: 1,", "[a]: x,", "p.yaml:18:41: expected a text as a name, found ['a']: write it in quotes"),
        ("id: 1,", "name: x,", "p.yaml:18:50: expected each name once, found 'name' again"),
        ("message", "id", "p.yaml:7:1: expected each name once, found 'id' again"),
        ("message:", "# message:", "p.yaml:1:1: message: expected a text, found nothing"),
        ("Keep the column tenant_id", "' '", "p.yaml:7:1: message: expected a text, found \" \""),
        ("Keep the column tenant_id", "[a]", "p.yaml:7:1: message: expected a text, found [\"a\"]"),
        ("message: Keep", "message: Keep: ", "p.yaml:7:14: no YAML: "),
        ("message:", "---\nmessage:", "p.yaml:7:1: expected one policy a file, found a second document"),
        ("id: orders", "id: &a orders", "p.yaml:1:5: expected no anchors and aliases, found one"),
        ("reason: Rows", "reason: *a\n# Rows", "p.yaml:8:9: expected no anchors and aliases, found one"),
        ("id: orders", "id: !!python/name:os.system ", "p.yaml:1:5: expected no tags, found 'tag:yaml.org,2002:"),
        ("given: {commit", "given: {<<: {x: y}, commit", "p.yaml:21:5: examples[1].given: expected some of table"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused_where_it_stands(old: str, new: str, said: str) -> None:
    assert old in FILE
    assert refused(FILE.replace(old, new, 1)).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "p.yaml:1:1: expected a policy, found an empty file"),
        ("# nothing\n", "p.yaml:1:1: expected a policy, found an empty file"),
        ("- a", "p.yaml:1:1: expected a policy with id, expression, message, found ['a']"),
        ("a: \x00", "p.yaml:1:4: no YAML: "),
        (b"id: p\nmessage: \xff", "p.yaml:2:10: expected UTF-8, found another byte"),
        ("x: " + "a" * FILE_SIZE_BYTES_MAX, "p.yaml: expected at most 131,072 bytes, found more"),
        ("[" * 100_000, f"p.yaml:1:{DEPTH_MAX + 2}: expected at most {DEPTH_MAX} levels, found more"),
        ("{a: " * 20_000, f"p.yaml:1:{4 * DEPTH_MAX + 2}: expected at most {DEPTH_MAX} levels, found more"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "p.yaml:1:4: expected no anchors and aliases, found one"),
    ],
)
def test_a_file_is_bounded_and_no_bomb(text: str | bytes, said: str) -> None:
    assert refused(text).startswith(said)


@settings(deadline=None, max_examples=200)
@given(cut=st.integers(0, len(FILE)), put=st.text(alphabet="[]{}:,-&*!|>'\"%@` \n\t#?abc\x00é", max_size=4))
def test_a_file_that_was_cut_and_patched_anywhere_is_read_or_refused_and_nothing_else(cut: int, put: str) -> None:
    for text in (FILE[:cut] + put + FILE[cut:], FILE[:cut] + put):
        try:
            parse_policy(text.encode(), name="p.yaml")
        except PolicyFileError:
            continue


@pytest.mark.parametrize(
    ("expression", "of_expression", "of_file"),
    [
        ("|\n    true &&\n      fals", (2, 3), (4, 7)),
        ("|\n\n    true &&\n      fals", (3, 3), (5, 7)),
        ("commit.purge", (1, 3), (2, 15)),
        ("'commit.purge'", (1, 3), (2, 16)),
        (">\n  true &&\n  fals", (2, 3), (2, 13)),
    ],
)
def test_a_place_in_an_expression_is_a_place_in_its_file(
    expression: str, of_expression: tuple[int, int], of_file: tuple[int, int]
) -> None:
    policy = parse_policy(f"id: p\nexpression: {expression}\nmessage: m".encode(), name="p.yaml")

    assert policy.place_in_expression(*of_expression) == of_file


def test_a_folder_is_read_with_all_below_it_and_nothing_hidden(tmp_path: Path) -> None:
    for name, policy_id in (("b.yaml", "b"), ("a.yml", "a"), ("deep/er/c.yaml", "c")):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{{id: {policy_id}, expression: 'true', message: m}}", encoding="utf-8")
    for ignored in (".git/x.yaml", "..data/x.yaml", ".x.yaml", "README.md"):
        file = tmp_path / ignored
        file.parent.mkdir(exist_ok=True)
        file.write_text("no policy", encoding="utf-8")

    assert [policy.id for policy in read_policies(tmp_path)] == ["a", "b", "c"]
    assert [policy.id for policy in read_policies(tmp_path / "b.yaml")] == ["b"]


def test_two_files_with_one_id_are_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("message: m\nid: p\nexpression: 'true'", encoding="utf-8")

    with pytest.raises(
        PolicyFileError, match=r"b\.yaml:2:1: expected an id that no other file has, found 'p', .*a\.yaml"
    ):
        read_policies(tmp_path)


def test_a_folder_without_policies_is_refused_and_so_is_one_with_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PolicyFileError, match="with a policy each, found none"):
        read_policies(tmp_path)
    monkeypatch.setattr(policy_files, "FILES_MAX", 2)
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(f"{{id: {name}, expression: 'true', message: m}}", encoding="utf-8")
    with pytest.raises(PolicyFileError, match="expected at most 2 policies"):
        read_policies(tmp_path)


def test_what_cannot_be_read_is_refused_and_not_left_out(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match=r"nowhere: cannot be read: No such file"):
        read_policies(tmp_path / "nowhere")
    (tmp_path / "a.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(PolicyFileError, match=r"a\.yaml: cannot be read: No such file"):
        read_policies(tmp_path)
    (tmp_path / "a.yaml").unlink()
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(PolicyFileError, match=r"a\.yaml: expected a file, found something else"):
        read_policies(tmp_path)


# What is written here


@given(
    st.recursive(
        st.booleans() | st.integers(-(10**17), 10**17) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
        max_leaves=12,
    )
)
def test_properties_that_are_written_are_read_as_they_were(value: Any) -> None:
    document = open_document(format_members({"given": value}).encode(), name="f.yaml", required=())
    assert document.read() == {"given": value}


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("- expect: maybe", (1, 3), "expected allow or deny"),
        ("- expect: allow\n- expect: deny\n  given:\n    resul: {}", (3, 3), "the nearest is result"),
        ("x: 1", (1, 1), "expected a list of examples"),
        ("- expect: allow\nmessage: none", (2, 1), "no YAML"),
        ("- expect: allow\n---\n- expect: deny", (3, 1), "no YAML"),
        ("- a: [", (1, 1), "no YAML"),
        ("- &a {expect: allow}", (1, 3), "no anchors"),
    ],
)
def test_what_is_wrong_with_examples_alone_has_its_place_in_their_text(
    text: str, place: tuple[int, int], reason: str
) -> None:
    with pytest.raises(PolicyFileError) as refused:
        parse_examples_text(text)
    assert refused.value.place == place
    assert reason in refused.value.reason


def test_examples_alone_may_be_indented_in_one_line_or_none() -> None:
    (one,) = parse_examples_text("- {expect: deny, given: {}}")
    assert parse_examples_text("   - expect: deny\n     given: {}\n") == (one,)
    assert parse_examples_text("[{expect: deny, given: {}}]") == (one,)
    assert parse_examples_text("") == parse_examples_text("  \n") == ()
