# SPDX-License-Identifier: Apache-2.0
"""
The options of a catalog that say how the gateway logs in at its upstream. Pure.

There are three ways, of which a catalog has at most one: a token, OAuth 2 client credentials, and signatures of AWS.
Each may be combined with the options of TLS: a client certificate, and the authorities that may vouch for the upstream.
Names and defaults are those of Apache Iceberg's own clients where these have them.

The log has options for ever, so whatever is secret is named as `secret:<id>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

from gateway.catalogs.urls import URI, URI_OVERRIDES, uris_of
from gateway.errors import BadRequestError

TOKEN: Final = "token"  # noqa: S105 - the name of an option, as those below
CREDENTIAL: Final = "credential"
TOKEN_URI: Final = "oauth2-server-uri"  # noqa: S105
SCOPE: Final = "scope"
AUDIENCE: Final = "audience"
RESOURCE: Final = "resource"

SIGV4: Final = "rest.sigv4-enabled"
SIGNING_NAME: Final = "rest.signing-name"
SIGNING_REGION: Final = "rest.signing-region"
ACCESS_KEY_ID: Final = "rest.access-key-id"
SECRET_ACCESS_KEY: Final = "rest.secret-access-key"  # noqa: S105
SESSION_TOKEN: Final = "rest.session-token"  # noqa: S105

CLIENT_CERTIFICATE: Final = "client-certificate"
CERTIFICATE_AUTHORITY: Final = "certificate-authority"

OF_OAUTH: Final = frozenset({TOKEN_URI, SCOPE, AUDIENCE, RESOURCE})
OF_SIGV4: Final = frozenset({SIGNING_NAME, SIGNING_REGION, ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN})
OF_TLS: Final = frozenset({CLIENT_CERTIFICATE, CERTIFICATE_AUTHORITY})
SECRETS: Final = frozenset({TOKEN, CREDENTIAL, SECRET_ACCESS_KEY, SESSION_TOKEN}) | OF_TLS
"""Those that name a secret."""
LOGIN_OPTIONS: Final = SECRETS | OF_OAUTH | OF_SIGV4 | {SIGV4}

SCOPE_DEFAULT: Final = "catalog"
SIGNING_NAME_DEFAULT: Final = "execute-api"
"""Amazon API Gateway; AWS Glue is `glue`, Amazon S3 Tables is `s3tables`."""
S3: Final = "s3"
"""Amazon S3 itself, which takes the path in a signature as it is sent."""
ENABLED: Final = "true"
MISSING_BOTOCORE: Final = "requests are signed with the package botocore, which is not installed"

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")
"""RFC 6749, section 3.3."""
_SIGNED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_ACCESS_KEY_ID = re.compile(r"[A-Za-z0-9_]{1,128}")


def token_uri_of(options: Mapping[str, str]) -> str:
    """
    Return the URL that gives tokens: the option's, or the upstream's own (Iceberg REST specification, `getToken`).
    """
    return options.get(TOKEN_URI) or f"{options[URI].rstrip('/')}/v1/oauth/tokens"


def check_login_options(options: Mapping[str, str]) -> None:
    """
    Check the options of a login, all URLs among `options` being plain ones and all secrets references.

    Raises:
        BadRequestError: if there are two ways to log in, a part of one is missing or malformed, or a secret would be
            sent without TLS although the upstream has it.
    """
    ways = [name for name in (TOKEN, CREDENTIAL, SIGV4) if name in options]
    if len(ways) > 1:
        raise _bad(ways[1], f"expected one way to log in, found {' and '.join(ways)}: leave out all but one")
    for names, way in ((OF_OAUTH, CREDENTIAL), (OF_SIGV4, SIGV4)):
        if way not in options and (found := sorted(names & options.keys())):
            raise _bad(found[0], f"expected the option {way} with it, found none: add it, or leave this one out")
    if CREDENTIAL in options:
        _check_oauth(options)
    if SIGV4 in options:
        _check_sigv4(options)
    if OF_TLS & options.keys():
        _check_tls(options)


def _check_oauth(options: Mapping[str, str]) -> None:
    if SCOPE in options and not _SCOPE.fullmatch(options[SCOPE]):
        raise _bad(SCOPE, f"expected scopes, separated by single spaces, found {options[SCOPE]!r:.80}")
    if AUDIENCE in options and not _is_ascii(options[AUDIENCE]):
        raise _bad(AUDIENCE, f"expected printable ASCII, found {options[AUDIENCE]!r:.80}")
    if RESOURCE in options and not _is_resource(options[RESOURCE]):
        raise _bad(RESOURCE, f"expected an absolute URI without fragment, found {options[RESOURCE]!r:.80}")
    if _is_tls(options[URI]) and not _is_tls(token_uri_of(options)):
        raise _bad(TOKEN_URI, "expected an https URL, as the uri is one, found http: the credential would be readable")


def _check_sigv4(options: Mapping[str, str]) -> None:
    if options[SIGV4] != ENABLED:
        raise _bad(SIGV4, f"expected {ENABLED!r}, found {options[SIGV4]!r:.80}: leave it out to sign nothing")
    for name in (SIGNING_REGION, ACCESS_KEY_ID, SECRET_ACCESS_KEY):
        if name not in options:
            raise _bad(name, f"expected it with {SIGV4}, found none")
    for name in (SIGNING_REGION, SIGNING_NAME):
        if name in options and not _SIGNED_NAME.fullmatch(options[name]):
            raise _bad(name, f"expected letters, digits, '_' and '-', found {options[name]!r:.80}")
    if not _ACCESS_KEY_ID.fullmatch(options[ACCESS_KEY_ID]):
        raise _bad(ACCESS_KEY_ID, "expected 1 to 128 letters, digits and '_', found others")
    if find_spec("botocore") is None:
        raise _bad(SIGV4, f"{MISSING_BOTOCORE}: pip install 'lakeproof[streams]'")


def _check_tls(options: Mapping[str, str]) -> None:
    (name, *_) = sorted(OF_TLS & options.keys())
    if not all(map(_is_tls, (options[URI], *uris_of(options)))):
        raise _bad(name, f"expected https URLs in {URI} and {URI_OVERRIDES} with it, found http")


def _is_tls(uri: str) -> bool:
    return urlsplit(uri).scheme == "https"


def _is_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _is_resource(text: str) -> bool:
    """Return whether it is an absolute URI without fragment (RFC 8707, section 2)."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and _is_ascii(text) and not {"#", " "} & set(text)


def _bad(name: str, text: str) -> BadRequestError:
    return BadRequestError(text, field=f"options.{name}")
