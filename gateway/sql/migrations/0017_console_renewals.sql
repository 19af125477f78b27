-- Sessions of the console that an identity provider renews: when that is due, and which process asks for it now.

ALTER TABLE gateway.console_sessions
    ADD COLUMN salt bytea CHECK (length(salt) = 16),
    ADD COLUMN renew_at timestamptz,
    ADD COLUMN renewing_until timestamptz,
    ADD CHECK ((renew_at IS NULL) = (salt IS NULL)),
    ADD CHECK (renewing_until IS NULL OR renew_at IS NOT NULL);
COMMENT ON COLUMN gateway.console_sessions.salt IS
    'Of the key that this text is sealed with: each renewal seals another text, with another key. NULL: never renewed.';
COMMENT ON COLUMN gateway.console_sessions.renewing_until IS
    'A process asks the provider for another token, and no other does until then: a refresh token counts once.';

GRANT UPDATE (sealed, salt, renew_at, renewing_until) ON gateway.console_sessions TO {gateway};
