-- Read models. Everything is keyed by log and generation; {projector} writes, a tenant's reader sees its own log's rows.
-- Graphs are no tables of this schema: {projector} owns them, a schema each (projections/graph).

CREATE SCHEMA projections;

CREATE TABLE projections.cursors (
    projection text NOT NULL,
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL CHECK (generation >= 1),
    version integer NOT NULL CHECK (version >= 1),
    next_index bigint NOT NULL DEFAULT 0 CHECK (next_index >= 0),
    PRIMARY KEY (projection, log_id, generation)
) WITH (fillfactor = 50);
COMMENT ON TABLE projections.cursors IS 'One row a generation: entries before next_index are in it, and no other.';

CREATE TABLE projections.live (
    projection text NOT NULL,
    log_id integer NOT NULL,
    generation integer NOT NULL,
    last_generation integer NOT NULL CHECK (last_generation >= generation),
    PRIMARY KEY (projection, log_id),
    FOREIGN KEY (projection, log_id, generation) REFERENCES projections.cursors
);
COMMENT ON TABLE projections.live IS
    'Which generation is read. Whoever locks the row writes that generation; last_generation only grows: no number twice.';

CREATE TABLE projections.commits (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    index bigint NOT NULL,
    group_id uuid NOT NULL,
    key text NOT NULL,
    recorded_at timestamptz NOT NULL,
    actor text NOT NULL,
    principal text,
    principal_source text NOT NULL,
    operation text NOT NULL,
    actions text[] NOT NULL,
    alias text NOT NULL,
    namespace text[] NOT NULL,
    name text,
    decision text NOT NULL,
    reason_id text,
    reason_version bigint,
    as_of bigint NOT NULL,
    policy_set text NOT NULL,
    request text NOT NULL,
    base text,
    table_uuid text,
    snapshots text[] NOT NULL,
    settled_index bigint,
    settled_at timestamptz,
    outcome text,
    evidence text,
    metadata_location text,
    metadata_sha256 text,
    PRIMARY KEY (log_id, generation, index)
);
COMMENT ON COLUMN projections.commits.principal IS
    'From the payload part `principal` of the entry at `index`, and nowhere else: erasing that part clears this field.';
CREATE INDEX commits_group ON projections.commits (log_id, generation, group_id);
-- A hash, because a key may be longer than an index entry can be.
CREATE INDEX commits_key ON projections.commits (log_id, generation, hashtextextended(key, 0), index);

CREATE TABLE projections.commit_counts (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    hour timestamptz NOT NULL,
    key text NOT NULL,
    actor text NOT NULL,
    operation text NOT NULL,
    decision text NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (log_id, generation, digest)
) WITH (fillfactor = 80);
COMMENT ON TABLE projections.commit_counts IS
    'Commits that reached their end, by hour of the decision; digest is SHA-256 of the canonical dimensions.';
CREATE INDEX commit_counts_hour ON projections.commit_counts (log_id, generation, hour);

CREATE TABLE projections.commit_totals (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    operation text NOT NULL,
    decision text NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (log_id, generation, digest)
) WITH (fillfactor = 80);
COMMENT ON TABLE projections.commit_totals IS 'The same, over all time, tables and actors: small enough to scrape.';

CREATE TABLE projections.open_commits (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    index bigint NOT NULL,
    group_id uuid NOT NULL,
    key text NOT NULL,
    recorded_at timestamptz NOT NULL,
    actor text NOT NULL,
    operation text NOT NULL,
    reason text NOT NULL,
    is_unknown boolean NOT NULL,
    PRIMARY KEY (log_id, generation, index)
);
COMMENT ON TABLE projections.open_commits IS 'Approved and not yet at an end; is_unknown if an outcome was asked for in vain.';
CREATE INDEX open_commits_group ON projections.open_commits (log_id, generation, group_id);

CREATE TABLE projections.access_refusals (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    operation text NOT NULL,
    reason text NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (log_id, generation, digest)
);
COMMENT ON TABLE projections.access_refusals IS 'Requests that were refused before any decision.';

ALTER TABLE projections.cursors ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.live ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.commits ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.commit_counts ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.commit_totals ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.open_commits ENABLE ROW LEVEL SECURITY;
ALTER TABLE projections.access_refusals ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON projections.cursors FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.live FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.commits FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.commit_counts FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.commit_totals FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.open_commits FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON projections.access_refusals FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));

-- {auditor} reads what names nobody: how far the projections are, and the totals.
CREATE POLICY services ON projections.cursors TO {projector}, {auditor} USING (true);
CREATE POLICY services ON projections.live TO {projector}, {auditor} USING (true);
CREATE POLICY services ON projections.commits TO {projector} USING (true);
CREATE POLICY services ON projections.commit_counts TO {projector} USING (true);
CREATE POLICY services ON projections.commit_totals TO {projector}, {auditor} USING (true);
CREATE POLICY services ON projections.open_commits TO {projector}, {auditor} USING (true);
CREATE POLICY services ON projections.access_refusals TO {projector}, {auditor} USING (true);

GRANT USAGE ON SCHEMA projections TO {projector}, {reader}, {auditor};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA projections TO {projector};
GRANT SELECT ON ALL TABLES IN SCHEMA projections TO {reader};
GRANT SELECT ON projections.cursors, projections.live, projections.commit_totals, projections.open_commits,
    projections.access_refusals TO {auditor};
