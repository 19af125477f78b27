# SPDX-License-Identifier: Apache-2.0
"""
AWS signatures at an upstream over real sockets: botocore signs, and code written from AWS's description checks.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from gateway.catalogs.catalog import Outgoing
from gateway.catalogs.connections import Call
from gateway.catalogs.onward import VENDED, Onward
from gateway.catalogs.replies import Answered, NeverSent
from gateway.catalogs.rest import RestCatalog
from gateway.catalogs.sigv4 import Signer, signed
from gateway.catalogs.upstream import open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.errors import UnavailableError, UpstreamAnswerError, UpstreamCredentialsError
from gateway.identifiers import Target
from gateway.mutations import Mutation, Operation
from projections.errors import SecretMissingError
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.script import Script
from testkit.servers.script import error as protocol_error
from testkit.servers.sigv4 import SignatureCheck, SignatureRefusedError, SignedRequest
from testkit.servers.upstream import Upstream, app_of

TENANT: Final = UUID(int=7)
NOW: Final = datetime(2026, 11, 26, 23, 59, 30, tzinfo=UTC)
KEY_ID: Final = "AKIDEXAMPLE"
SECRET: Final = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SESSION: Final = "FwoGZXIvYXdzE/+=="
ODD: Final = Target(alias="beyond", namespace=("sales ~", "eu äöü", "a+b=c&d"))
MADE: Final = Outgoing(
    mutation=Mutation(operation=Operation.NAMESPACE_CREATE, target=ODD),
    body=b'{"namespace":["sales ~","eu \xc3\xa4\xc3\xb6\xc3\xbc","a+b=c&d"]}',
)
OPTIONS: Final = {
    "rest.sigv4-enabled": "true",
    "rest.signing-region": "eu-central-1",
    "rest.signing-name": "s3tables",
    "rest.access-key-id": KEY_ID,
    "rest.secret-access-key": "secret:key",
}


@dataclass(slots=True)
class Kept:
    """The secrets of the tenant."""

    key: str = SECRET
    session: str = SESSION

    def read(self, tenant: UUID, secret: str) -> str:
        found = {"key": self.key, "session": self.session}.get(secret)
        if tenant != TENANT or found is None:
            raise SecretMissingError("none")
        return found


def a_check(now: Callable[[], datetime] = lambda: NOW) -> SignatureCheck:
    return SignatureCheck(
        access_key_id=KEY_ID, secret_access_key=SECRET, region="eu-central-1", service="s3tables", now=now
    )


@asynccontextmanager
async def beyond(
    check: SignatureCheck,
    guarded: Any,
    options: Mapping[str, str] | None = None,
    *,
    now: datetime = NOW,
    secrets: Kept | None = None,
) -> AsyncIterator[RestCatalog]:
    async with serve(check.guard(guarded)) as url, open_client(LOOPBACK) as client:
        upstreams = Upstreams(client=client, secrets=secrets or Kept(), timeout_s=5, now=lambda: now)
        where = {"uri": f"{url}/", "warehouse": "arn:aws:a/b c"}
        upstream = upstreams.upstream(TENANT, "beyond", {**where, **OPTIONS, **(options or {})})
        yield RestCatalog(upstream=upstream, onward=Onward(hops=("here/0/beyond",), delegation=VENDED))


def test_the_check_computes_the_signature_that_aws_publishes() -> None:
    """`get-vanilla` of AWS's Signature Version 4 test suite."""
    check = SignatureCheck(
        access_key_id=KEY_ID, secret_access_key=SECRET, region="us-east-1", service="service", now=lambda: NOW
    )
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z"}
    request = SignedRequest(method="GET", path="/", query="", headers=headers, body=b"")
    expected = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    assert check.signature(request, ["host", "x-amz-date"]) == expected


def test_a_request_to_s3_is_signed_as_amazon_publishes_it() -> None:
    """ "GET Object" of Amazon S3's API reference, "Signature Calculations for the Authorization Header"."""
    signer = Signer(
        access_key_id="AKIAIOSFODNN7EXAMPLE",
        secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        session_token=None,
        region="us-east-1",
        service="s3",
    )
    call = Call(method="GET", url="https://examplebucket.s3.amazonaws.com/test.txt", headers={"Range": "bytes=0-9"})
    authorization = signed(call, signer, now=datetime(2013, 5, 24, tzinfo=UTC)).headers["Authorization"]
    assert authorization.endswith("Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")


@pytest.mark.parametrize("service", ["s3", "glue"])
def test_the_path_of_a_request_to_s3_alone_is_signed_as_it_is_sent(service: str) -> None:
    request = arrived(signed(CALL, replace(SIGNER, service=service), now=NOW))
    check = replace(a_check(), service=service)
    check.check(request)
    with pytest.raises(SignatureRefusedError):
        replace(check, service="glue" if service == "s3" else "s3").check(request)


@pytest.mark.parametrize("session", [None, SESSION])
async def test_every_request_is_signed_with_its_body_and_all_that_it_says(session: str | None) -> None:
    check, upstream = a_check(), Upstream()
    check.session_token = session
    options = {} if session is None else {"rest.session-token": "secret:session"}
    async with beyond(check, app_of(upstream), options) as catalog:
        reply = await catalog.forward(MADE)
        assert isinstance(reply, Answered)
        assert reply.status == 200
        assert not (await catalog.load(replace(ODD, name="no such+table"))).metadata
        assert (await catalog.load(ODD)).namespace_exists
        page = await catalog.list_namespaces((), page_token="b=/ä&+ ", page_size=7)
        assert page is not None
    assert not check.refusals
    assert upstream.mutations == 1
    assert check.passed[0].query == "warehouse=arn%3Aaws%3Aa%2Fb%20c"
    assert "x-iceberg-access-delegation;x-lakeproof-hops" in check.passed[0].headers["authorization"]
    assert "content-type;host;" in check.passed[1].headers["authorization"]


@pytest.mark.parametrize(
    ("now", "secrets", "options", "refusal"),
    [
        (NOW + timedelta(minutes=10), Kept(), {}, "the signature has expired"),
        (NOW - timedelta(minutes=10), Kept(), {}, "the signature has expired"),
        (NOW, Kept(key=f"{SECRET[:-1]}Z"), {}, "another signature"),
        (NOW, Kept(), {"rest.access-key-id": "AKIDEXAMPLF"}, "another scope"),
        (NOW, Kept(), {"rest.signing-region": "us-east-1"}, "another scope"),
        (NOW, Kept(), {"rest.signing-name": "glue"}, "another scope"),
        (NOW, Kept(), {"rest.session-token": "secret:session"}, "another session"),
    ],
)
async def test_a_signature_that_is_refused_is_the_gateways_own_matter(
    now: datetime, secrets: Kept, options: dict[str, str], refusal: str
) -> None:
    check, upstream = a_check(), Upstream()
    async with beyond(check, app_of(upstream), options, now=now, secrets=secrets) as catalog:
        with pytest.raises(UpstreamCredentialsError) as refused:
            await catalog.load(ODD)
        assert str(refused.value) == (
            "the upstream of catalog beyond refuses the gateway's credentials (403): check the keys, the region and "
            "this machine's clock"
        )
        assert isinstance(await catalog.forward(MADE), NeverSent)
    assert (set(check.refusals), upstream.mutations) == ({refusal}, 0)


async def test_a_clock_four_minutes_off_is_near_enough() -> None:
    check = a_check()
    async with beyond(check, app_of(Upstream()), now=NOW - timedelta(minutes=4)) as catalog:
        assert not (await catalog.load(ODD)).namespace_exists
    assert check.passed[0].headers["x-amz-date"] == "20261126T235530Z"


async def test_what_the_catalog_itself_forbids_keeps_its_words() -> None:
    script = Script(answers={"/v1/config?warehouse=arn%3Aaws%3Aa%2Fb%20c": protocol_error("ForbiddenException", 403)})
    async with beyond(a_check(), script.app()) as catalog:
        with pytest.raises(UpstreamAnswerError, match="ForbiddenException"):
            await catalog.load(ODD)


async def test_without_its_secret_nothing_is_sent() -> None:
    check = a_check()
    async with beyond(check, app_of(Upstream()), {"rest.secret-access-key": "secret:gone"}) as catalog:
        with pytest.raises(UpstreamCredentialsError, match="secret:gone is not there"):
            await catalog.load(ODD)
        assert isinstance(await catalog.forward(MADE), NeverSent)
    assert not check.passed
    assert not check.refusals


SIGNER: Final = Signer(
    access_key_id=KEY_ID, secret_access_key=SECRET, session_token=None, region="eu-central-1", service="s3tables"
)
CALL: Final = Call(
    method="POST",
    url="https://h.example/v1/a%1Fb/t?x=%2F&a=1",
    headers={"X-Lakeproof-Hops": "a/b/c", "X-Iceberg-Access-Delegation": VENDED},
    body=b"{}",
)


def arrived(call: Call) -> SignedRequest:
    path, _, query = call.url.removeprefix("https://h.example").partition("?")
    headers = {name.lower(): value for name, value in call.headers.items()}
    headers |= {"host": "h.example", "content-type": call.content_type, "user-agent": "changed", "accept": "changed"}
    return SignedRequest(method=call.method, path=path, query=query, headers=headers, body=call.body or b"")


def test_a_proxy_can_change_nothing_that_means_something() -> None:
    request = arrived(signed(CALL, SIGNER, now=NOW))
    a_check().check(request)
    authorization = request.headers["authorization"]
    for changed in (
        {"method": "PUT"},
        {"path": "/v1/a%1Fb/u"},
        {"path": "/v1/a%251Fb/t"},
        {"query": "x=%2F&a=2"},
        {"query": ""},
        {"body": b"{ }"},
        *(
            {"headers": {**request.headers, name: value}}
            for name, value in {
                "host": "i.example",
                "content-type": "text/plain",
                "x-lakeproof-hops": "",
                "x-iceberg-access-delegation": "remote-signing",
                "x-amz-date": "20261126T235931Z",
                "x-amz-content-sha256": "0" * 64,
                "x-amz-security-token": "t",
                "x-other": "t",
                "authorization": authorization[:-1] + ("0" if authorization[-1] != "0" else "1"),
            }.items()
        ),
    ):
        with pytest.raises(SignatureRefusedError):
            a_check().check(replace(request, **changed))  # type: ignore[arg-type]


def test_a_gateway_without_botocore_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(UnavailableError, match=r"the package botocore, .* pip install 'lakeproof\[streams\]'"):
        signed(CALL, SIGNER, now=NOW)


def test_a_signer_keeps_its_secrets_out_of_its_text() -> None:
    assert "EXAMPLEKEY" not in repr(SIGNER)
    assert SESSION not in repr(replace(SIGNER, session_token=SESSION))
