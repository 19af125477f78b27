-- Jobs: what people asked for over HTTP and another process does. Not of the log: a job whose row is lost is asked for again.

CREATE TABLE gateway.jobs (
    log_id integer NOT NULL REFERENCES ledger.logs,
    job uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('evidence', 'rebuild', 'replay')),
    subject text NOT NULL CHECK (length(subject) <= 100),
    asked text NOT NULL CHECK (length(asked) <= 16384),
    actor text NOT NULL,
    state text NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'running', 'cancelling', 'done', 'failed', 'cancelled')),
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    began_at timestamptz,
    seen_at timestamptz,
    ended_at timestamptz,
    done bigint NOT NULL DEFAULT 0 CHECK (done >= 0),
    total bigint CHECK (total >= 0),
    result text,
    problem text,
    PRIMARY KEY (log_id, job),
    CHECK ((ended_at IS NULL) = (state IN ('waiting', 'running', 'cancelling')))
);
COMMENT ON COLUMN gateway.jobs.subject IS 'What it is about: of one kind and subject, one job at a time is under way.';
COMMENT ON COLUMN gateway.jobs.asked IS 'JSON: what was asked for.';
COMMENT ON COLUMN gateway.jobs.seen_at IS 'When the process that does it said so last; long ago: it has died.';
COMMENT ON COLUMN gateway.jobs.done IS 'How far it is, of `total`; null: not known yet.';
COMMENT ON COLUMN gateway.jobs.result IS 'JSON: what came of it, if it is done.';
COMMENT ON COLUMN gateway.jobs.problem IS 'Why it failed, and what to do.';

CREATE UNIQUE INDEX jobs_under_way ON gateway.jobs (log_id, kind, subject)
    WHERE state IN ('waiting', 'running', 'cancelling');
CREATE INDEX jobs_state ON gateway.jobs (kind, state, asked_at);

ALTER TABLE gateway.jobs ENABLE ROW LEVEL SECURITY;
CREATE POLICY services ON gateway.jobs TO {gateway} USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway.jobs TO {gateway};
