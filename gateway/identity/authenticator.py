# SPDX-License-Identifier: Apache-2.0
"""
From an Authorization header, or a client certificate, to a verified principal.

 1  the header has one bearer token with the form of an API key
 2  the process has the key's keyed hash in its cache; or the prefix finds a row, which has the tenant and this keyed
    hash. An unknown prefix and a wrong secret cost the same: one lookup, which many requests share
 3  a key without a keyed hash is older than these: its argon2id hash is checked, once
 4  the key is in force in the tenant's control plane, its identity is not erased, and it has not expired, all as of now

A bearer token with a dot is a JSON Web Token: `token_logins.py` verifies it, and the rest is as for a key. No API key
has a dot, so neither is ever taken for the other.

A client certificate that the operator has mapped to a client comes first, and the header is not looked at then: the
connection cannot be anybody else's. One that stands for nobody is as good as none, and without a header is refused. So
it is with a certificate that a proxy passes on, once it is verified; what fails that is refused whatever else there is.

A key that passed step 2 stays in the cache for as long as it is in force. Step 4 is done every time: a key that was
revoked by any process, or has expired, is refused from the next request on. Refusals are paced (`refusal_pace.py`).
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from gateway.control.aggregates import ApiKey
from gateway.control.plane import ControlState
from gateway.database import outage_as_unavailable
from gateway.errors import UnauthorizedError
from gateway.fresh import Fresh, Question, TableRow
from gateway.identifiers import Target
from gateway.identity.access_tokens import AccessToken
from gateway.identity.api_keys import ApiKeyText, KeyHasher, check_key, parse_key
from gateway.identity.certificate_logins import CertificateLogins, Certified, Verified
from gateway.identity.key_lookups import KeyLookups
from gateway.identity.key_macs import KeyMacs
from gateway.identity.key_rows import KeyRow, keep_mac
from gateway.identity.logins import Login
from gateway.identity.passed_certificates import not_named
from gateway.identity.principal import (
    CertificateRefusedError,
    NotInForceError,
    Principal,
    PrincipalSource,
    TokenRefusedError,
)
from gateway.identity.refusal_pace import RefusalPace
from gateway.identity.slow_checks import SlowChecks
from gateway.identity.token_logins import TokenLogins
from gateway.identity.tokens import SEPARATOR
from ledger.store.log_store import LendConnection
from ledger.values import value_class

KNOWN_MAX: Final = 10_000
"""Keys in the cache of a process; about 10 MB."""
Credentials: TypeAlias = str | Certified | None
"""What a request shows: an Authorization header (an X-Api-Key is a bearer token), or a client certificate with it."""
_Counting: TypeAlias = str | Verified | None
"""What counts of it: the header or the certificate."""
Foresee: TypeAlias = Callable[[Principal], None]
"""Called with whom a key stood for at its last request, before it is known whether it still does."""
_BEARER: Final = "'Bearer <API key or token>'"
KNOWN_S: Final = 1.0
"""How long who a key stands for is used without being read again: what tells that it is outdated is the log."""


class Control(Protocol):
    """The control plane as the authenticator uses it."""

    async def current_for(self, log_id: int, question: Question) -> tuple[ControlState, Fresh]:
        """Return what is in force in the log now, and the answer to `question`, which is about this log."""

    def known(self, log_id: int) -> ControlState | None:
        """Return what was in force in the log when it was last read; None: it never was."""


class Logins(Protocol):
    """What verifies credentials that others vouch for, as the authenticator uses it."""

    def forget(self, login: Login) -> None:
        """Look the actor up again at the next login."""


@value_class
class Arrived:
    """
    A request whose credentials were verified: its caller, what is in force, and the row of the table that it names
    (None: not read). All of it was read at once, after the request arrived.
    """

    principal: Principal
    state: ControlState
    table: TableRow | None


class _Known:
    """A key that was verified, and its holder as of the last request: the same one until the log says otherwise."""

    __slots__ = ("_holder", "_in_force", "row", "verified_s")

    def __init__(self, row: KeyRow) -> None:
        self.row: Final = row
        self.verified_s = -KNOWN_S
        """When it was verified last, on the clock of the process."""
        self._in_force: ApiKey | None = None
        self._holder: Principal | None = None

    @property
    def last_holder(self) -> Principal | None:
        """Return who the key stood for at the last request; None: there was none."""
        return self._holder

    def holder_in(self, state: ControlState) -> Principal | None:
        """Return who the key stood for at the last request; None if that was by another state of the key."""
        return self._holder if state.keys.get(self.row.key_id) is self._in_force else None

    def holder(self, tenant: UUID, in_force: ApiKey, *, sub: str) -> Principal:
        """Return who the key stands for, being `in_force` for the identity `sub`."""
        holder = self._holder
        if holder is None or self._in_force is not in_force or holder.sub != sub:
            self._in_force = in_force
            holder = self._holder = Principal(
                tenant=tenant,
                log_id=self.row.log_id,
                actor=self.row.actor,
                issuer=in_force.issuer,
                sub=sub,
                roles=in_force.roles,
                source=PrincipalSource.API_KEY,
                key_id=self.row.key_id,
            )
        return holder


class Authenticator:
    """
    Verifies credentials. One per process; `lend` lends connections of the gateway's role.

    Tokens are verified by `tokens`, and client certificates by `certificates`; without these, each is refused.
    """

    def __init__(
        self,
        lend: LendConnection,
        control: Control,
        *,
        macs: KeyMacs,
        tokens: TokenLogins | None = None,
        certificates: CertificateLogins | None = None,
        hasher: KeyHasher | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic_s: Callable[[], float] = time.monotonic,
        pace: RefusalPace | None = None,
        known_max: int = KNOWN_MAX,
    ) -> None:
        self._lend = lend
        self._control = control
        self._macs = macs
        self.tokens: Final = tokens
        self._certificates = certificates
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._lookups = KeyLookups(lend, secret_id=macs.secret_id)
        self._slow_checks = SlowChecks(hasher or KeyHasher(), monotonic_s=monotonic_s)
        self._pace = pace or RefusalPace(monotonic_s=monotonic_s)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._known_max = known_max
        self.admit: Callable[[UUID, str], None] | None = None
        """Counts a request of a tenant's actor, and raises if there were too many."""

    async def authenticate(self, credentials: Credentials) -> Principal:
        """
        Return the principal of the credentials.

        Raises:
            UnauthorizedError: if there are none, or they are malformed, unknown, or not in force.
            UnavailableError: if that cannot be determined now.
        """
        return (await self.arrive(credentials)).principal

    async def arrive(
        self, credentials: Credentials, table: Target | None = None, *, foresee: Foresee | None = None
    ) -> Arrived:
        """
        Return the principal as `authenticate` does, and what is in force for it; with `table`, also that table's row.

        `foresee` is told of the caller before that is read, if the process knows the key, and requests are not counted:
        who has made too many causes nothing.

        Raises as `authenticate`, and:
            TooManyRequestsError: if the caller, or its tenant, has made too many in the last second.
        """
        try:
            counting = self._counting(credentials) if isinstance(credentials, Certified) else credentials
            if isinstance(counting, Verified):
                arrived = await self._arrive_certified(counting, table)
            elif SEPARATOR in (credential := parse_bearer(counting)):
                arrived = await self._arrive_with_token(credential, table)
            else:
                arrived = await self._arrive(check_key(credential), table, foresee)
        except UnauthorizedError:
            await self._pace.wait()
            raise
        if self.admit is not None:
            self.admit(arrived.principal.tenant, arrived.principal.actor)
        return arrived

    def known(self, credentials: Credentials) -> Arrived | None:
        """
        Return a request with an API key as it would have arrived when the key was verified last, less than a second
        ago; None if that is longer ago, or the key is not that of the state that is known, or requests are counted.

        Nothing is read. Whoever uses it finds out whether there has been a newer control entry.
        """
        if self.admit is not None or not isinstance(credentials, str):
            return None
        try:
            credential = parse_bearer(credentials)
            known = None if SEPARATOR in credential else self._known.get(self._macs.mac_of_text(check_key(credential)))
        except UnauthorizedError:
            return None  # it is refused where it is verified
        if known is None or self._monotonic_s() - known.verified_s > KNOWN_S:
            return None
        state = self._control.known(known.row.log_id)
        holder = None if state is None else known.holder_in(state)
        return None if state is None or holder is None else Arrived(principal=holder, state=state, table=None)

    def _counting(self, credentials: Certified) -> _Counting:
        """What counts of them. Raises as `CertificateLogins.counting`."""
        if self._certificates is not None:
            return self._certificates.counting(credentials)
        if credentials.passed_on is not None:
            raise not_named()
        return credentials.authorization

    async def _arrive_certified(self, verified: Verified, table: Target | None) -> Arrived:
        if self._certificates is None:
            raise CertificateRefusedError("expected an API key or a token: client certificates are not accepted here")
        return await self._arrive_as(partial(self._certificates.verify, verified), self._certificates, table)

    async def _arrive_with_token(self, text: str, table: Target | None) -> Arrived:
        if self.tokens is None:
            raise TokenRefusedError("expected an API key, found a token: tokens are not accepted here")
        return await self._arrive_as(partial(self.tokens.verify, text), self.tokens, table)

    async def _arrive(self, key: str, table: Target | None, foresee: Foresee | None) -> Arrived:
        mac = self._macs.mac_of_text(key)
        known = self._remembered(mac) or await self._find(parse_key(key), mac)
        row = known.row
        if row.tenant is None:
            raise NotInForceError
        if foresee is not None and self.admit is None and known.last_holder is not None:
            foresee(known.last_holder)
        question = Question(log_id=row.log_id, actor=row.actor, tenant=row.tenant, table=table)
        asked_s = self._monotonic_s()
        state, fresh = await self._control.current_for(row.log_id, question)
        in_force = state.keys.get(row.key_id)
        if in_force is None or fresh.identity is None:
            self._known.pop(mac, None)
            raise NotInForceError
        if in_force.is_expired(self._clock()):
            raise NotInForceError
        holder = known.holder(row.tenant, in_force, sub=fresh.identity)
        known.verified_s = asked_s
        return Arrived(principal=holder, state=state, table=fresh.table)

    async def _arrive_as(
        self, verify: Callable[[], Awaitable[AccessToken | Login]], logins: Logins, table: Target | None
    ) -> Arrived:
        """Step 4 for what `verify` returns, which `logins` may forget."""
        login = await verify()
        state, fresh = await self._current_for(login, table)
        if fresh.identity is None and isinstance(login, Login):
            # Erased since this process found the actor: a credential that is newer than the erasure makes another one.
            logins.forget(login)
            login = await verify()
            state, fresh = await self._current_for(login, table)
        if fresh.identity is None:
            raise NotInForceError
        principal = _principal(login, state, sub=fresh.identity)
        principal.check_in_force(state, now=self._clock())
        return Arrived(principal=principal, state=state, table=fresh.table)

    async def _current_for(self, login: AccessToken | Login, table: Target | None) -> tuple[ControlState, Fresh]:
        question = Question(log_id=login.log_id, actor=login.actor, tenant=login.tenant, table=table)
        return await self._control.current_for(login.log_id, question)

    async def _find(self, key: ApiKeyText, mac: bytes) -> _Known:
        """Steps 2 and 3 for a key that is not in the cache."""
        row = await self._lookups.find(key.prefix)
        if row is None:
            raise NotInForceError
        if row.mac is None:
            await self._slow_checks.check(key, stored_hash=row.hash)
            if mac not in self._known:  # one of the requests that waited for that check stores its result
                self._remember(mac, row)
                await self._keep(mac, row)
        elif not hmac.compare_digest(row.mac, mac):
            raise NotInForceError
        return self._remember(mac, row)

    async def _keep(self, mac: bytes, row: KeyRow) -> None:
        """Store the keyed hash of a key, so that no process has to check its slow hash again."""
        with outage_as_unavailable("the database cannot be reached: credentials cannot be checked"):
            async with self._lend() as connection:
                await keep_mac(connection, row, secret_id=self._macs.secret_id, mac=mac)

    def _remember(self, mac: bytes, row: KeyRow) -> _Known:
        known = self._known[mac] = _Known(row)
        if len(self._known) > self._known_max:
            self._known.popitem(last=False)
        return known

    def _remembered(self, mac: bytes) -> _Known | None:
        known = self._known.get(mac)
        if known is not None:
            self._known.move_to_end(mac)
        return known


def _principal(login: AccessToken | Login, state: ControlState, *, sub: str) -> Principal:
    """
    Return the principal of a verified token or certificate, whose actor is that of the identity `sub`.

    Raises:
        NotInForceError: if it names a key that is not in force.
    """
    if isinstance(login, Login):
        return Principal(
            tenant=login.tenant,
            log_id=login.log_id,
            actor=login.actor,
            issuer=login.issuer,
            sub=sub,
            roles=login.roles,
            source=login.source,
            key_id=None,
            email=login.email,
            ends_at=login.ends_at,
            groups=login.groups,
            attributes=login.attributes,
        )
    key = state.keys.get(login.key_id)
    if key is None or key.actor != login.actor:
        raise NotInForceError
    return Principal(
        tenant=login.tenant,
        log_id=login.log_id,
        actor=login.actor,
        issuer=key.issuer,
        sub=sub,
        roles=key.roles,
        source=PrincipalSource.API_KEY,
        key_id=login.key_id,
        ends_at=login.ends_at,
    )


def parse_bearer(authorization: str | None) -> str:
    """
    Return the token of an Authorization header (RFC 6750, section 2.1). No message repeats a possible secret.

    Raises:
        UnauthorizedError: if there is no header, another scheme, or no token.
    """
    if authorization is None:
        raise UnauthorizedError(f"expected an Authorization header with {_BEARER}, found none")
    scheme, _, token = authorization.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer":
        raise UnauthorizedError(f"expected an Authorization header with {_BEARER}, found another scheme")
    if token.lower() in {"", "none", "null", "undefined"}:
        raise UnauthorizedError(
            f"expected an API key or a token, found the token {token!r}: the client's credential is not set "
            "(PyIceberg: `token`)"
        )
    return token
