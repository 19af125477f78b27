-- Detection: what was scanned (guarded marks), and which ranges of which logs are worked on.

CREATE SCHEMA detection;

CREATE TABLE detection.marks (
    log_id integer NOT NULL REFERENCES ledger.logs,
    table_uuid text NOT NULL,
    snapshot text NOT NULL,
    ruleset text NOT NULL,
    scans integer NOT NULL DEFAULT 1 CHECK (scans >= 1),
    PRIMARY KEY (log_id, table_uuid, snapshot, ruleset)
);
COMMENT ON TABLE detection.marks IS
    'Guarded: a snapshot that was scanned, or failed to be; scans counts its scan.completed and scan.failed in the log.';

CREATE TABLE detection.batches (
    log_id integer NOT NULL REFERENCES ledger.logs,
    from_index bigint NOT NULL CHECK (from_index >= 0),
    to_index bigint NOT NULL CHECK (to_index > from_index),
    batch bigint NOT NULL CHECK (batch >= 1),
    state text NOT NULL DEFAULT 'pinned' CHECK (state IN ('pinned', 'postponed', 'finished')),
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    postponements integer NOT NULL DEFAULT 0 CHECK (postponements >= 0),
    due_at timestamptz NOT NULL DEFAULT now(),
    pinned_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    PRIMARY KEY (log_id, from_index)
);
COMMENT ON TABLE detection.batches IS
    'Ranges of entries, each pinned to a batch before it is planned: the offset of the stream is the number of a batch.';
COMMENT ON COLUMN detection.batches.due_at IS 'When a range whose storage did not answer is worked on again.';
CREATE INDEX batches_batch ON detection.batches (batch);
CREATE INDEX batches_open ON detection.batches (batch) WHERE state <> 'finished';

CREATE TABLE detection.positions (
    log_id integer PRIMARY KEY REFERENCES ledger.logs,
    next_index bigint NOT NULL CHECK (next_index >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE detection.positions IS 'Where the next range of a log begins: every entry before it was in one, or is of no interest.';

ALTER TABLE detection.marks ENABLE ROW LEVEL SECURITY;
ALTER TABLE detection.batches ENABLE ROW LEVEL SECURITY;
ALTER TABLE detection.positions ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON detection.marks FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON detection.batches FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON detection.positions FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON detection.marks TO {appender}, {auditor}, {detector} USING (true);
CREATE POLICY services ON detection.batches TO {detector}, {auditor} USING (true);
CREATE POLICY services ON detection.positions TO {detector}, {auditor} USING (true);

GRANT USAGE ON SCHEMA detection TO {appender}, {auditor}, {detector}, {reader};
GRANT SELECT ON detection.marks, detection.batches, detection.positions TO {auditor}, {detector}, {reader};
GRANT SELECT, INSERT, UPDATE ON detection.marks TO {appender};
GRANT INSERT, UPDATE, DELETE ON detection.batches TO {detector};
GRANT INSERT, UPDATE ON detection.positions TO {detector};

-- What detection has said, for whoever counts it.
CREATE INDEX entries_detection ON ledger.entries (log_id, type, index)
    WHERE type IN ('scan.completed', 'scan.failed', 'detection.found');
