-- What names look like, which places tables take up, and which ones catalogs elsewhere were registered for.
-- Looks and places are of names and locations alone. Rows from before get theirs at the next start (catalogs/derived.py).

ALTER TABLE gateway.namespaces ADD COLUMN looks bytea[], ADD COLUMN looks_version text;
ALTER TABLE gateway.tables
    ADD COLUMN looks bytea[],
    ADD COLUMN looks_version text,
    ADD COLUMN places bytea[],
    ADD COLUMN folders bytea[],
    ADD COLUMN places_told boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN gateway.namespaces.looks IS 'Digests: a sibling that has one of them could be taken for this one.';
COMMENT ON COLUMN gateway.tables.looks IS 'Digests: a sibling that has one of them could be taken for this one.';
COMMENT ON COLUMN gateway.tables.places IS 'Digests of the location and of the folders that properties name.';
COMMENT ON COLUMN gateway.tables.folders IS 'Digests of the places, and of every folder that holds one of them.';
COMMENT ON COLUMN gateway.tables.places_told IS
    'Whether the log told the places; else they are what the metadata''s location lets expect, until the next commit.';

CREATE INDEX namespaces_looks ON gateway.namespaces USING gin (looks);
CREATE INDEX tables_looks ON gateway.tables USING gin (looks);
CREATE INDEX tables_places ON gateway.tables USING gin (places);
CREATE INDEX tables_folders ON gateway.tables USING gin (folders);

CREATE TABLE gateway.catalog_places (
    log_id integer NOT NULL REFERENCES ledger.logs,
    alias text NOT NULL,
    place text NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 16),
    folders bytea[] NOT NULL,
    held boolean NOT NULL,
    PRIMARY KEY (log_id, alias, place)
);
COMMENT ON TABLE gateway.catalog_places IS
    'Guarded: a row for each catalog.created with a location and each place.granted; place.released ends its hold.';
COMMENT ON COLUMN gateway.catalog_places.alias IS 'The catalog that was registered for the place; empty if it was granted.';
COMMENT ON COLUMN gateway.catalog_places.held IS
    'True for the first tenant who came. No place that is held overlaps one that another tenant holds.';

CREATE INDEX catalog_places_folders ON gateway.catalog_places USING gin (folders) WHERE held;
CREATE INDEX catalog_places_digest ON gateway.catalog_places (digest) WHERE held;

ALTER TABLE gateway.catalog_places ENABLE ROW LEVEL SECURITY;
CREATE POLICY services ON gateway.catalog_places TO {appender}, {auditor} USING (true);
GRANT SELECT ON gateway.catalog_places TO {auditor};
GRANT SELECT, INSERT, UPDATE ON gateway.catalog_places TO {appender};
