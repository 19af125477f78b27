-- What was made from what, as OpenLineage tells it, with data sets resolved to tables; and the edges that were not drawn.
-- Keys are at most 1,024 bytes where two of them share an index entry (projections.graph.labels.bounded_key).

CREATE TABLE projections.lineage_catalogs (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    alias text NOT NULL,
    uri text,
    location text,
    is_retired boolean NOT NULL,
    PRIMARY KEY (log_id, generation, alias)
);
COMMENT ON TABLE projections.lineage_catalogs IS 'Where each catalog is and where its tables lie, if it says so.';

CREATE TABLE projections.lineage_tables (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    key text NOT NULL,
    alias text NOT NULL,
    name text NOT NULL,
    location text,
    table_uuid text,
    is_dropped boolean NOT NULL,
    PRIMARY KEY (log_id, generation, key)
);
COMMENT ON COLUMN projections.lineage_tables.name IS 'Namespace levels and name joined by dots, as engines write it.';
-- A hash, because a name may be longer than an index entry can be; below, too.
CREATE INDEX lineage_tables_name ON projections.lineage_tables (log_id, generation, hashtextextended(name, 0));

CREATE TABLE projections.lineage_locations (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    location text NOT NULL,
    key text NOT NULL,
    PRIMARY KEY (log_id, generation, digest)
);
COMMENT ON TABLE projections.lineage_locations IS 'The last table at each location; digest is SHA-256 of the location.';

CREATE TABLE projections.lineage_snapshots (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    snapshot text NOT NULL,
    key text NOT NULL,
    PRIMARY KEY (log_id, generation, snapshot, key)
);

CREATE TABLE projections.lineage_events (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    index bigint NOT NULL,
    group_id uuid NOT NULL,
    keys text[] NOT NULL,
    PRIMARY KEY (log_id, generation, index)
);
COMMENT ON TABLE projections.lineage_events IS
    'What each data set of an event resolved to at its place in the log, in the order of its `datasets`.';
CREATE INDEX lineage_events_group ON projections.lineage_events (log_id, generation, group_id);

CREATE TABLE projections.lineage_edges (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    source text NOT NULL,
    target text NOT NULL,
    first_index bigint NOT NULL,
    last_index bigint NOT NULL,
    job text,
    run_id text,
    count bigint NOT NULL,
    PRIMARY KEY (log_id, generation, source, target)
) WITH (fillfactor = 80);
COMMENT ON TABLE projections.lineage_edges IS
    'The target was made from the source; acyclic. job and run_id are of the last event that told of it, count of all.';
CREATE INDEX lineage_edges_target ON projections.lineage_edges (log_id, generation, target);

CREATE TABLE projections.lineage_columns (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    source text NOT NULL,
    source_column text NOT NULL,
    target text NOT NULL,
    target_column text NOT NULL,
    first_index bigint NOT NULL,
    last_index bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (log_id, generation, digest)
) WITH (fillfactor = 80);
COMMENT ON TABLE projections.lineage_columns IS
    'digest is SHA-256 of the canonical names; an empty target_column stands for every column of the target.';
CREATE INDEX lineage_columns_source ON projections.lineage_columns (log_id, generation, source);
CREATE INDEX lineage_columns_target ON projections.lineage_columns (log_id, generation, target);

CREATE TABLE projections.lineage_cycles (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    index bigint NOT NULL,
    group_id uuid NOT NULL,
    source text NOT NULL,
    target text NOT NULL,
    path text[] NOT NULL,
    told_index bigint,
    PRIMARY KEY (log_id, generation, index, source, target)
);
COMMENT ON TABLE projections.lineage_cycles IS
    'Edges that were not drawn; path leads from the target to the source. told_index: the entry that tells of it, if any.';
CREATE INDEX lineage_cycles_untold ON projections.lineage_cycles (log_id, generation) WHERE told_index IS NULL;

CREATE TABLE projections.lineage_jobs (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    job text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    first_index bigint NOT NULL,
    last_index bigint NOT NULL,
    PRIMARY KEY (log_id, generation, job)
);

CREATE TABLE projections.lineage_runs (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    run_id text NOT NULL,
    job text,
    engine text,
    state text NOT NULL,
    event_time text NOT NULL,
    first_index bigint NOT NULL,
    last_index bigint NOT NULL,
    PRIMARY KEY (log_id, generation, run_id)
);
COMMENT ON TABLE projections.lineage_runs IS 'state and event_time are of the last event of the run in the order of the log.';

ALTER TABLE projections.lineage_catalogs ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_tables ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_locations ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_snapshots ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_edges ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_columns ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_cycles ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.lineage_runs ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON projections.lineage_catalogs FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_tables FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_locations FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_snapshots FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_events FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_edges FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_columns FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_cycles FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_jobs FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.lineage_runs FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));

CREATE POLICY services ON projections.lineage_catalogs TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_tables TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_locations TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_snapshots TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_events TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_edges TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_columns TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_cycles TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_jobs TO {projector} USING (true);
CREATE POLICY services ON projections.lineage_runs TO {projector} USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON projections.lineage_catalogs, projections.lineage_tables,
    projections.lineage_locations, projections.lineage_snapshots, projections.lineage_events, projections.lineage_edges,
    projections.lineage_columns, projections.lineage_cycles, projections.lineage_jobs, projections.lineage_runs
    TO {projector};
GRANT SELECT ON projections.lineage_catalogs, projections.lineage_tables, projections.lineage_locations,
    projections.lineage_snapshots, projections.lineage_events, projections.lineage_edges, projections.lineage_columns,
    projections.lineage_cycles, projections.lineage_jobs, projections.lineage_runs TO {reader};
