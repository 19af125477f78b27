# SPDX-License-Identifier: Apache-2.0
"""A person's login is found in every form that it takes, as a word of its own, and nothing else is."""

from __future__ import annotations

import json

import pytest

from ledger.erasing.redaction import LoginMatcher

ADA = "ada@acme.example"
FORMS = [
    ADA,
    "by Ada@Acme.example.",
    "%3Aada%40acme.example",
    '{"note":"\\u201cada@acme.example\\u201d"}',
    '{"note":"of\\nada@acme.example"}',
    "“ada@acme.example”",
    "/v1/people/ada@acme.example/keys",
]


@pytest.mark.parametrize("text", FORMS)
def test_a_login_is_found_in_each_form_in_texts_and_in_bytes(text: str) -> None:
    mention = LoginMatcher(ADA)
    assert mention.matches(text)
    assert mention.matches(text.encode())
    assert not mention.matches(mention.redact(text))
    assert [text.encode()[begin:end].lower() for begin, end in mention.spans(text.encode())] in (
        [ADA.encode()],
        [b"ada%40acme.example"],
    )


@pytest.mark.parametrize("text", [None, "", "nada@acme.example", "ada@acme.examples", "ada_acme.example", "ada@acme"])
def test_what_only_looks_like_it_is_not_found(text: str | None) -> None:
    assert not LoginMatcher(ADA).matches(text)
    assert not LoginMatcher(ADA).matches((text or "").encode())


def test_a_short_login_is_a_word_of_its_own() -> None:
    mention = LoginMatcher("etl")
    assert not mention.matches('{"key":"table:lake/etl_orders","of":"beetle"}')
    assert mention.matches(b"table:lake/etl/orders")


@pytest.mark.parametrize("login", ["Zoë/ops", 'o"hara', "Ελένη", "a+b (c)"])
def test_a_login_of_any_letters_is_found_as_json_writes_it(login: str) -> None:
    mention = LoginMatcher(login)
    for ascii_only in (True, False):
        written = json.dumps({"by": login, "n": 1.5}, ensure_ascii=ascii_only)
        assert mention.matches(written)
        assert mention.matches(written.encode())
        assert mention.matches(written.replace("/", "\\/"))
        assert json.loads(mention.redact_json(written.encode())) == {"by": "erased", "n": 1.5}


def test_what_is_rewritten_is_json_still_and_loses_nothing_else() -> None:
    payload = b'{"7":7,"at":["7",{"7":null}],"n":17}'
    assert LoginMatcher("7").redact_json(payload) == b'{"erased":7,"at":["erased",{"erased":null}],"n":17}'
    assert LoginMatcher(ADA).redact_json(b"\xffada@acme.example") == b'"erased"'
