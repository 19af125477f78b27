-- Sessions of the console: which browsers are logged in. Not of the log: without a row its browser logs in again.

CREATE TABLE gateway.console_sessions (
    session bytea PRIMARY KEY CHECK (length(session) = 32),
    sealed bytea NOT NULL CHECK (length(sealed) BETWEEN 17 AND 16384),
    expires_at timestamptz NOT NULL
);
COMMENT ON COLUMN gateway.console_sessions.session IS 'The SHA-256 of what the cookie holds.';
COMMENT ON COLUMN gateway.console_sessions.sealed IS
    'The credentials of the login, encrypted with a key that only the cookie holds: neither suffices alone.';

CREATE INDEX console_sessions_expiry ON gateway.console_sessions (expires_at);

ALTER TABLE gateway.console_sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY services ON gateway.console_sessions TO {gateway} USING (true);
GRANT SELECT, INSERT, DELETE ON gateway.console_sessions TO {gateway};
