-- Which decision names a snapshot, and which table has a uuid: asked for every metadata file that is seen.
CREATE INDEX commits_snapshots ON projections.commits USING gin (snapshots);
CREATE INDEX commits_table_uuid ON projections.commits (log_id, generation, table_uuid, index)
    WHERE table_uuid IS NOT NULL;
