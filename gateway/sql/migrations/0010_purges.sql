-- Purges: tables of built-in catalogs that were dropped, and whose files are to be deleted. Guarded rows, and work on them.

CREATE TABLE gateway.purges (
    log_id integer NOT NULL REFERENCES ledger.logs,
    purge uuid NOT NULL,
    key text NOT NULL,
    alias text NOT NULL,
    namespace text[] NOT NULL,
    name text NOT NULL,
    metadata_location text NOT NULL,
    metadata_sha256 text NOT NULL CHECK (metadata_sha256 ~ '^[0-9a-f]{{64}}$'),
    places bytea[] NOT NULL,
    folders bytea[] NOT NULL,
    PRIMARY KEY (log_id, purge)
);
COMMENT ON TABLE gateway.purges IS 'Guarded: made by purge.requested, removed by the purge.completed that ends it.';
COMMENT ON COLUMN gateway.purges.purge IS 'The group of the drop.';
COMMENT ON COLUMN gateway.purges.places IS 'Digests of the table''s places: no other table may be there meanwhile.';
COMMENT ON COLUMN gateway.purges.folders IS 'Digests of the places, and of every folder that holds one of them.';

CREATE INDEX purges_places ON gateway.purges USING gin (places);
CREATE INDEX purges_folders ON gateway.purges USING gin (folders);

CREATE TABLE gateway.purge_attempts (
    log_id integer NOT NULL REFERENCES ledger.logs,
    purge uuid NOT NULL,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    next_attempt_at timestamptz,
    holder text,
    held_until timestamptz,
    problem text,
    deleted bigint NOT NULL DEFAULT 0 CHECK (deleted >= 0),
    bytes_deleted bigint DEFAULT 0 CHECK (bytes_deleted >= 0),
    swept text,
    PRIMARY KEY (log_id, purge)
);
COMMENT ON TABLE gateway.purge_attempts IS
    'Not guarded and not of the log: without these rows a purge begins anew, and finds gone what was deleted before.';
COMMENT ON COLUMN gateway.purge_attempts.held_until IS 'Until then the process `holder` is at work, or has died; null: none is.';
COMMENT ON COLUMN gateway.purge_attempts.problem IS 'Why the last attempt could not be finished.';
COMMENT ON COLUMN gateway.purge_attempts.bytes_deleted IS 'Null: the storage did not tell the size of each file.';
COMMENT ON COLUMN gateway.purge_attempts.swept IS
    'JSON: what is to be recorded once the last metadata file is deleted, too; null: there are other files left.';

ALTER TABLE gateway.purges ENABLE ROW LEVEL SECURITY;
ALTER TABLE gateway.purge_attempts ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON gateway.purges FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON gateway.purges TO {appender}, {auditor}, {gateway} USING (true);
CREATE POLICY services ON gateway.purge_attempts TO {gateway} USING (true);

GRANT SELECT ON gateway.purges TO {auditor}, {gateway}, {reader};
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway.purges TO {appender};
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway.purge_attempts TO {gateway};
