-- Which heads the signer has compared with its last note, and since which start of the server that holds.
-- A restored or failed-over database comes up with another start time: nothing is appended to its logs until the signer,
-- whose notes lie outside of it, has seen that their history goes on.

CREATE TABLE ledger.confirmations (
    log_id integer PRIMARY KEY REFERENCES ledger.logs,
    size bigint NOT NULL CHECK (size >= 0),
    server_started_at timestamptz NOT NULL
);
COMMENT ON TABLE ledger.confirmations IS 'The Appender takes nothing for a log whose row is not of this start of the server.';

ALTER TABLE ledger.confirmations ENABLE ROW LEVEL SECURITY;
CREATE POLICY services ON ledger.confirmations TO {appender}, {signer}, {auditor} USING (true);
GRANT SELECT ON ledger.confirmations TO {appender}, {signer}, {auditor};
GRANT INSERT, UPDATE ON ledger.confirmations TO {signer};
