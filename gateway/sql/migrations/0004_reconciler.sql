-- When the reconciler looks at a key again. Not guarded and not of the log: without these rows it looks at once.

CREATE TABLE gateway.reconcile_looks (
    log_id integer NOT NULL REFERENCES ledger.logs,
    key text NOT NULL,
    looks integer NOT NULL DEFAULT 0 CHECK (looks >= 0),
    looked_at timestamptz,
    next_look_at timestamptz,
    held_until timestamptz,
    read_to bigint NOT NULL DEFAULT 0 CHECK (read_to >= 0),
    explained text,
    PRIMARY KEY (log_id, key)
);
COMMENT ON TABLE gateway.reconcile_looks IS 'One row for each key of open decisions that have been looked at in vain.';
COMMENT ON COLUMN gateway.reconcile_looks.held_until IS 'Until then one process is looking, or has died doing so; null: nobody is.';
COMMENT ON COLUMN gateway.reconcile_looks.read_to IS 'Entries of the log before this index have been read for it.';
COMMENT ON COLUMN gateway.reconcile_looks.explained IS 'The metadata file that was last found, if another decision made it.';

ALTER TABLE gateway.reconcile_looks ENABLE ROW LEVEL SECURITY;
CREATE POLICY services ON gateway.reconcile_looks TO {gateway} USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway.reconcile_looks TO {gateway};
