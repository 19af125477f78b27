-- Keyed hashes of API keys, by which a key is known without argon2id: the hash in gateway.api_keys is slow on purpose.

CREATE TABLE gateway.key_macs (
    log_id integer NOT NULL,
    key_id text NOT NULL,
    secret_id text NOT NULL CHECK (secret_id ~ '^[0-9a-f]{{16}}$'),
    mac bytea NOT NULL CHECK (length(mac) = 32),
    PRIMARY KEY (log_id, key_id, secret_id),
    FOREIGN KEY (log_id, key_id) REFERENCES gateway.api_keys ON DELETE CASCADE
);
COMMENT ON TABLE gateway.key_macs IS
    'Not guarded and not of the log: without its row a key is checked by its argon2id hash once, which makes the row again.';
COMMENT ON COLUMN gateway.key_macs.secret_id IS 'The secret it was made with, which is in a file beside the database.';

ALTER TABLE gateway.key_macs ENABLE ROW LEVEL SECURITY;
CREATE POLICY gateway ON gateway.key_macs TO {gateway} USING (true);
CREATE POLICY services ON gateway.key_macs FOR INSERT TO {appender} WITH CHECK (true);
GRANT SELECT, INSERT ON gateway.key_macs TO {gateway};
GRANT INSERT ON gateway.key_macs TO {appender};
