-- Open decisions: approved, asked of a catalog elsewhere, and not yet known to have happened or not. Guarded rows.

CREATE TABLE gateway.open_decisions (
    log_id integer NOT NULL REFERENCES ledger.logs,
    decision uuid NOT NULL,
    key text NOT NULL,
    operation text NOT NULL,
    alias text NOT NULL,
    namespace text[] NOT NULL,
    name text,
    base text,
    table_uuid text,
    snapshots text[] NOT NULL,
    owner text NOT NULL CHECK (owner ~ '^[0-9a-f]{{32}}$'),
    deadline timestamptz NOT NULL,
    requirements text NOT NULL,
    result text CHECK (result ~ '^[0-9a-f]{{64}}$'),
    is_unknown boolean NOT NULL DEFAULT false,
    PRIMARY KEY (log_id, decision)
);
COMMENT ON TABLE gateway.open_decisions IS
    'Guarded: made by an approved commit.decided that has a part `forward`, removed by the commit.settled that ends it.';
COMMENT ON COLUMN gateway.open_decisions.decision IS 'The group of the commit.decided.';
COMMENT ON COLUMN gateway.open_decisions.deadline IS 'Until then the process `owner` is at work on it; from the part.';
COMMENT ON COLUMN gateway.open_decisions.requirements IS 'JSON: the requirements that the upstream was sent.';
COMMENT ON COLUMN gateway.open_decisions.result IS 'Digest of what it would make of the target; null: it would be gone.';
COMMENT ON COLUMN gateway.open_decisions.is_unknown IS 'True once an outcome was asked for in vain.';

CREATE INDEX open_decisions_deadline ON gateway.open_decisions (deadline);

ALTER TABLE gateway.open_decisions ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON gateway.open_decisions FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON gateway.open_decisions TO {appender}, {auditor}, {gateway} USING (true);

GRANT SELECT ON gateway.open_decisions TO {auditor}, {gateway}, {reader};
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway.open_decisions TO {appender};
