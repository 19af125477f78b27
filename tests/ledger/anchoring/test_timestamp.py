# SPDX-License-Identifier: Apache-2.0
"""Time stamps: OpenSSL's own are accepted, and whatever is wrong with one is found."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from subprocess import CalledProcessError

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ObjectIdentifier
from cryptography.x509.oid import ExtendedKeyUsageOID
from fastapi import FastAPI, Response
from hypothesis import given
from hypothesis import strategies as st

from ledger.anchoring.cms import (
    CONTENT_TYPE,
    MESSAGE_DIGEST,
    SIGNED_DATA,
    SIGNING_CERTIFICATE_V2,
    TOKEN_SIZE_BYTES_MAX,
    check_number,
    decode_token,
    sort_certificates,
)
from ledger.anchoring.stamping import Authority, NoStampError, format_request, open_response, request_stamp
from ledger.anchoring.timestamp import Stamp, check_stamp, parse_roots
from ledger.errors import BrokenError, Fault, FormatError, LedgerError, LimitExceededError
from testkit.ledger.der import INTEGER, OCTET_STRING, SEQUENCE, SET, TAGGED_1, Value, der, der_integer, der_oid
from testkit.ledger.stamps import (
    FOR_STAMPS,
    NONCE,
    NOON,
    NOT_CRITICAL,
    NOTE,
    POLICY,
    SHA1,
    Forgery,
    certify,
    good,
    signed_by,
)
from testkit.servers import time_stamps
from testkit.servers.loopback import serve
from testkit.servers.time_stamps import OTHER_POLICY, RSA, make_authority, serve_authority

RANDOM = bytes(range(1, 17))
PACKED = {"Content-Type": "application/timestamp-reply", "Content-Encoding": "gzip"}


@pytest.fixture(scope="module")
def openssl(tmp_path_factory: pytest.TempPathFactory) -> time_stamps.Authority:
    return make_authority(tmp_path_factory.mktemp("authority") / "own")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as client:
        yield client


def believed(made: time_stamps.Authority, url: str = "", policy: str | None = None) -> Authority:
    """Return the authority as one who believes in it has it configured."""
    return Authority(url=url, roots=parse_roots(made.root), policy=policy)


def stamped(made: time_stamps.Authority, note: bytes = NOTE, *, nonce: int = NONCE) -> tuple[bytes, Stamp]:
    """Return a token of OpenSSL's, and what it says."""
    response = made.answer(format_request(note, nonce=nonce, policy=None))
    return open_response(response, note, believed(made), nonce=nonce, now=datetime.now(UTC))


def check(forgery: Forgery, *, note: bytes = NOTE, policy: str | None = POLICY) -> Stamp:
    """Check a forged token as one who has pinned the good root."""
    return check_stamp(forgery.token(), note, roots=[good().root.certificate], policy=policy)


@cache
def good_token() -> bytes:
    """Return a good token, the same each time: ECDSA signatures differ."""
    return good().token()


def refused(forgery: Forgery) -> str:
    """Return why a forged token is refused."""
    with pytest.raises(BrokenError) as caught:
        check(forgery)
    assert caught.value.fault is Fault.STAMP
    return str(caught.value)


# What is accepted


@pytest.mark.parametrize("key", [time_stamps.ELLIPTIC, RSA], ids=["elliptic", "rsa"])
async def test_a_stamp_of_openssl_is_asked_for_over_http_and_accepted(
    tmp_path: Path, client: httpx.AsyncClient, key: tuple[str, ...]
) -> None:
    made = make_authority(tmp_path / "authority", key=key)
    now = datetime.now(UTC)
    async with serve_authority(made) as url:
        asked = believed(made, url, OTHER_POLICY)
        token, stamp = await request_stamp(client, asked, NOTE, random=RANDOM, now=now, timeout_s=30)
    assert (stamp.policy, stamp.nonce) == (OTHER_POLICY, int.from_bytes(RANDOM, "big"))
    assert (stamp.authority, abs(stamp.gen_time - now) < timedelta(minutes=5)) == ("CN=test tsa", True)
    assert check_stamp(token, NOTE, roots=asked.roots, policy=OTHER_POLICY) == stamp


def test_a_token_with_certificates_out_of_order_is_put_in_order(openssl: time_stamps.Authority) -> None:
    token, _ = stamped(openssl)
    assert sort_certificates(decode_token(token)) == token


def test_openssl_itself_verifies_the_token_that_is_kept(openssl: time_stamps.Authority, tmp_path: Path) -> None:
    token, note = tmp_path / "token", tmp_path / "note"
    token.write_bytes(stamped(openssl)[0])
    root = openssl.directory / "root.pem"
    verify = ("ts", "-verify", "-token_in", "-in", token, "-data", note, "-CAfile", root)
    note.write_bytes(NOTE)
    time_stamps.openssl(*verify)
    note.write_bytes(b"another\n")
    with pytest.raises(CalledProcessError):
        time_stamps.openssl(*verify)


def test_a_forged_token_with_nothing_wrong_is_accepted() -> None:
    said = Stamp(gen_time=NOON, not_later_than=NOON, policy=POLICY, serial=11, authority="CN=signer", nonce=NONCE)
    assert check(good()) == said


def test_a_stamp_outlives_its_certificates() -> None:
    # They ended a month after noon, and it is much later now: what counts is the time in the stamp.
    last = good().signer.certificate.not_valid_after_utc - timedelta(seconds=1)
    assert check(replace(good(), gen_time=last)).gen_time == last


# Bad tokens, properly signed


def test_a_stamp_on_another_note_is_refused() -> None:
    assert "SHA-256 of this note" in refused(replace(good(), note=b"another\n"))


def test_a_stamp_over_a_weak_hash_is_refused() -> None:
    assert SHA1 in refused(replace(good(), imprint_algorithm=SHA1))


def test_a_stamp_under_another_policy_is_refused() -> None:
    assert POLICY in refused(replace(good(), policy=OTHER_POLICY))
    assert check(replace(good(), policy=OTHER_POLICY), policy=None).policy == OTHER_POLICY


def test_a_stamp_of_another_version_or_with_extensions_is_refused() -> None:
    assert "version" in refused(replace(good(), version=2))
    extension = der(SEQUENCE, [der_oid("1.2.3"), Value(tag=OCTET_STRING, content=b"")])
    assert "no extensions" in refused(replace(good(), extra_tst_members=(der(TAGGED_1, [extension]),)))


def test_a_certificate_without_extended_key_usage_is_refused() -> None:
    assert "no extended key usage" in refused(signed_by(certify("signer", good().intermediate)))


def test_an_extended_key_usage_that_is_not_critical_is_refused() -> None:
    signer = certify("signer", good().intermediate, usages=FOR_STAMPS, critical=NOT_CRITICAL)
    assert "not critical" in refused(signed_by(signer))


@pytest.mark.parametrize(
    "usages",
    [
        (ExtendedKeyUsageOID.CODE_SIGNING,),
        (*FOR_STAMPS, ExtendedKeyUsageOID.CODE_SIGNING),
        (*FOR_STAMPS, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE),
    ],
)
def test_a_certificate_for_anything_else_is_refused(usages: tuple[object, ...]) -> None:
    signer = certify("signer", good().intermediate, usages=usages)  # type: ignore[arg-type]
    assert "id-kp-timeStamping alone" in refused(signed_by(signer))


@pytest.mark.parametrize("expired", ["signer", "intermediate", "root"])
def test_a_chain_that_was_not_valid_at_the_time_of_the_stamp_is_refused(expired: str) -> None:
    until = {name: NOON + timedelta(days=30) for name in ("signer", "intermediate", "root")}
    until[expired] = NOON - timedelta(seconds=1)
    root = certify("root", authority=True, until=until["root"])
    intermediate = certify("intermediate", root, authority=True, until=until["intermediate"])
    signer = certify("signer", intermediate, usages=FOR_STAMPS, until=until["signer"])
    late = Forgery(root=root, intermediate=intermediate, signer=signer)
    with pytest.raises(BrokenError, match="lead to a pinned root"):
        check_stamp(late.token(), NOTE, roots=[root.certificate])
    early = replace(late, gen_time=NOON - timedelta(seconds=2))
    assert check_stamp(early.token(), NOTE, roots=[root.certificate]).gen_time == early.gen_time


def test_a_root_that_was_not_pinned_is_refused() -> None:
    same_name = certify("root", authority=True)
    with pytest.raises(BrokenError, match="lead to a pinned root"):
        check_stamp(good().token(), NOTE, roots=[same_name.certificate])
    with pytest.raises(BrokenError, match="none: name at least one"):
        check_stamp(good().token(), NOTE, roots=[])


def test_an_intermediate_that_may_not_sign_certificates_is_refused() -> None:
    intermediate = certify("intermediate", good().root, authority=False)
    signer = certify("signer", intermediate, usages=FOR_STAMPS)
    assert "signed, under a pinned root" in refused(replace(good(), intermediate=intermediate, signer=signer))


def test_a_certificate_in_the_place_of_the_one_that_was_meant_is_refused() -> None:
    # The same name, number and key, but another certificate: only its hash among the signed attributes tells.
    twin = certify("signer", good().intermediate, usages=FOR_STAMPS, key=good().signer.key)
    assert "certificate with hash" in refused(replace(good(), named=twin))


def test_a_signature_by_another_key_is_refused() -> None:
    twin = certify("signer", good().intermediate, usages=FOR_STAMPS)
    swapped = replace(good(), signer=replace(good().signer, key=twin.key))
    assert "signed, under a pinned root" in refused(swapped)


@pytest.mark.parametrize("missing", [CONTENT_TYPE, MESSAGE_DIGEST, SIGNING_CERTIFICATE_V2])
def test_signed_attributes_must_be_there(missing: ObjectIdentifier) -> None:
    assert "none" in refused(replace(good(), without=missing))


def test_signed_attributes_over_something_else_are_refused() -> None:
    assert "digest" in refused(replace(good(), digest=bytes(32)))
    assert "content type" in refused(replace(good(), content_type=SIGNED_DATA))


def test_what_nobody_signed_is_refused() -> None:
    extra = der(TAGGED_1, [der(SEQUENCE, [der_oid("1.2.3"), der(SET, [der_integer(1)])])])
    with pytest.raises(FormatError, match="SignerInfo"):
        check(replace(good(), unsigned=(extra,)))
    with pytest.raises(FormatError, match="SHA-256"):
        check(replace(good(), digest_algorithm=SHA1))


def test_a_certificate_that_is_named_by_a_weak_hash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenError, match="ESSCertIDv2"):
        stamped(make_authority(tmp_path / "authority", certificate_hash="sha1"))


# Bad tokens, changed


def test_every_flipped_bit_of_a_token_is_found(openssl: time_stamps.Authority) -> None:
    token, stamp = stamped(openssl)
    roots = parse_roots(openssl.root)
    assert check_stamp(token, NOTE, roots=roots) == stamp
    for at in range(len(token)):
        changed = bytearray(token)
        changed[at] ^= 1 << at % 8
        with pytest.raises(LedgerError):
            check_stamp(bytes(changed), NOTE, roots=roots)


@given(st.data())
def test_a_changed_token_raises_our_errors_alone(data: st.DataObject) -> None:
    token = good_token()
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, min(len(token), start + 40)))
    changed = token[:start] + data.draw(st.binary(max_size=40)) + token[end:]
    if changed != token:
        with pytest.raises(LedgerError):
            check_stamp(changed, NOTE, roots=[good().root.certificate])


def test_a_token_that_is_cut_off_or_goes_on_is_refused() -> None:
    token = good().token()
    for size in range(0, len(token), 7):
        with pytest.raises(FormatError):
            check_stamp(token[:size], NOTE, roots=[good().root.certificate])
    with pytest.raises(FormatError):
        check_stamp(token + b"\0", NOTE, roots=[good().root.certificate])
    with pytest.raises(LimitExceededError):
        check_stamp(bytes(TOKEN_SIZE_BYTES_MAX + 1), NOTE, roots=[good().root.certificate])


# Bad responses


def test_a_response_to_another_request_is_refused(openssl: time_stamps.Authority) -> None:
    response = openssl.answer(format_request(NOTE, nonce=NONCE, policy=None))
    with pytest.raises(BrokenError, match="nonce"):
        open_response(response, NOTE, believed(openssl), nonce=NONCE + 1, now=datetime.now(UTC))


def test_a_response_of_another_time_is_refused() -> None:
    authority = Authority(url="", roots=[good().root.certificate])
    assert open_response(good().response(), NOTE, authority, nonce=NONCE, now=NOON)[1].gen_time == NOON
    for away in (timedelta(minutes=6), timedelta(minutes=-6)):
        with pytest.raises(BrokenError, match="set the clock"):
            open_response(good().response(), NOTE, authority, nonce=NONCE, now=NOON + away)


def test_a_refusal_of_the_authority_is_no_stamp(openssl: time_stamps.Authority) -> None:
    response = openssl.answer(format_request(NOTE, nonce=NONCE, policy="1.2.3.4"))
    with pytest.raises(NoStampError, match="rejected"):
        open_response(response, NOTE, believed(openssl, policy="1.2.3.4"), nonce=NONCE, now=datetime.now(UTC))


@pytest.mark.parametrize("status", [1, 2, 3, 4, 5, 6, -1])
def test_a_status_that_is_not_granted_is_refused_even_with_a_token(status: int) -> None:
    authority = Authority(url="", roots=[good().root.certificate])
    with pytest.raises(NoStampError):
        open_response(good().response(status=status), NOTE, authority, nonce=NONCE, now=NOON)


def test_numbers_without_end_are_refused_in_words() -> None:
    # Python writes no whole number of so many digits.
    endless = Value(tag=INTEGER, content=b"\x01" * 8_000)
    authority = Authority(url="", roots=[good().root.certificate])
    refusal = der(SEQUENCE, [der(SEQUENCE, [endless])]).encoded
    for response in (refusal, replace(good(), nonce=int.from_bytes(endless.content, "big")).response()):
        with pytest.raises(LedgerError):
            open_response(response, NOTE, authority, nonce=NONCE, now=NOON)
    with pytest.raises(FormatError, match="whole number"):
        check_number(int.from_bytes(endless.content, "big"), "number")


@pytest.mark.parametrize("response", [b"", b"\x30\x00", b"\x30\x02\x30\x00", b"junk", b"\x30\x84\xff\xff\xff\xff"])
def test_what_is_no_response_is_refused(response: bytes) -> None:
    with pytest.raises(FormatError):
        open_response(response, NOTE, Authority(url="", roots=[good().root.certificate]), nonce=1, now=NOON)


async def test_an_authority_that_answers_something_else_gives_no_stamp(client: httpx.AsyncClient) -> None:
    app = FastAPI()
    app.add_api_route("/wrong", lambda: Response(b"<html>", media_type="text/html"), methods=["POST"])
    app.add_api_route(
        "/large", lambda: Response(bytes(10**6), media_type="application/timestamp-reply"), methods=["POST"]
    )
    app.add_api_route("/packed", lambda: Response(gzip.compress(bytes(10**6)), headers=PACKED), methods=["POST"])
    app.add_api_route("/moved", lambda: Response(status_code=307, headers={"Location": "/large"}), methods=["POST"])

    async def fail(url: str) -> str:
        asked = Authority(url=url, roots=[good().root.certificate])
        with pytest.raises(NoStampError) as caught:
            await request_stamp(client, asked, NOTE, random=RANDOM, now=NOON, timeout_s=30)
        return str(caught.value)

    async with serve(app) as url:
        assert "text/html" in await fail(f"{url}/wrong")
        assert "over" in await fail(f"{url}/large")
        assert "not encoded" in await fail(f"{url}/packed")
        assert "307" in await fail(f"{url}/moved")
    assert "no answer" in await fail(url)
    for unusable in ("not a url", "http://127.0.0.1:99999/tsa", "http://xn--zz--/", "http://user:secret/more@h/"):
        assert "no answer" in (text := await fail(unusable))
        assert "secret" not in text


# What is pinned and asked for


def test_roots_are_certificates_in_pem(openssl: time_stamps.Authority) -> None:
    assert len(parse_roots(openssl.root * 2)) == 1
    for pem in (b"", b"nothing", openssl.root.replace(b"A", b"B"), bytes(2_000_000)):
        with pytest.raises(FormatError):
            parse_roots(pem)


def test_a_policy_is_an_object_identifier() -> None:
    roots = [good().root.certificate]
    for policy in ("", "1", "1.2.x", "3.1", "1.40", "1.02", "1..2", "1.²"):
        with pytest.raises(FormatError):
            Authority(url="", roots=roots, policy=policy)


def test_the_certificate_is_in_the_token_because_it_was_asked_for(openssl: time_stamps.Authority) -> None:
    token, _ = stamped(openssl)
    (root,) = parse_roots(openssl.root)
    assert root.public_bytes(Encoding.DER) not in token
    assert format_request(NOTE, nonce=1, policy=None).endswith(b"\x02\x01\x01\x01\x01\xff")
