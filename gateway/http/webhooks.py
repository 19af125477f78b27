# SPDX-License-Identifier: Apache-2.0
"""
A callback of a Polaris catalog, without HTTP: its content, its sender, and the trigger that is appended for it.

The signature authenticates it: HMAC-SHA256 over the body as it was sent, with a secret that a tenant shares with its
catalog. A catalog of kind `rest` names that secret in its option `webhook-secret`. The location of the metadata file
decides which of the tenant's catalogs is meant, as for events of S3; if it is in none of them, it is a catalog whose
secret verifies. The name of the table is the sender's claim; the file itself says which table it is.

A sender who cannot sign learns nothing, not even whether a tenant exists: for any tenant, one log is looked up, its
control plane is read, and the same number of secrets is read and signatures compared.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway.admin.limits import check_text
from gateway.catalogs.login import Secrets
from gateway.control.aggregates import Catalog
from gateway.control.plane import ControlPlane
from gateway.database import Database
from gateway.errors import BadRequestError, GatewayError, UnauthorizedError
from gateway.http.model_errors import not_of_model
from gateway.identifiers import Target, parse_name, parse_namespace
from ledger.format.event import SYSTEM_ACTOR, derived_group_id, format_key
from ledger.format.events import TriggerReceived, TriggerSource, prepare_event
from ledger.format.sequence import Group
from ledger.store.queries import load_queries
from projections.errors import SecretMissingError
from projections.lake.secrets import REFERENCE
from projections.lake.storage import nearest_catalog

KIND: Final = "rest"
OPTION: Final = "webhook-secret"
LOCATION_LENGTH_MAX: Final = 2_048
"""A key of S3 is at most 1,024 bytes, the name of a bucket 63."""
SECRETS_MAX: Final = 8
"""Secrets tried per callback, of the tenant's catalogs in their order. Bounded, since anyone can cause this work."""
REFUSED_AFTER_S: Final = 0.1
"""A refusal is answered no sooner, so that its timing reveals nothing about the work."""

_QUERIES: Final = load_queries("gateway", "webhooks.sql")
# Stricter than Python's UUID, which accepts braces, a prefix, and hyphens anywhere. `tenants create` prints it without
# hyphens.
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_NO_SIGNATURE: Final = bytes(32)
"""Replaces a malformed signature; it is compared like any other, and matches no body that anyone can find."""


class SwitchedOffError(GatewayError):
    """The operator of this installation has switched callbacks off."""

    status = 410
    kind = "GoneException"


class _Body(BaseModel):
    """The body of a callback; unknown members are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    tenant_id: str | None = None
    metadata_location: str | None = None
    namespace: str | list[str] | None = None
    table_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A well-formed callback that is not verified yet; namespace and name are the sender's claims."""

    tenant: UUID
    metadata_location: str
    namespace: tuple[str, ...]
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A callback of a tenant's catalog `alias`."""

    log_id: int
    alias: str
    callback: Callback


def parse_callback(body: bytes, *, tenant_header: str | None) -> Callback:
    """
    Parse a callback.

    The tenant is in the header X-Polaris-Tenant, in the body, or in both. If both differ it is refused: neither takes
    precedence, since the specification contradicts itself on that, and only the body is signed.

    Raises:
        BadRequestError: if it is not JSON of that form, or lacks the tenant or the metadata location.
    """
    try:
        parsed = _Body.model_validate_json(body)
    except ValidationError as error:
        raise not_of_model(error, whole="body", model=_Body) from error
    given = ((parsed.tenant_id, "tenant_id"), (tenant_header, "X-Polaris-Tenant"))
    named = {_tenant(text, field) for text, field in given if text}
    if not named:
        raise BadRequestError("expected a tenant's id here or in the header X-Polaris-Tenant", field="tenant_id")
    if len(named) > 1:
        raise BadRequestError("expected the tenant of the header X-Polaris-Tenant, found another", field="tenant_id")
    levels = [parsed.namespace] if isinstance(parsed.namespace, str) else parsed.namespace
    is_named = bool(levels and parsed.table_name and all(levels))
    return Callback(
        tenant=named.pop(),
        metadata_location=check_text(
            parsed.metadata_location, field="metadata_location", length_max=LOCATION_LENGTH_MAX
        ),
        namespace=parse_namespace(levels, field="namespace") if is_named else (),
        name=parse_name(parsed.table_name, field="table_name") if is_named else None,
    )


class Verifier:
    """Verifies who sent a callback."""

    def __init__(
        self,
        *,
        database: Database,
        role: str,
        control: ControlPlane,
        secrets: Secrets,
        random: Callable[[int], bytes],
    ) -> None:
        self._database = database
        self._role = role
        self._control = control
        self._secrets = secrets
        self._nobodys = random(32)

    async def verify(self, callback: Callback, *, body: bytes, signature: str) -> Verified:
        """
        Return the catalog that signed `body`; `signature` is in hex, of either case.

        Raises:
            UnauthorizedError: if none of the tenant's catalogs did; not sooner than after a tenth of a second.
            UnavailableError: if that cannot be determined now.
        """
        loop = asyncio.get_running_loop()
        due = loop.time() + REFUSED_AFTER_S
        log_id, is_tenants = await self._log(callback.tenant)
        state = await self._control.current(log_id)
        catalogs = [
            catalog
            for catalog in state.catalogs.values()
            if is_tenants and catalog.kind == KIND and catalog.options.get(OPTION, "").startswith(REFERENCE)
        ]
        presented = bytes.fromhex(signature) if _SIGNATURE.fullmatch(signature) else _NO_SIGNATURE
        signers = await asyncio.to_thread(self._signers, callback.tenant, catalogs[:SECRETS_MAX], body, presented)
        if not signers:
            await asyncio.sleep(due - loop.time())
            raise UnauthorizedError("expected the signature of a tenant's catalog, found none that is known")
        alias = _meant(signers, state.catalogs.values(), callback.metadata_location)
        return Verified(log_id=log_id, alias=alias, callback=callback)

    async def _log(self, tenant: UUID) -> tuple[int, bool]:
        async with self._database.as_role(self._role) as connection:
            row = await (await connection.execute(_QUERIES["log_of_tenant"], {"tenant": tenant})).fetchone()
        if row is None:
            raise AssertionError("an installation has a system log")
        return row[0], row[1]

    def _signers(self, tenant: UUID, catalogs: Sequence[Catalog], body: bytes, presented: bytes) -> tuple[Catalog, ...]:
        """Return the catalogs whose secret signed `body`, with always the same number of reads and comparisons."""
        signers: list[Catalog] = []
        for catalog in (*catalogs, *(None for _ in range(SECRETS_MAX - len(catalogs)))):
            key = self._key(tenant, catalog.options[OPTION].removeprefix(REFERENCE) if catalog else "none")
            is_right = hmac.compare_digest(hmac.digest(key or self._nobodys, body, "sha256"), presented)
            if is_right and key is not None and catalog is not None:
                signers.append(catalog)
        return tuple(signers)

    def _key(self, tenant: UUID, secret: str) -> bytes | None:
        try:
            return self._secrets.read(tenant, secret).encode()
        except SecretMissingError:
            return None


def trigger(verified: Verified, *, at: datetime) -> Group:
    """
    Return the trigger of a callback. Its id is derived from tenant, catalog and metadata location: repeats add nothing.

    Raises:
        BadRequestError: if the table's names are too long together.
    """
    callback = verified.callback
    target = (
        Target(alias=verified.alias, namespace=callback.namespace, name=callback.name)
        if callback.name is not None
        else None
    )
    data = TriggerReceived(
        alias=verified.alias,
        file_count=0,
        files=(),
        identifier=target.identifier() if target else None,
        metadata_location=callback.metadata_location,
        source=TriggerSource.POLARIS_WEBHOOK,
    )
    event = prepare_event(
        data, key=target.key if target else format_key("catalog", (verified.alias,)), actor=SYSTEM_ACTOR, occurred_at=at
    )
    content = [callback.tenant.hex, verified.alias, callback.metadata_location]
    return Group(id=derived_group_id(f"{TriggerReceived.TYPE}/{data.source}", content), then=(event,))


def _tenant(text: str, field: str) -> UUID:
    if not _UUID.fullmatch(text):
        raise BadRequestError(f"expected a tenant's id, 32 hex digits or a UUID, found {text!r:.80}", field=field)
    return UUID(text)


def _meant(signers: Sequence[Catalog], catalogs: Iterable[Catalog], metadata_location: str) -> str:
    """
    Return the alias of the tenant's catalog whose folder is the nearest above the location, whichever catalog signed.

    If the location is in none of them: the signer's alias, or the first of several.
    """
    folders = {each.id: at for each in catalogs if each.kind == KIND and (at := each.options.get("location"))}
    return nearest_catalog(folders.items(), metadata_location) or signers[0].id
