-- What each table is called, by its uuid, as each projection that needs it has folded it from the log.

CREATE TABLE projections.table_names (
    log_id integer NOT NULL REFERENCES ledger.logs,
    projection text NOT NULL,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    key text,
    index bigint NOT NULL,
    is_certain boolean NOT NULL,
    is_current boolean NOT NULL,
    PRIMARY KEY (log_id, projection, generation, table_uuid)
) WITH (fillfactor = 80);
COMMENT ON TABLE projections.table_names IS
    'key is null for a table that nobody has named yet; index is the entry that said it. One table at most is_current under a key.';
-- A hash, because a key may be longer than an index entry can be.
CREATE INDEX table_names_key ON projections.table_names (log_id, projection, generation, hashtextextended(key, 0));

-- What a scan did not look at, and why.
ALTER TABLE projections.scans
    ADD COLUMN columns_unread bigint NOT NULL DEFAULT 0,
    ADD COLUMN unread jsonb NOT NULL DEFAULT '[]';
COMMENT ON COLUMN projections.scans.unread IS 'As many of the columns that were not looked at as the scan names, with the reasons.';

ALTER TABLE projections.table_names ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON projections.table_names FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON projections.table_names TO {projector}, {streams}, {detector} USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON projections.table_names TO {projector};
GRANT SELECT ON projections.table_names TO {reader}, {streams}, {detector};
