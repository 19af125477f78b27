-- What others say of a signed checkpoint: time stamps (RFC 3161) and cosignatures of witnesses (C2SP tlog-cosignature).
-- Rows of their own, since they come after the note, which never changes; they are joined to it when it is published.

CREATE TABLE ledger.stamps (
    log_id integer NOT NULL,
    size bigint NOT NULL,
    gen_time timestamptz NOT NULL,
    token bytea NOT NULL CHECK (length(token) <= 65536),
    PRIMARY KEY (log_id, size),
    FOREIGN KEY (log_id, size) REFERENCES ledger.checkpoints
);
COMMENT ON TABLE ledger.stamps IS 'Time-stamp tokens over SHA-256 of a checkpoint''s note; gen_time is what the token says.';

CREATE TABLE ledger.cosignatures (
    log_id integer NOT NULL,
    size bigint NOT NULL,
    name text NOT NULL,
    key_id bytea NOT NULL CHECK (length(key_id) = 4),
    signature bytea NOT NULL CHECK (length(signature) BETWEEN 1 AND 8192),
    PRIMARY KEY (log_id, size, name, key_id),
    FOREIGN KEY (log_id, size) REFERENCES ledger.checkpoints
);
COMMENT ON TABLE ledger.cosignatures IS 'Signature lines of witnesses under a checkpoint, in their parts.';

ALTER TABLE ledger.stamps ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.cosignatures ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON ledger.stamps FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.cosignatures FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON ledger.stamps TO {signer}, {auditor} USING (true);
CREATE POLICY services ON ledger.cosignatures TO {signer}, {auditor} USING (true);

GRANT SELECT ON ledger.stamps, ledger.cosignatures TO {signer}, {auditor}, {reader};
GRANT INSERT ON ledger.stamps, ledger.cosignatures TO {signer};

-- The anchors of a log are found without reading the rest of the system log.
CREATE INDEX entries_anchor ON ledger.entries (log_id, key, index) WHERE type = 'logs.anchored';
