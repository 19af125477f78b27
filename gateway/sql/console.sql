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
