-- What people have said of findings: whether they are real, or none.

CREATE TABLE projections.finding_reviews (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    table_uuid text NOT NULL,
    field_id bigint NOT NULL,
    kind text NOT NULL,
    version bigint NOT NULL,
    index bigint NOT NULL,
    finding bigint NOT NULL,
    recorded_at timestamptz NOT NULL,
    actor text NOT NULL,
    verdict text NOT NULL CHECK (verdict IN ('confirmed', 'dismissed')),
    confidence_percent integer NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (log_id, generation, table_uuid, field_id, kind, version)
);
COMMENT ON TABLE projections.finding_reviews IS
    'Every review of a column and kind of a table. The one with the highest version holds, for what later scans find there, too; a finding that is surer (confidence_percent) than what was dismissed is open.';

ALTER TABLE projections.finding_reviews ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON projections.finding_reviews FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON projections.finding_reviews TO {projector}, {streams}, {detector} USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON projections.finding_reviews TO {projector};
GRANT SELECT ON projections.finding_reviews TO {reader}, {streams}, {detector};
