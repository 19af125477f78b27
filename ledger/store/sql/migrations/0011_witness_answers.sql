-- What each witness has answered last, so that others than the process that asks can tell how witnesses are. A state, and
-- no evidence: that is ledger.cosignatures.
CREATE TABLE ledger.witness_answers (
    log_id integer NOT NULL REFERENCES ledger.logs,
    witness text NOT NULL,
    size bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('cosigned', 'refused', 'away', 'not asked')),
    asked_at timestamptz NOT NULL,
    message text NOT NULL CHECK (length(message) <= 2000),
    PRIMARY KEY (log_id, witness)
);
COMMENT ON TABLE ledger.witness_answers IS 'One row a witness of the policy, by its name there; size is of the checkpoint.';

ALTER TABLE ledger.witness_answers ENABLE ROW LEVEL SECURITY;
CREATE POLICY services ON ledger.witness_answers TO {signer}, {auditor} USING (true);
GRANT SELECT ON ledger.witness_answers TO {signer}, {auditor};
GRANT INSERT, UPDATE ON ledger.witness_answers TO {signer};
