-- Streams: how far each handler is in each log, who works where, what is to leave, and what could not be handled.
-- {streams} writes; a tenant's reader sees what became of its own log's messages.

CREATE SCHEMA streams;

CREATE TABLE streams.leases (
    duty text NOT NULL,
    log_id integer NOT NULL REFERENCES ledger.logs,
    lease uuid,
    free_at timestamptz NOT NULL DEFAULT '-infinity',
    failures integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
    PRIMARY KEY (duty, log_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE streams.leases IS
    'A duty (handler:<name>, sink:<name>) on one log is done under `lease` until free_at; then anybody may take it.';
COMMENT ON COLUMN streams.leases.free_at IS
    'Before it: leased, or put off after `failures` attempts in a row. Behind it: when it was last done.';

CREATE TABLE streams.cursors (
    handler text NOT NULL,
    log_id integer NOT NULL REFERENCES ledger.logs,
    next_index bigint NOT NULL DEFAULT 0 CHECK (next_index >= 0),
    handled bigint NOT NULL DEFAULT 0 CHECK (handled >= 0),
    PRIMARY KEY (handler, log_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE streams.cursors IS 'What the entries before next_index lead to is in the log, the outbox or the dead letters.';

CREATE TABLE streams.outbox (
    log_id integer NOT NULL REFERENCES ledger.logs,
    sink text NOT NULL,
    id text NOT NULL,
    position bigint GENERATED ALWAYS AS IDENTITY,
    key text NOT NULL,
    payload bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL DEFAULT '-infinity',
    attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    PRIMARY KEY (log_id, sink, id)
);
COMMENT ON TABLE streams.outbox IS
    'What a sink is to take; a row is removed when it has. The batches of a handler follow one another, so the positions '
    'of one handler''s messages are in the order of the log.';
CREATE INDEX outbox_position ON streams.outbox (sink, log_id, position);
-- The first message of a key that was put off: those behind it wait for it.
CREATE INDEX outbox_put_off ON streams.outbox (sink, log_id, hashtextextended(key, 0)) WHERE attempts > 0;

CREATE TABLE streams.dead_letters (
    log_id integer NOT NULL REFERENCES ledger.logs,
    source text NOT NULL,
    id text NOT NULL,
    index bigint,
    key text,
    payload bytea,
    reason text NOT NULL,
    died_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts integer NOT NULL DEFAULT 1 CHECK (attempts >= 1),
    PRIMARY KEY (log_id, source, id),
    CHECK ((index IS NULL) <> (payload IS NULL))
);
COMMENT ON TABLE streams.dead_letters IS
    'Messages that a handler cannot handle, or a sink refuses. An entry stays in the log (index); of others the payload is kept.';

ALTER TABLE streams.leases ENABLE ROW LEVEL SECURITY;
ALTER TABLE streams.cursors ENABLE ROW LEVEL SECURITY;
ALTER TABLE streams.outbox ENABLE ROW LEVEL SECURITY;
ALTER TABLE streams.dead_letters ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON streams.leases FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON streams.cursors FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON streams.outbox FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON streams.dead_letters FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));

-- {auditor} counts; what the messages say is not for it.
CREATE POLICY services ON streams.leases TO {streams}, {auditor} USING (true);
CREATE POLICY services ON streams.cursors TO {streams}, {auditor} USING (true);
CREATE POLICY services ON streams.outbox TO {streams}, {auditor} USING (true);
CREATE POLICY services ON streams.dead_letters TO {streams}, {auditor} USING (true);

GRANT USAGE ON SCHEMA streams TO {streams}, {reader}, {auditor};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA streams TO {streams};
GRANT SELECT ON ALL TABLES IN SCHEMA streams TO {reader};
GRANT SELECT ON streams.leases, streams.cursors TO {auditor};
GRANT SELECT (log_id, sink, position, created_at, due_at, attempts) ON streams.outbox TO {auditor};
GRANT SELECT (log_id, source, index, died_at, attempts) ON streams.dead_letters TO {auditor};
