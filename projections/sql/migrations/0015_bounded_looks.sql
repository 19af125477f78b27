-- Edges of lineage are read in the order of their ends, bytewise: of a table from which thousands were made, the first ones
-- alone. Two keys are part of one index entry, each of at most 1,024 bytes.
ALTER TABLE projections.lineage_edges ALTER COLUMN source TYPE text COLLATE "C", ALTER COLUMN target TYPE text COLLATE "C";
DROP INDEX projections.lineage_edges_target;
CREATE INDEX lineage_edges_target ON projections.lineage_edges (log_id, generation, target, source);

ALTER TABLE projections.lineage_columns
    ALTER COLUMN source TYPE text COLLATE "C", ALTER COLUMN target TYPE text COLLATE "C";
DROP INDEX projections.lineage_columns_source, projections.lineage_columns_target;
CREATE INDEX lineage_columns_source ON projections.lineage_columns (log_id, generation, source, target);
CREATE INDEX lineage_columns_target ON projections.lineage_columns (log_id, generation, target, source);

-- Who made a table is found among its commits by an index of those that make one.
CREATE INDEX commits_that_make ON projections.commits (log_id, generation, table_uuid, index)
    WHERE operation IN ('table.create', 'table.register') AND outcome = 'accepted';

-- Commits by hour, over all tables and actors: what a day's chart adds up does not grow with the tables of a tenant.
CREATE TABLE projections.commit_hours (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    hour timestamptz NOT NULL,
    operation text NOT NULL,
    decision text NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (log_id, generation, digest)
) WITH (fillfactor = 80);
COMMENT ON TABLE projections.commit_hours IS 'Commits that reached their end, by hour of the decision, over all tables and actors.';
CREATE INDEX commit_hours_hour ON projections.commit_hours (log_id, generation, hour);

-- Generations of the version before are read until they are built again. Their digests do not have these rows.
INSERT INTO projections.commit_hours (log_id, generation, digest, hour, operation, decision, outcome, reason, count)
SELECT log_id, generation, sha256(convert_to(concat_ws(E'\n', hour, operation, decision, outcome, reason), 'UTF8')),
       hour, operation, decision, outcome, reason, sum(count)
FROM projections.commit_counts
GROUP BY log_id, generation, hour, operation, decision, outcome, reason;

ALTER TABLE projections.commit_hours ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON projections.commit_hours FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON projections.commit_hours TO {projector} USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON projections.commit_hours TO {projector};
GRANT SELECT ON projections.commit_hours TO {reader};
