# SPDX-License-Identifier: Apache-2.0
"""
Answers of an upstream as engines see them: everything except what bypasses the gateway.
"""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalogs.json_text import check_unambiguous, first_member, members, replaced
from gateway.catalogs.rewrite import (
    ROUND,
    UpstreamUrl,
    error_answer,
    public_configuration,
    table_answer,
    without_ways_round,
)
from gateway.errors import BadRequestError

UPSTREAM = UpstreamUrl("https://polaris.example:8181/api/catalog")
KEPT = {
    "s3.endpoint": "http://polaris.example:9000",
    "s3.region": "eu-central-1",
    "client.region": "eu-central-1",
    "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    "note": "see https://polaris.example.org/ and //polaris.example:81810",
}
LEADS_ROUND = {
    "uri": "elsewhere",
    "prefix": "main",
    "warehouse": "w",
    "token": "hunter2",
    "credential": "id:hunter2",
    "oauth2-server-uri": "v1/oauth/tokens",
    "endpoints": "GET /v1/config",
    "namespace-separator": "%2E",
    "signer.uri": "/v1",
    "signer.endpoint": "v1/aws/s3/sign",
    "s3.signer.uri": "/v1",
    "s3.signer.endpoint": "v1/aws/s3/sign",
    "s3.remote-signing-enabled": "true",
    "client.refresh-credentials-endpoint": "/v1/credentials",
    "gcs.oauth2.refresh-credentials-endpoint": "/v1/credentials",
    "header.Authorization": "Bearer hunter2",
    "IO-Impl": "com.evil.FileIO",
    "PY-IO-IMPL": "evil.FileIO",
    "metrics-reporter-impl": "com.evil.Reporter",
    "client.factory": "com.evil.Factory",
    "client.credentials-provider": "com.evil.Provider",
    "client.credentials-provider.x": "y",
    "s3.signer": "S3V4RestSigner",
    "s3.proxy-uri": "http://10.0.0.1:3128",
    "http-client.proxy-endpoint": "http://10.0.0.1:3128",
    "rest.auth.type": "sigv4",
    "nessie.core-base-uri": "https://nessie.internal:19120/api/",
    "nessie.is-nessie-catalog": "true",
    "HTTPS": "HTTPS://POLARIS.Example:8181",
    "relative": "//polaris.example:8181/x",
    "userinfo": "https://ada:pw@polaris.example:8181/",
    "in a list": "a,https://polaris.example:8181/b",
}
LEFT = {name: text for name, text in KEPT.items() if name != "py-io-impl"}
"""What stays of `KEPT` beside members of remote signing, as `LEADS_ROUND` has them."""


def test_of_a_configuration_stays_what_leads_to_the_files() -> None:
    assert without_ways_round({**KEPT, **LEADS_ROUND}, UPSTREAM) == LEFT


def test_the_class_for_remote_signing_goes_with_it() -> None:
    chosen = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "s3.region": "r"}
    assert without_ways_round(chosen, UPSTREAM) == chosen
    for name in ("s3.signer", "S3.Signer.Endpoint", "s3.remote-signing-enabled"):
        assert without_ways_round({**chosen, name: "false"}, UPSTREAM) == {"s3.region": "r"}


def test_what_opens_a_storage_is_for_those_who_may_load_a_table() -> None:
    opens = {
        "s3.access-key-id": "a",
        "s3.secret-access-key": "b",
        "s3.session-token": "c",
        "gcs.oauth2.token": "d",
        "adls.sas-token.account": "e",
        "adls.connection-string.account-key": "f",
    }
    assert without_ways_round(opens, UPSTREAM) == opens
    assert public_configuration({**opens, **KEPT, "s3.sse.key": "k"}, UPSTREAM) == {**KEPT, "s3.sse.key": "k"}


@pytest.mark.parametrize("name", sorted(LEADS_ROUND))
def test_each_member_that_leads_round_is_removed(name: str) -> None:
    assert without_ways_round({name: LEADS_ROUND[name]}, UPSTREAM) == {}
    if name.lower() in ROUND:
        assert without_ways_round({name.upper(): "x"}, UPSTREAM) == {}


@pytest.mark.parametrize(
    ("uri", "same", "other"),
    [
        ("http://h", ["http://h", "http://h:80/x", "//h/", "http://h:", "http://h.", "http://h?a"], ["http://h:81"]),
        ("https://h", ["https://h:443", "http://h"], ["https://h:444", "http://h.example", "https://xh"]),
        ("http://h:80/", ["http://h"], ["http://h:8080"]),
        ("http://[::1]:8181", ["http://[::1]:8181/v1"], ["http://[::1]:81"]),
        ("http://127.0.0.1:8181", [r"http:\/\/127.0.0.1:8181"], ["http://127.0.0.1:5000", "http://127.0.0.11:8181"]),
    ],
)
def test_a_place_is_host_and_port_however_they_are_written(uri: str, same: list[str], other: list[str]) -> None:
    upstream = UpstreamUrl(uri)
    assert [text for text in same if not upstream.is_in(text)] == []
    assert [text for text in other if upstream.is_in(text)] == []


BODY = (
    b'{ "metadata-location" : "s3://b/m.json",\n"metadata":{"table-uuid":"u","x":1.50,"big":123456789012345678901234567890,'
    b'"properties":{"uri":"https://polaris.example:8181"}},"config":%b,"storage-credentials":[{"prefix":"s3://b",'
    b'"config":%b}] , "later":[1e5,"\\u00fc"]}'
)


def test_an_answer_without_ways_round_is_the_upstreams_own_bytes() -> None:
    body = BODY % (orjson.dumps(KEPT), orjson.dumps(KEPT))
    assert table_answer(body, UPSTREAM) == body


def test_of_an_answer_nothing_but_its_configuration_changes() -> None:
    everything = json.dumps({**KEPT, **LEADS_ROUND}).encode()
    found = table_answer(BODY % (everything, everything), UPSTREAM)
    config, credentials = json.dumps(LEFT), json.dumps([{"prefix": "s3://b", "config": LEFT}])
    assert found.startswith((BODY % (b"|", b"|")).split(b"|")[0] + config.encode())
    assert found.endswith(credentials.encode() + b' , "later":[1e5,"\\u00fc"]}')


def test_a_member_that_stands_twice_is_rewritten_twice() -> None:
    body = b'{"config":{"uri":"x"},"config":{"token":"x"}}'
    assert table_answer(body, UPSTREAM) == b'{"config":{},"config":{}}'


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (rb'{"\u0063onfig":{"uri":"x"}}', rb'{"\u0063onfig":{}}'),
        (rb'{"config":{"a":"b"},"c\u006Fnfig":{"uri":"x"}}', rb'{"config":{"a":"b"},"c\u006Fnfig":{}}'),
        (b'{"config":{"uri":"x"},"config":{}}', b'{"config":{},"config":{}}'),
        (b'{"config":{"uri":"x"},"config":7}', b'{"config":{},"config":7}'),
        (b'{"config":{"uri":"x"},"x":NaN}', b'{"config":{},"x":NaN}'),
        (
            b'{"storage-credentials":[{"config":{"uri":"x"}}],"storage-credentials":[]}',
            b'{"storage-credentials":[{"config": {}}],"storage-credentials":[]}',
        ),
    ],
)
def test_a_member_is_rewritten_whichever_way_a_parser_could_find_it(body: bytes, shown: bytes) -> None:
    assert table_answer(body, UPSTREAM) == shown


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":{"config":{"uri":"x"}},"config":{"s3.region":"r"}}',
        b'{"metadata":{"config":{"uri":"x"}}}',
        b'{"config":null,"storage-credentials":{"config":{"uri":"x"}}}',
        b'{"storage-credentials":["x",{"config":{"s3.region":"r"}}]}',
        b"{}",
    ],
)
def test_what_is_no_configuration_stays_as_it_is(body: bytes) -> None:
    assert table_answer(body, UPSTREAM) == body


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a":1', b'{"a" 1}', b"{1:2}", b"\xff", b'{"config":{}'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        table_answer(body, UPSTREAM)


texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["https://polaris.example:8181", "HTTP://Polaris.Example:8181/x", "//polaris.example:8181"]),
    st.sampled_from(sorted(KEPT.values())),
)
names = st.one_of(st.text(max_size=20), st.sampled_from(sorted({*KEPT, *LEADS_ROUND})))
configs = st.dictionaries(names, st.one_of(texts, st.integers(), st.none(), st.lists(texts, max_size=2)), max_size=6)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(config=configs, credentials=st.lists(configs, max_size=2), others=st.dictionaries(st.text(), values, max_size=4))
def test_no_url_of_the_upstream_survives_and_all_else_does(
    config: dict[str, Any], credentials: list[dict[str, Any]], others: dict[str, Any]
) -> None:
    held = [{"prefix": "p", "config": one} for one in credentials]
    answer = {**others, "config": config, "storage-credentials": held}
    found = json.loads(table_answer(json.dumps(answer).encode(), UPSTREAM))
    for before, after in zip(
        [config, *credentials], [found["config"], *(one["config"] for one in found["storage-credentials"])], strict=True
    ):
        assert after.items() <= before.items()
        assert not any(UPSTREAM.is_in(json.dumps(value)) or UPSTREAM.is_in(name) for name, value in after.items())
        assert ROUND.isdisjoint(map(str.lower, after))
        assert {name for name in before if name in LEFT and before[name] == LEFT[name]} <= after.keys()
    rest = {name: value for name, value in found.items() if name not in {"config", "storage-credentials"}}
    assert rest == {name: value for name, value in others.items() if name not in {"config", "storage-credentials"}}


def test_an_error_keeps_its_words_without_the_upstreams_url() -> None:
    body = b'{"error":{"message":"see https:\\/\\/polaris.example:8181/x","type":"T","code":404}}'
    found = error_answer(body, UPSTREAM)
    assert found == b'{"error":{"message":"see upstream/x","type":"T","code":404}}'
    untouched = b'{"error": {"message": "Requirement failed: x", "code": 409}}'
    assert error_answer(untouched, UPSTREAM) == untouched


objects = st.dictionaries(st.text(max_size=5), values, max_size=5)


@given(value=objects, indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_members_stand_where_they_are_said_to(value: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    text = " " + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + " "
    found = members(text)
    assert [(member.name, member.value) for member in found] == list(value.items())
    assert all(json.loads(text[member.start : member.end]) == member.value for member in found)
    assert replaced(text, [(member, text[member.start : member.end]) for member in found]) == text
    if value:
        swapped = json.loads(replaced(text, [(found[-1], "7")]))
        assert swapped == {**value, found[-1].name: 7}


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":1}',
        b'{"a":[{"b":1,"b":1}]}',
        b'{"a":1}{',
        b"\xff\xfe",
        b'{"a":"\\',
        b"[" * 100_000,
    ],
)
def test_a_body_that_could_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError):
        check_unambiguous(body)


def test_a_body_that_cannot_is_returned_as_it_is() -> None:
    assert check_unambiguous('{"a":[{"b":1},{"b":"ü"}]}'.encode()) == '{"a":[{"b":1},{"b":"ü"}]}'


@given(value=objects, indent=st.sampled_from([None, 1]), name=st.sampled_from(["a", "b", ""]))
def test_a_body_is_read_in_one_way_however_it_is_written(value: dict[str, Any], indent: int | None, name: str) -> None:
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    assert check_unambiguous(text.encode()) == text
    twice = json.dumps({name: 1}, separators=(",", ":"))[:-1] + "," + text.lstrip("{ \n")
    if name in value:
        with pytest.raises(BadRequestError, match="stands twice"):
            check_unambiguous(twice.encode())


@given(value=objects, indent=st.sampled_from([None, 1]))
def test_the_first_member_of_a_name_is_found_whatever_is_behind_it(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    for found in members(text):
        assert first_member(text[: found.end] + "\x00", found.name) == found
    assert first_member(text, "no such name") is None
    with pytest.raises(BadRequestError):
        first_member(f"[{text}]", "a")
