# SPDX-License-Identifier: Apache-2.0
"""
Sessions of the console that go on after the access token of their login: the identity provider renews it.

 1  a page finds that the session's token is about to end; until then the provider is not asked
 2  one request of all processes renews it, for a refresh token counts once; the others wait for that one
 3  the provider gives another access token, or refuses. Who the caller is now, with which groups and roles, is judged
    from that token as from the first one, and it has to be the same actor
 4  token and refresh token are stored, sealed with a new key, unless the session has ended meanwhile

A refusal ends the session. A provider that does not answer does not: the next page tries again. The session never lasts
longer than it could at its login. If a process dies between 3 and 4, the refresh token that is stored is spent, and the
next renewal is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from gateway.console.sessions import Renewable, Session, Sessions
from gateway.errors import GatewayError, UnauthorizedError, UnavailableError
from gateway.identity.code_logins import Renewed
from gateway.identity.logins import Login
from gateway.identity.principal import TokenRefusedError
from gateway.identity.provider import EXCHANGE_TIMEOUT_S, UNREACHABLE
from gateway.identity.token_logins import TokenLogins

RENEWAL_LIFETIME: Final = timedelta(seconds=3 * EXCHANGE_TIMEOUT_S)
"""How long one request may take to renew a session, before another may try: longer than the provider may take."""
LOOKS_EVERY_S: Final = 0.1
REFUSED: Final = (
    "Your session has ended: the identity provider did not renew it, or says that you are somebody else now. Log in "
    "again."
)

_BEARER: Final = "Bearer "
_log = logging.getLogger(__name__)


class NotRenewedError(UnauthorizedError):
    """A session has ended because its login was not renewed."""

    def __init__(self) -> None:
        super().__init__(REFUSED)


class Renewals:
    """Renews the sessions of a gateway; `tokens` verifies what its identity providers give (None: there are none)."""

    def __init__(self, sessions: Sessions, tokens: TokenLogins | None, *, clock: Callable[[], datetime]) -> None:
        self._sessions = sessions
        self._tokens = tokens
        self._clock = clock

    async def find(self, cookie: str) -> Session | None:
        """
        Return a session, renewed if its credentials are about to end; None if there is none.

        Raises:
            NotRenewedError: if they are not renewed: the session has ended.
            UnavailableError: if the provider does not answer, or the database cannot be reached.
        """
        has_waited = False
        while (session := await self._sessions.find(cookie)) is not None:
            now = self._clock()
            if session.renewable is None or not session.renewable.is_due(now):
                return session
            if not session.renewable.is_under_way(now):
                if has_waited:
                    raise UnavailableError(UNREACHABLE)  # who was waited for has tried in vain, just now
                if await self._sessions.begin_renewal(cookie, session.renewable, until=now + RENEWAL_LIFETIME):
                    return await self._renewed(cookie, session.credentials, session.renewable)
            has_waited = True
            await asyncio.sleep(LOOKS_EVERY_S)
        if has_waited:
            raise NotRenewedError
        return None

    async def end(self, cookie: str) -> None:
        """
        End a session, and give back to the provider what renews it: a copy of that is of no use either.

        Raises:
            UnavailableError: if the database cannot be reached. A provider that does not answer keeps nobody logged in.
        """
        session = await self._sessions.end(cookie)
        if session is not None and session.renewable is not None:
            await self._give_back(session.credentials, session.renewable.refresh_token)

    async def _renewed(self, cookie: str, credentials: str, renewable: Renewable) -> Session | None:
        """Steps 3 and 4. Raises as `find`."""
        try:
            renewed, ends_at = await self._ask(credentials, renewable)
        except UnauthorizedError as error:
            await self._sessions.end(cookie)
            _log.info("a session of the console was not renewed: %s", error)
            raise NotRenewedError from error
        except GatewayError:
            await self._sessions.give_up_renewal(cookie, renewable)
            raise
        bearer = f"{_BEARER}{renewed.access_token}"
        if not await self._sessions.renew(
            cookie, bearer, ends_at=ends_at, before=renewable, refresh_token=renewed.refresh_token
        ):
            await self._give_back(bearer, renewed.refresh_token)  # the session has ended meanwhile
            return None
        return await self._sessions.find(cookie)

    async def _ask(self, credentials: str, renewable: Renewable) -> tuple[Renewed, datetime]:
        """Return what the provider gives, and when it ends. Raises UnauthorizedError if that is nothing that counts."""
        if self._tokens is None:
            raise TokenRefusedError("no identity provider is configured any more")
        token = credentials.removeprefix(_BEARER)
        renewed = await self._tokens.codes.renew(token, refresh_token=renewable.refresh_token)
        login = await self._tokens.verify(renewed.access_token)
        if not isinstance(login, Login) or login.actor != renewable.actor:
            raise TokenRefusedError("the provider says that it is somebody else")
        return renewed, login.ends_at

    async def _give_back(self, credentials: str, refresh_token: str) -> None:
        """Revoke a refresh token. If that fails it counts until the provider's own time for it is over."""
        if self._tokens is None:
            return
        try:
            await self._tokens.codes.revoke(credentials.removeprefix(_BEARER), refresh_token=refresh_token)
        except GatewayError as error:
            _log.warning("a refresh token of an ended session of the console was not revoked: %s", error)
