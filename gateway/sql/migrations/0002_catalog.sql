-- The built-in catalog: namespaces and table pointers. Guarded rows: a function of the log, written by guards alone.

CREATE TABLE gateway.namespaces (
    log_id integer NOT NULL REFERENCES ledger.logs,
    alias text NOT NULL,
    namespace text[] NOT NULL CHECK (cardinality(namespace) >= 1),
    properties jsonb NOT NULL,
    PRIMARY KEY (log_id, alias, namespace)
);

CREATE TABLE gateway.tables (
    log_id integer NOT NULL,
    alias text NOT NULL,
    namespace text[] NOT NULL,
    name text NOT NULL,
    table_uuid uuid NOT NULL,
    metadata_location text NOT NULL,
    metadata_sha256 text NOT NULL CHECK (metadata_sha256 ~ '^[0-9a-f]{{64}}$'),
    PRIMARY KEY (log_id, alias, namespace, name),
    FOREIGN KEY (log_id, alias, namespace) REFERENCES gateway.namespaces
);

CREATE TABLE gateway.request_keys (
    log_id integer PRIMARY KEY REFERENCES ledger.logs,
    key bytea NOT NULL CHECK (length(key) = 32)
);
COMMENT ON TABLE gateway.request_keys IS 'A tenant''s key for the keyed hash of requests; minted once, read by no tenant.';

ALTER TABLE gateway.namespaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE gateway.tables ENABLE ROW LEVEL SECURITY;
ALTER TABLE gateway.request_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON gateway.namespaces FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON gateway.tables FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON gateway.namespaces TO {appender}, {auditor} USING (true);
CREATE POLICY services ON gateway.tables TO {appender}, {auditor} USING (true);
CREATE POLICY services ON gateway.request_keys TO {gateway} USING (true);

GRANT USAGE ON SCHEMA gateway TO {appender}, {auditor}, {gateway}, {reader};
GRANT SELECT ON gateway.namespaces, gateway.tables TO {auditor}, {reader};
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway.namespaces, gateway.tables TO {appender};
GRANT SELECT, INSERT ON gateway.request_keys TO {gateway};
