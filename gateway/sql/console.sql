-- SPDX-License-Identifier: Apache-2.0
-- name: add_session
-- A session; a browser has as many as it has logged in times.
INSERT INTO gateway.console_sessions (session, sealed, expires_at) VALUES (%(session)s, %(sealed)s, %(expires_at)s)

-- name: add_renewable_session
-- A session whose provider renews its token.
INSERT INTO gateway.console_sessions (session, sealed, salt, renew_at, expires_at)
VALUES (%(session)s, %(sealed)s, %(salt)s, %(renew_at)s, %(expires_at)s)

-- name: session
-- What a session that has not expired was made with, or renewed to.
SELECT sealed, salt, renew_at, renewing_until FROM gateway.console_sessions
WHERE session = %(session)s AND expires_at > %(now)s

-- name: begin_renewal
-- A row if no process renews the session, and none has since its text was read; this one does then.
UPDATE gateway.console_sessions SET renewing_until = %(until)s
WHERE session = %(session)s AND salt = %(version)s AND (renewing_until IS NULL OR renewing_until <= %(now)s)

-- name: give_up_renewal
-- Another request may try again.
UPDATE gateway.console_sessions SET renewing_until = NULL WHERE session = %(session)s AND salt = %(version)s

-- name: renew_session
-- What a session was renewed to; no row if it has ended meanwhile, or another process has renewed it.
UPDATE gateway.console_sessions
SET sealed = %(sealed)s, salt = %(salt)s, renew_at = %(renew_at)s, renewing_until = NULL
WHERE session = %(session)s AND salt = %(version)s AND expires_at > %(now)s

-- name: end_session
-- Gone, or it never was.
DELETE FROM gateway.console_sessions WHERE session = %(session)s RETURNING sealed, salt, renew_at, renewing_until

-- name: end_expired
-- What has expired, some at a time.
DELETE FROM gateway.console_sessions
WHERE session IN (
    SELECT session FROM gateway.console_sessions WHERE expires_at <= %(now)s LIMIT %(limit)s
)

-- name: take_link
-- What a link that has not expired was made with; the link is gone.
DELETE FROM gateway.console_sessions WHERE session = %(link)s AND expires_at > %(now)s RETURNING sealed

-- name: spend_attempt
-- A login that has ended well, until it could not be shown again anyway; no row if it was there already.
INSERT INTO gateway.console_sessions (session, sealed, expires_at)
VALUES (%(attempt)s, %(sealed)s, %(expires_at)s)
ON CONFLICT (session) DO NOTHING
