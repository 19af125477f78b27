-- Messages that lead to hosts which others run: put aside by host, so that one that never answers holds up no log.
-- {streams} writes; a tenant's reader sees what became of its own log's messages.

CREATE TABLE streams.hosts (
    log_id integer NOT NULL REFERENCES ledger.logs,
    handler text NOT NULL,
    host text NOT NULL,
    is_quick boolean NOT NULL DEFAULT false,
    failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    failing_since timestamptz,
    reason text,
    lease uuid,
    free_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    served_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (log_id, handler, host)
) WITH (fillfactor = 50);
COMMENT ON TABLE streams.hosts IS
    'How a host answers what messages of a log make a handler ask of it. It is asked under `lease` until free_at.';
COMMENT ON COLUMN streams.hosts.is_quick IS 'Whether it answered soon when it was last asked; one that is new has yet to show it.';
COMMENT ON COLUMN streams.hosts.failures IS 'How often in a row it did not answer, since failing_since.';

CREATE TABLE streams.deferred (
    log_id integer NOT NULL,
    handler text NOT NULL,
    index bigint NOT NULL,
    host text NOT NULL,
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    deferred_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (log_id, handler, index),
    FOREIGN KEY (log_id, handler, host) REFERENCES streams.hosts
);
COMMENT ON TABLE streams.deferred IS
    'Entries that a cursor has passed and whose handler has yet to ask a host. A row goes with what the answer leads to, '
    'or becomes a dead letter.';
CREATE INDEX deferred_due ON streams.deferred (log_id, handler, host, due_at);

ALTER TABLE streams.hosts ENABLE ROW LEVEL SECURITY;
ALTER TABLE streams.deferred ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON streams.hosts FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON streams.deferred FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));

-- {auditor} counts; which hosts a tenant has named is not for it.
CREATE POLICY services ON streams.hosts TO {streams}, {auditor} USING (true);
CREATE POLICY services ON streams.deferred TO {streams}, {auditor} USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON streams.hosts, streams.deferred TO {streams};
GRANT SELECT ON streams.hosts, streams.deferred TO {reader};
GRANT SELECT (log_id, handler, is_quick, failures, failing_since) ON streams.hosts TO {auditor};
GRANT SELECT (log_id, handler, index, attempts, deferred_at, due_at) ON streams.deferred TO {auditor};
