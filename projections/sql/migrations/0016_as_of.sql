-- What later entries replaced of findings, scans and names of tables, so that they can be told as of an entry: a row was
-- known from the entry at its index on, up to the one before `until`.

ALTER TABLE projections.findings ADD COLUMN said text;
ALTER TABLE projections.scans ADD COLUMN said text;
COMMENT ON COLUMN projections.findings.said IS 'The key in the entry itself: key is that of the name that the table has now.';
COMMENT ON COLUMN projections.scans.said IS 'The key in the entry itself: key is that of the name that the table has now.';

CREATE TABLE projections.findings_past (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    snapshot text NOT NULL,
    ruleset text NOT NULL,
    field_id bigint NOT NULL,
    kind text NOT NULL,
    index bigint NOT NULL,
    until bigint NOT NULL CHECK (until > index),
    group_id uuid NOT NULL,
    recorded_at timestamptz NOT NULL,
    said text NOT NULL,
    column_path text NOT NULL,
    confidence_percent integer NOT NULL,
    matches bigint NOT NULL,
    not_null bigint NOT NULL,
    PRIMARY KEY (log_id, generation, index)
);
COMMENT ON TABLE projections.findings_past IS 'Findings that a later scan of the same snapshot under the same ruleset replaced.';
CREATE INDEX findings_past_newest ON projections.findings_past (log_id, generation, table_uuid, field_id, kind, index DESC);

CREATE TABLE projections.scans_past (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    snapshot text NOT NULL,
    ruleset text NOT NULL,
    index bigint NOT NULL,
    until bigint NOT NULL CHECK (until > index),
    recorded_at timestamptz NOT NULL,
    said text,
    status text NOT NULL,
    fault text,
    file text,
    metadata_location text NOT NULL,
    findings bigint NOT NULL,
    rows bigint NOT NULL,
    rows_sampled bigint,
    columns bigint NOT NULL,
    files bigint NOT NULL,
    cells bigint NOT NULL,
    bytes_read bigint NOT NULL,
    gaps text[] NOT NULL,
    columns_unread bigint NOT NULL,
    unread jsonb NOT NULL,
    PRIMARY KEY (log_id, generation, index)
);
COMMENT ON TABLE projections.scans_past IS 'Scans that were done again: of the same snapshot under the same ruleset.';
CREATE INDEX scans_past_of_table ON projections.scans_past (log_id, generation, table_uuid, index);

CREATE TABLE projections.table_names_past (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    until bigint NOT NULL,
    key text,
    index bigint NOT NULL,
    is_current boolean NOT NULL,
    PRIMARY KEY (log_id, generation, table_uuid, until)
);
COMMENT ON TABLE projections.table_names_past IS
    'What tables were called before, as the findings have it. A row holds from the until of the row before it on, the first one from its index on.';
-- As table_names_current.
CREATE INDEX table_names_past_current ON projections.table_names_past (log_id, generation, key COLLATE "C", until)
    WHERE is_current;

ALTER TABLE projections.findings_past ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.scans_past ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.table_names_past ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON projections.findings_past FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.scans_past FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.table_names_past FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON projections.findings_past TO {projector} USING (true);
CREATE POLICY services ON projections.scans_past TO {projector} USING (true);
CREATE POLICY services ON projections.table_names_past TO {projector} USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON projections.findings_past, projections.scans_past, projections.table_names_past
    TO {projector};
GRANT SELECT ON projections.findings_past, projections.scans_past, projections.table_names_past TO {reader};
