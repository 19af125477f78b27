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
