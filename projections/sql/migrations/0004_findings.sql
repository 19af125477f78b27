-- What triggers, streams and detection have told, as tables: scans, findings, alerts, snapshots behind the gateway's back.

CREATE TABLE projections.scans (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    snapshot text NOT NULL,
    ruleset text NOT NULL,
    index bigint NOT NULL,
    recorded_at timestamptz NOT NULL,
    key text,
    status text NOT NULL CHECK (status IN ('completed', 'failed')),
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
    PRIMARY KEY (log_id, generation, table_uuid, snapshot, ruleset)
);
COMMENT ON TABLE projections.scans IS 'The last scan of each snapshot under each ruleset; key is null for a table that no catalog names.';
CREATE INDEX scans_index ON projections.scans (log_id, generation, index);

CREATE TABLE projections.findings (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    snapshot text NOT NULL,
    ruleset text NOT NULL,
    field_id bigint NOT NULL,
    kind text NOT NULL,
    index bigint NOT NULL,
    group_id uuid NOT NULL,
    recorded_at timestamptz NOT NULL,
    key text NOT NULL,
    column_path text NOT NULL,
    confidence_percent integer NOT NULL,
    matches bigint NOT NULL,
    not_null bigint NOT NULL,
    PRIMARY KEY (log_id, generation, table_uuid, snapshot, ruleset, field_id, kind)
);
COMMENT ON TABLE projections.findings IS
    'What the last scan of each snapshot found, one row a column and kind; never a value. key is the event key of its entry.';
CREATE INDEX findings_index ON projections.findings (log_id, generation, index);
-- A hash, because a key may be longer than an index entry can be.
CREATE INDEX findings_key ON projections.findings (log_id, generation, hashtextextended(key, 0), index);

CREATE TABLE projections.alerts (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    index bigint NOT NULL,
    group_id uuid NOT NULL,
    recorded_at timestamptz NOT NULL,
    key text NOT NULL,
    finding text NOT NULL,
    table_uuid text NOT NULL,
    snapshot text NOT NULL,
    field_id bigint NOT NULL,
    column_path text NOT NULL,
    kind text NOT NULL,
    confidence_percent integer NOT NULL,
    PRIMARY KEY (log_id, generation, index)
);
COMMENT ON TABLE projections.alerts IS 'Alerts that were raised; alert_deliveries says who has taken them.';

CREATE TABLE projections.alert_deliveries (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    alert text NOT NULL,
    sink text NOT NULL,
    index bigint NOT NULL,
    recorded_at timestamptz NOT NULL,
    attempt bigint NOT NULL,
    PRIMARY KEY (log_id, generation, alert, sink)
);
COMMENT ON TABLE projections.alert_deliveries IS 'The first delivery of each alert (its group id) to each sink.';

CREATE TABLE projections.trigger_counts (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    source text NOT NULL,
    triggers bigint NOT NULL,
    files bigint NOT NULL,
    last_index bigint NOT NULL,
    last_at timestamptz NOT NULL,
    PRIMARY KEY (log_id, generation, source)
) WITH (fillfactor = 50);
COMMENT ON TABLE projections.trigger_counts IS 'How much has come from each source, and when the last of it.';

CREATE TABLE projections.ungoverned (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    snapshot text NOT NULL,
    index bigint NOT NULL,
    recorded_at timestamptz NOT NULL,
    key text,
    metadata_location text NOT NULL,
    operation text,
    parent text,
    trigger text,
    PRIMARY KEY (log_id, generation, table_uuid, snapshot)
);
COMMENT ON TABLE projections.ungoverned IS 'Snapshots that no approved decision names, as they were first observed.';
CREATE INDEX ungoverned_index ON projections.ungoverned (log_id, generation, index);

CREATE TABLE projections.event_totals (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    event text NOT NULL,
    kind text NOT NULL,
    degree text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (log_id, generation, event, kind, degree)
) WITH (fillfactor = 50);
COMMENT ON TABLE projections.event_totals IS
    'Metrics: events by type and what their type is told apart by (source, kind, fault, sink; confidence). Names nobody.';

ALTER TABLE projections.scans ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.findings ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.alerts ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.alert_deliveries ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.trigger_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.ungoverned ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.event_totals ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON projections.scans FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.findings FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.alerts FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.alert_deliveries FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.trigger_counts FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.ungoverned FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.event_totals FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));

-- {auditor} reads the totals alone.
CREATE POLICY services ON projections.scans TO {projector}, {streams}, {detector} USING (true);
CREATE POLICY services ON projections.findings TO {projector}, {streams}, {detector} USING (true);
CREATE POLICY services ON projections.alerts TO {projector}, {streams}, {detector} USING (true);
CREATE POLICY services ON projections.alert_deliveries TO {projector}, {streams}, {detector} USING (true);
CREATE POLICY services ON projections.trigger_counts TO {projector}, {streams}, {detector}, {auditor} USING (true);
CREATE POLICY services ON projections.ungoverned TO {projector}, {streams}, {detector} USING (true);
CREATE POLICY services ON projections.event_totals TO {projector}, {auditor} USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON projections.scans, projections.findings, projections.alerts,
    projections.alert_deliveries, projections.trigger_counts, projections.ungoverned, projections.event_totals
    TO {projector};
GRANT SELECT ON projections.scans, projections.findings, projections.alerts, projections.alert_deliveries,
    projections.trigger_counts, projections.ungoverned TO {reader}, {streams}, {detector};
GRANT SELECT ON projections.event_totals TO {reader};
GRANT SELECT ON projections.trigger_counts, projections.event_totals TO {auditor};
