-- SPDX-License-Identifier: Apache-2.0
-- name: add_session
-- A session; a browser has as many as it has logged in times.
INSERT INTO gateway.console_sessions (session, sealed, expires_at) VALUES (%(session)s, %(sealed)s, %(expires_at)s)

-- name: session
-- What a session that has not expired was made with.
SELECT sealed FROM gateway.console_sessions WHERE session = %(session)s AND expires_at > %(now)s

-- name: end_session
-- Gone, or it never was.
DELETE FROM gateway.console_sessions WHERE session = %(session)s

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
