-- API keys, and what the gateway's role may read of the log: whose key it is, and what is in force.

CREATE SCHEMA gateway;

CREATE TABLE gateway.api_keys (
    log_id integer NOT NULL REFERENCES ledger.logs,
    key_id text NOT NULL,
    prefix text NOT NULL UNIQUE CHECK (prefix ~ '^[a-z2-7]{{12}}$'),
    hash text NOT NULL CHECK (hash ~ '^\$argon2id\$'),
    actor text NOT NULL CHECK (actor ~ '^[0-9a-f]{{32}}$'),
    PRIMARY KEY (log_id, key_id)
);
COMMENT ON TABLE gateway.api_keys IS
    'Guarded: the keys in force, made by key.created and removed by key.revoked; the hash alone is not in the log.';
COMMENT ON COLUMN gateway.api_keys.prefix IS 'Unique over all logs: a key names its tenant by its prefix.';

ALTER TABLE gateway.api_keys ENABLE ROW LEVEL SECURITY;

-- Who may use a key is found out before it is known whose it is, so the gateway's role sees all tenants' keys.
CREATE POLICY gateway ON gateway.api_keys FOR SELECT TO {gateway} USING (true);
CREATE POLICY services ON gateway.api_keys TO {appender}, {auditor} USING (true);
CREATE POLICY gateway ON ledger.logs FOR SELECT TO {gateway} USING (true);
CREATE POLICY gateway ON ledger.heads FOR SELECT TO {gateway} USING (true);
CREATE POLICY gateway ON ledger.subjects FOR SELECT TO {gateway} USING (true);
CREATE POLICY gateway ON ledger.entries FOR SELECT TO {gateway} USING (is_control);

GRANT USAGE ON SCHEMA gateway TO {appender}, {auditor}, {gateway};
GRANT USAGE ON SCHEMA ledger TO {gateway};
-- Nobody but the gateway reads a hash.
GRANT SELECT ON gateway.api_keys TO {gateway};
GRANT SELECT (log_id, key_id, prefix, actor) ON gateway.api_keys TO {appender}, {auditor};
GRANT INSERT, DELETE ON gateway.api_keys TO {appender};
GRANT SELECT ON ledger.logs, ledger.heads, ledger.subjects TO {gateway};
GRANT SELECT (log_id, index, entry, key, is_control) ON ledger.entries TO {gateway};
