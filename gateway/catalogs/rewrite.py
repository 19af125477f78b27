# SPDX-License-Identifier: Apache-2.0
"""
Removes from an upstream's answers whatever would let engines bypass the gateway. Pure; works on the JSON's own text.

Guarantee: in the configuration for engines (of `/v1/config`, of a table, of its storage credentials) no member stays
that says where a catalog is or which credentials to use for it, and none whose value contains the URL of the upstream.
All other bytes of the answer are as the upstream wrote them. An error keeps its text, without the upstream's URL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from gateway.catalogs.json_text import members, replaced
from gateway.errors import BadRequestError
from ledger.errors import FormatError
from ledger.format.json_object import parse_object

ROUND: Final = frozenset(
    {
        "uri",
        "prefix",
        "warehouse",
        "endpoints",
        "namespace-separator",
        "token",
        "credential",
        "scope",
        "audience",
        "oauth2-server-uri",
        "token-exchange-enabled",
        "token-refresh-enabled",
        "token-expires-in-ms",
        "signer.uri",
        "signer.endpoint",
        "s3.signer",
        "s3.proxy-uri",
        "client.factory",
        "idempotency-key-lifetime",
    }
)
"""
Members that say where a catalog is, with which credentials, protocol options or proxy to access it: engines get the
gateway's, never the upstream's.
"""

SIGNING: Final = ("s3.signer", "s3.remote-signing")
ROUND_PREFIXES: Final = (
    "s3.signer.",
    "s3.remote-signing",
    "rest.auth.",
    "rest.sigv4",
    "rest.signing",
    "header.",
    "nessie.",
    "client.credentials-provider",
    "http-client.proxy",
)
"""Nessie's own members say where its other interfaces are, which may be on another host than the one that we know."""
ROUND_SUFFIXES: Final = ("refresh-credentials-endpoint", "-impl")
"""
As in `client.refresh-credentials-endpoint`, which exists for each object store, and in `metrics-reporter-impl`: engines
load a class that they are given the name of.
"""
FILE_IOS: Final = frozenset(
    {
        "org.apache.iceberg.aws.s3.S3FileIO",
        "org.apache.iceberg.azure.adlsv2.ADLSFileIO",
        "org.apache.iceberg.gcp.gcs.GCSFileIO",
        "org.apache.iceberg.hadoop.HadoopFileIO",
        "org.apache.iceberg.io.ResolvingFileIO",
        "pyiceberg.io.fsspec.FsspecFileIO",
        "pyiceberg.io.pyarrow.PyArrowFileIO",
    }
)
"""The classes that an upstream may ask engines to load (`io-impl`, `py-io-impl`): Iceberg's own."""

UPSTREAM: Final = "upstream"
"""Replaces the upstream's URL in the text of an error."""

T = TypeVar("T")
Parse: TypeAlias = Callable[[], Mapping[str, Any]]

_REWRITTEN: Final = ("config", "storage-credentials")
"""The members of an answer that are rewritten."""
_ESCAPED: Final = rb"\u"
"""How a name can be spelled in another way."""
_SECRET = re.compile(r"secret|token|passw|credential|sas-|(access|account|api|private|shared|storage)-key")

_PORTS: Final = {"http": 80, "https": 443}


class UpstreamUrl:
    """The URL of an upstream, found in texts in upper or lower case, with or without its port."""

    def __init__(self, *uris: str) -> None:
        places = "|".join(sorted({_place(uri) for uri in uris}))
        # Slashes may be escaped, as JSON permits. Another port of the host is another server, such as an object store.
        pattern = rf"""(?:https?:)?\\?/\\?/(?:[^\s/?#"'@]*@)?(?:{places})(?![\w.:-])"""
        self._pattern = re.compile(pattern, re.IGNORECASE)

    def is_in(self, text: str) -> bool:
        """Return whether `text` contains the URL, or one below it."""
        return self._pattern.search(text) is not None

    def removed(self, text: str) -> str:
        """Return `text` with the URL replaced."""
        return self._pattern.sub(UPSTREAM, text)


def _place(uri: str) -> str:
    """Return a pattern for host and port of a URL."""
    parts = urlsplit(uri)
    default = _PORTS[parts.scheme]
    host = re.escape(parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}").removesuffix("."))
    port = parts.port or default
    return rf"{host}\.?(?::(?:{port})?)?" if port == default else rf"{host}\.?:{port}"


def without_ways_round(config: Mapping[str, T], upstream: UpstreamUrl) -> dict[str, T]:
    """
    Return the members of a configuration that do not bypass the gateway.

    Where remote signing was configured, a class for Python was chosen because it can sign. PyIceberg would insist on
    it, and on a package that only signing needs.
    """
    kept = {name: value for name, value in config.items() if not _leads_round(name, value, upstream)}
    if any(name.lower().startswith(SIGNING) for name in config):
        kept = {name: value for name, value in kept.items() if name.lower() != "py-io-impl"}
    return kept


def public_configuration(config: Mapping[str, T], upstream: UpstreamUrl) -> dict[str, T]:
    """
    Return the members of a configuration that every authenticated caller may see.

    `/v1/config` is answered before access to a table is permitted, so it contains no storage credentials; the
    configuration of a table may.
    """
    return {
        name: value for name, value in without_ways_round(config, upstream).items() if not _SECRET.search(name.lower())
    }


def _leads_round(name: str, value: object, upstream: UpstreamUrl) -> bool:
    name = name.lower()
    # A value that is not a string breaks the protocol, but an engine might use it all the same.
    text = value if isinstance(value, str) else json.dumps(value)
    if name in {"io-impl", "py-io-impl"} and text in FILE_IOS:
        return False
    return (
        name in ROUND
        or name.startswith(ROUND_PREFIXES)
        or name.endswith(ROUND_SUFFIXES)
        or upstream.is_in(name)
        or upstream.is_in(text)
    )


def table_answer(body: bytes, upstream: UpstreamUrl, *, parse: Parse | None = None) -> bytes:
    """
    Return a LoadTableResult, CommitTableResponse, LoadViewResult or LoadFunctionResult as engines see it: the same
    bytes except for its configuration.

    `parse` returns the object that `body` is, where that is known already.

    Raises:
        BadRequestError: if it is not a JSON object.
    """
    return _answer(body, partial(_rewritten, upstream=upstream), parse or partial(parse_object, body, what="answer"))


def table_answer_without_credentials(body: bytes, upstream: UpstreamUrl, *, parse: Parse | None = None) -> bytes:
    """
    Return `table_answer` without what opens a storage, which an upstream may give although nobody asked for it.
    """
    return _answer(body, partial(_published, upstream=upstream), parse or partial(parse_object, body, what="answer"))


def _answer(body: bytes, rewritten: Callable[[str, Any], Any], parse: Parse) -> bytes:
    if _is_harmless(body, rewritten, parse):
        return body
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequestError("expected JSON in UTF-8", field="body") from error
    changes = []
    for member in members(text):
        value = rewritten(member.name, member.value)
        if value != member.value:
            changes.append((member, json.dumps(value)))
    return replaced(text, changes).encode() if changes else body


def _is_harmless(body: bytes, rewritten: Callable[[str, Any], Any], parse: Parse) -> bool:
    """
    Return whether nothing has to be removed from an answer; False if only its text can tell. Most answers are harmless.

    A member counts as found only if its name can stand in the body once, and in one spelling: what another parser reads
    is then what was read here.
    """
    if _ESCAPED in body or any(body.count(b'"%b"' % name.encode()) > 1 for name in _REWRITTEN):
        return False
    try:
        answer = parse()
    except FormatError:
        return False
    found = [(name, answer[name]) for name in _REWRITTEN if name in answer]
    return all(rewritten(name, value) == value for name, value in found)


def _rewritten(name: str, value: Any, upstream: UpstreamUrl) -> Any:
    """Return the value of a member of an answer as engines see it."""
    match name, value:
        case "config", dict(config):
            return without_ways_round(config, upstream)
        case "storage-credentials", list(credentials):
            return [_rewritten_credential(one, upstream) for one in credentials]
        case _:
            return value


def _published(name: str, value: Any, upstream: UpstreamUrl) -> Any:
    """Return the value of a member of an answer as engines see it that are given no credentials."""
    match name, value:
        case "config", dict(config):
            return public_configuration(config, upstream)
        case "storage-credentials", list():
            return []
        case _:
            return value


def _rewritten_credential(credential: Any, upstream: UpstreamUrl) -> Any:
    if isinstance(credential, dict) and isinstance(config := credential.get("config"), dict):
        return {**credential, "config": without_ways_round(config, upstream)}
    return credential


def error_answer(body: bytes, upstream: UpstreamUrl) -> bytes:
    """
    Return the body of an error as engines see it: the same bytes except for the upstream's URL in its text.
    """
    text = body.decode("utf-8", "replace")
    return upstream.removed(text).encode() if upstream.is_in(text) else body
