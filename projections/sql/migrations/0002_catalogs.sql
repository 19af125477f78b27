-- The catalogs of each tenant as its log has them: streams and detection find a table's storage by its alias.

CREATE TABLE projections.catalogs (
    log_id integer NOT NULL REFERENCES ledger.logs,
    generation integer NOT NULL,
    alias text NOT NULL,
    kind text NOT NULL,
    options jsonb NOT NULL,
    is_retired boolean NOT NULL,
    PRIMARY KEY (log_id, generation, alias)
);

ALTER TABLE projections.catalogs ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON projections.catalogs FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON projections.catalogs TO {projector}, {streams}, {detector} USING (true);
CREATE POLICY streams_and_detection ON projections.cursors FOR SELECT TO {streams}, {detector} USING (true);
CREATE POLICY streams_and_detection ON projections.live FOR SELECT TO {streams}, {detector} USING (true);
CREATE POLICY streams_and_detection ON projections.commits FOR SELECT TO {streams}, {detector} USING (true);

GRANT USAGE ON SCHEMA projections TO {streams}, {detector};
GRANT SELECT, INSERT, UPDATE, DELETE ON projections.catalogs TO {projector};
GRANT SELECT ON projections.catalogs TO {reader}, {streams}, {detector};
GRANT SELECT ON projections.cursors, projections.live TO {streams}, {detector};
-- Everything about a commit but who asked for it.
GRANT SELECT (
    log_id, generation, index, group_id, key, recorded_at, actor, operation, actions, alias, namespace, name, decision,
    as_of, base, table_uuid, snapshots, settled_index, settled_at, outcome, evidence, metadata_location, metadata_sha256
) ON projections.commits TO {streams}, {detector};
