-- What a run tells, put together from its events; refusals once and counted; what is not drawn; cycles that are kept.

ALTER TABLE projections.lineage_runs
    ADD COLUMN is_complete boolean NOT NULL DEFAULT false,
    ADD COLUMN inputs jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN outputs jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN derived jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN columns jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN judged integer NOT NULL DEFAULT 0;
COMMENT ON TABLE projections.lineage_runs IS
    'state and event_time are of the latest event by its own time, one that ends the run first. inputs and outputs are '
    '[key, version], derived [source, target]; columns wait for the run to complete.';

ALTER TABLE projections.lineage_edges
    ADD COLUMN source_version text,
    ADD COLUMN target_version text,
    ADD COLUMN is_kept boolean NOT NULL DEFAULT false;
COMMENT ON TABLE projections.lineage_edges IS
    'The target was made from the source; job, run_id and versions are of the last one that told of it, count of all. '
    'Acyclic but for what is_kept: an edge between versions that closes a cycle, and that the tenant has set to keep.';

ALTER TABLE projections.lineage_events
    ADD COLUMN refused jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN omitted jsonb NOT NULL DEFAULT '{{}}';
COMMENT ON COLUMN projections.lineage_events.refused IS 'The edges that it told of and that were not drawn: [source, target].';

-- Generations of the version before are read until they are built again: their refusals stay, each once.
UPDATE projections.lineage_events AS e SET refused = c.refused
FROM (
    SELECT log_id, generation, index, jsonb_agg(jsonb_build_array(source, target)) AS refused
    FROM projections.lineage_cycles GROUP BY log_id, generation, index
) AS c
WHERE e.log_id = c.log_id AND e.generation = c.generation AND e.index = c.index;

ALTER TABLE projections.lineage_cycles
    ADD COLUMN last_index bigint,
    ADD COLUMN count bigint NOT NULL DEFAULT 1;
UPDATE projections.lineage_cycles AS c SET last_index = a.last_index, count = a.count
FROM (
    SELECT log_id, generation, source, target, max(index) AS last_index, count(*) AS count
    FROM projections.lineage_cycles GROUP BY log_id, generation, source, target
) AS a
WHERE c.log_id = a.log_id AND c.generation = a.generation AND c.source = a.source AND c.target = a.target;
DELETE FROM projections.lineage_cycles AS c USING projections.lineage_cycles AS first
WHERE c.log_id = first.log_id AND c.generation = first.generation AND c.source = first.source
  AND c.target = first.target AND first.index < c.index;
ALTER TABLE projections.lineage_cycles
    ALTER COLUMN last_index SET NOT NULL,
    ALTER COLUMN count DROP DEFAULT,
    DROP CONSTRAINT lineage_cycles_pkey,
    ADD PRIMARY KEY (log_id, generation, source, target);
CREATE INDEX lineage_cycles_target ON projections.lineage_cycles (log_id, generation, target);
COMMENT ON TABLE projections.lineage_cycles IS
    'Edges that were not drawn, each once; path leads from the target to the source. index and group_id are of the first '
    'event that told of it, last_index and count of all. told_index: the entry that tells of it, if any.';

CREATE TABLE projections.lineage_omitted (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    key text NOT NULL,
    columns bigint NOT NULL,
    datasets bigint NOT NULL,
    names bigint NOT NULL,
    edges bigint NOT NULL,
    ambiguous bigint NOT NULL,
    refused bigint NOT NULL,
    PRIMARY KEY (log_id, generation, key)
) WITH (fillfactor = 80);
COMMENT ON TABLE projections.lineage_omitted IS
    'How much events told about a table or data set that is not drawn; see projections/lineage/runs.py, Omitted.';

CREATE TABLE projections.lineage_settings (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    keeps_cycles boolean NOT NULL,
    PRIMARY KEY (log_id, generation)
);
COMMENT ON TABLE projections.lineage_settings IS 'What the tenant has set; without a row, the defaults.';

ALTER TABLE projections.lineage_omitted ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_settings ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON projections.lineage_omitted FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_settings FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON projections.lineage_omitted TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_settings TO {projector} USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON projections.lineage_omitted, projections.lineage_settings TO {projector};
GRANT SELECT ON projections.lineage_omitted, projections.lineage_settings TO {reader};
