# SPDX-License-Identifier: Apache-2.0
"""
Checks time stamps on checkpoints: tokens of a time-stamping authority (RFC 3161, RFC 5816).

Guarantee: `check_stamp` returns a stamp only if an authority that the caller pinned has attested that it saw SHA-256 of
exactly this note by the time in the stamp. In this order:

1. the token has the one shape that `cms.py` allows, one signer, and hashes of SHA-256 or longer;
2. what was stamped (the imprint) is SHA-256 of the note, and the policy is the requested one;
3. the signer's certificate is the one that the signed attributes name by its hash (ESSCertIDv2: another certificate of
   the same name and number cannot be put in its place), and they are over this content;
4. it may stamp times and nothing else: its extended key usage is critical and is id-kp-timeStamping alone;
5. the signature is the signer's, and a chain of certificates, each valid *at the time in the stamp* and signed with
   SHA-256 or longer, leads to one of the pinned roots.

OpenSSL verifies signature and chain, through rfc3161-client, which is imported here only. Its verifier also checks
status, nonce, policy, imprint and key usage. It ignores the certificate's hash in the signed attributes (3), and
accepts further key usages (4), weak hashes and unsigned parts of SignedData (1).

`latest_time` says by when that was, and is never earlier than the authority may have meant (RFC 3161, section 2.4.2).
The time in a stamp has a fraction of a second, which parsers drop, and an accuracy, by which the true time may be
later: without both, "not later than" would claim too much. An authority may state its accuracy elsewhere, in its
policy; only what the stamp itself says is used here.

Not checked: whether a certificate was revoked since. A stamp proves "not later than" only as long as the authority's
keys were not stolen; whoever needs more uses witnesses as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from rfc3161_client import TimeStampTokenInfo, VerificationError, VerifierBuilder, decode_timestamp_response

from ledger.anchoring.cms import (
    CONTENT_TYPE,
    MESSAGE_DIGEST,
    SHA256,
    SIGNING_CERTIFICATE_V2,
    TST_INFO,
    Accuracy,
    SignedToken,
    TstInfo,
    check_number,
    decode,
    grant,
    parse_certificate_hash,
    parse_token,
    parse_value,
)
from ledger.errors import BrokenError, Fault, FormatError, LimitExceededError

ROOTS_MAX: Final = 100
RSA_KEY_BITS_MIN: Final = 2048
CERTIFICATES_MAX: Final = 16
_PEM_SIZE_BYTES_MAX: Final = 1_000_000
_STRONG: Final = frozenset({"sha256", "sha384", "sha512"})
_FOREIGN: Final = (
    ValueError,
    TypeError,
    OverflowError,
    VerificationError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)

ACCURACY_MAX: Final = timedelta(hours=1)
"""Of a second or better, say the rules for authorities (RFC 3628, section 4.3); beyond this the time is left open."""
_GEN_TIME: Final = re.compile(rb"[0-9]{14}(?:\.([0-9]{0,8}[1-9]))?Z")
"""To the nanosecond. Zeros at the end and a point alone are not DER (RFC 3161, section 2.4.2)."""
_GENERALIZED_TIME_TAG: Final = b"\x18"
_DIGITS: Final = 9
_SECOND_NS: Final = 10**9
_PARTS_MAX: Final = 999  # of thousandths and of millionths


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """
    What an authority has attested: it saw SHA-256 of the note by the time `not_later_than`.

    `gen_time` is the time in the token to the second, `not_later_than` the latest that the authority may have meant,
    its accuracy included, rounded up to a second.
    """

    gen_time: datetime
    not_later_than: datetime
    policy: str
    serial: int
    authority: str
    nonce: int | None


def parse_roots(pem: bytes) -> tuple[x509.Certificate, ...]:
    """
    Return the certificates of a PEM file, to be pinned as the roots of time-stamping authorities.

    Raises:
        FormatError: if it holds none, too many, or anything that is no certificate.
    """
    if len(pem) > _PEM_SIZE_BYTES_MAX:
        raise FormatError("authority's roots", expected=f"at most {_PEM_SIZE_BYTES_MAX} bytes", found=len(pem))
    try:
        roots = tuple(dict.fromkeys(x509.load_pem_x509_certificates(pem)))
    except _FOREIGN as error:
        raise FormatError("authority's roots", expected="certificates in PEM", found=str(error)) from error
    if not 1 <= len(roots) <= ROOTS_MAX:
        raise FormatError("authority's roots", expected=f"1 to {ROOTS_MAX} certificates", found=len(roots))
    return roots


def check_stamp(token: bytes, note: bytes, *, roots: Sequence[x509.Certificate], policy: str | None = None) -> Stamp:
    """
    Return what a time-stamp token says, if it is over `note` by an authority under one of `roots` (self-signed).

    With `policy` (as in `1.3.6.1.4.1.601.10.3.1`), the authority must have stamped under that policy.

    Raises:
        FormatError, LimitExceededError: if `token` is no time-stamp token of the allowed shape.
        BrokenError: (`Fault.STAMP`) if it is over something else, or no pinned authority has signed it.
    """
    if not roots:
        raise _broken("roots of authorities, pinned beforehand", "none: name at least one")
    signed = parse_token(token)  # 1
    with _as_ours():
        # rfc3161-client reads a token only within a response.
        response = decode_timestamp_response(grant(token))
        info = response.tst_info
        _check_content(signed.content, info, note, policy)  # 2
        certificates = _certificates(signed)
        signer = _signer(signed, certificates)  # 3
        _check_usage(signer)  # 4
        _check_path(signer, certificates, roots, at=info.gen_time)  # 5
        verifier = reduce(VerifierBuilder.add_root_certificate, dict.fromkeys(roots), VerifierBuilder(roots=[])).build()
        verifier.verify(response, hashlib.sha256(note).digest())
        return Stamp(
            gen_time=info.gen_time,
            not_later_than=latest_time(signed.content, info.gen_time),
            policy=info.policy.dotted_string,
            serial=info.serial_number,
            authority=signer.subject.rfc4514_string(),
            nonce=info.nonce,
        )


def _check_content(content: bytes, info: TimeStampTokenInfo, note: bytes, policy: str | None) -> None:
    extensions = decode(TstInfo, content, "TSTInfo").extensions
    if info.version != 1 or extensions is not None:
        # An extension could change the meaning of the rest, and rfc3161-client does not show them.
        raise _broken("version 1 and no extensions", f"version {info.version}, {len(extensions or [])} extensions")
    imprint, digest = info.message_imprint, hashlib.sha256(note).digest()
    if imprint.hash_algorithm != SHA256 or imprint.message != digest:
        found = f"{imprint.message.hex()} by {imprint.hash_algorithm.dotted_string}"
        raise _broken(f"the imprint {digest.hex()}, SHA-256 of this note", found)
    if policy is not None and info.policy.dotted_string != policy:
        raise _broken(f"the policy {policy}", info.policy.dotted_string)


def _certificates(signed: SignedToken) -> list[x509.Certificate]:
    if len(signed.certificates) > CERTIFICATES_MAX:
        raise LimitExceededError("certificates in a token", found=len(signed.certificates), limit=CERTIFICATES_MAX)
    return [x509.load_der_x509_certificate(one) for one in signed.certificates]


def _signer(signed: SignedToken, certificates: Sequence[x509.Certificate]) -> x509.Certificate:
    """Return the certificate of the signer: the one whose hash is in the signed attributes."""
    attributes, digest = signed.attributes, hashlib.new(signed.digest, signed.content).digest()
    content_type, stated = attributes.get(CONTENT_TYPE), attributes.get(MESSAGE_DIGEST)
    if content_type is None or parse_value(x509.ObjectIdentifier, content_type, "signed content type") != TST_INFO:
        raise _broken("the signed content type TSTInfo", "another, or none")
    if stated is None or parse_value(bytes, stated, "signed digest") != digest:
        raise _broken(f"the signed digest {digest.hex()} of the content", "another, or none")
    if SIGNING_CERTIFICATE_V2 not in attributes:
        raise _broken("the hash of the signer's certificate among the signed attributes (ESSCertIDv2)", "none")
    algorithm, expected = parse_certificate_hash(attributes[SIGNING_CERTIFICATE_V2])
    for certificate, encoded in zip(certificates, signed.certificates, strict=True):
        if certificate.issuer.public_bytes() == signed.issuer and certificate.serial_number == signed.serial:
            if (found := hashlib.new(algorithm, encoded).digest()) != expected:
                raise _broken(f"the signer's certificate with hash {expected.hex()}", found.hex())
            return certificate
    raise _broken(f"the signer's certificate, number {signed.serial}", f"{len(certificates)} others")


def _check_usage(signer: x509.Certificate) -> None:
    """Check that the certificate is one for time stamps and for nothing else (RFC 3161, section 2.3)."""
    try:
        usage = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    except x509.ExtensionNotFound as error:
        raise _broken("a certificate for time stamps", "no extended key usage") from error
    if not usage.critical or list(usage.value) != [ExtendedKeyUsageOID.TIME_STAMPING]:
        found = ", ".join(one.dotted_string for one in usage.value) + ("" if usage.critical else ", not critical")
        raise _broken("the critical extended key usage id-kp-timeStamping alone", found)
    key = signer.public_key()
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < RSA_KEY_BITS_MIN:
        raise _broken(f"an RSA key of {RSA_KEY_BITS_MIN} bits or more", f"{key.key_size} bits")


def _check_path(
    signer: x509.Certificate, others: Sequence[x509.Certificate], roots: Sequence[x509.Certificate], *, at: datetime
) -> None:
    """
    Check that certificates valid at that time, each signed by the next with a strong hash, lead to a pinned root.

    OpenSSL builds its own chain and checks that they may sign certificates at all.
    """
    waiting, seen = [signer], {signer}
    while waiting:
        current = waiting.pop()
        if not current.not_valid_before_utc <= at <= current.not_valid_after_utc:
            continue
        if current in roots:
            return
        algorithm = current.signature_hash_algorithm
        if algorithm is None or algorithm.name not in _STRONG:
            continue
        for issuer in (*roots, *others):
            if issuer not in seen and _is_issued_by(current, issuer):
                seen.add(issuer)
                waiting.append(issuer)
    raise _broken(f"certificates that are valid at {at.isoformat()} and lead to a pinned root", _names(seen))


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _names(certificates: Iterable[x509.Certificate]) -> str:
    return "; ".join(
        f"{one.subject.rfc4514_string()} until {one.not_valid_after_utc.isoformat()}" for one in certificates
    )


def _broken(expected: object, found: object) -> BrokenError:
    return BrokenError(Fault.STAMP, where="time stamp", expected=expected, found=found)


@contextmanager
def _as_ours() -> Iterator[None]:
    """Turn the errors of other libraries into ours."""
    try:
        yield
    except _FOREIGN as error:
        raise _broken("a token that its authority signed, under a pinned root", str(error)) from error


def latest_time(content: bytes, gen_time: datetime) -> datetime:
    """
    Return the time by which a note existed that the TSTInfo `content` stamps, rounded up to a whole second.

    `gen_time` is the time in it, to the second.

    Raises:
        FormatError: if time or accuracy is malformed.
        BrokenError: (`Fault.STAMP`) if the accuracy is over `ACCURACY_MAX`.
        OverflowError: if that is after the year 9999.
    """
    info = decode(TstInfo, content, "TSTInfo")
    late_ns = _fraction_ns(info.gen_time)
    if info.accuracy is not None:
        late_ns += _accuracy_ns(info.accuracy)
    return gen_time + timedelta(seconds=-(-late_ns // _SECOND_NS))


def _fraction_ns(time: asn1.TLV) -> int:
    text = bytes(time.data)
    found = _GEN_TIME.fullmatch(text)
    if time.tag_bytes != _GENERALIZED_TIME_TAG or found is None:
        raise FormatError("time of a stamp", expected="YYYYMMDDhhmmss[.s…]Z, without zeros at the end", found=text)
    return int((found[1] or b"").ljust(_DIGITS, b"0"))


def _accuracy_ns(accuracy: Accuracy) -> int:
    seconds = check_number(accuracy.seconds or 0, "accuracy of a stamp")
    parts = [part for part in (accuracy.millis, accuracy.micros) if part is not None]
    if seconds < 0 or any(not 1 <= part <= _PARTS_MAX for part in parts):
        raise FormatError("accuracy of a stamp", expected="seconds from 0, others from 1 to 999", found=seconds)
    total_ns = seconds * _SECOND_NS + (accuracy.millis or 0) * 10**6 + (accuracy.micros or 0) * 10**3
    if total_ns > ACCURACY_MAX // timedelta(seconds=1) * _SECOND_NS:
        expected = f"an accuracy of at most {ACCURACY_MAX}"
        raise BrokenError(Fault.STAMP, where="time stamp", expected=expected, found=f"{total_ns} ns")
    return total_ns
