-- Which versions of which aggregates are recorded, and where: events and snapshots of applications that are written with
-- the eventsourcing library. The group's id and the position in it lead to the entry, so that nothing is added to the
-- indexes of ledger.entries, which every append pays for.

CREATE TABLE ledger.recorded_events (
    log_id integer NOT NULL REFERENCES ledger.logs,
    kind text NOT NULL CHECK (kind IN ('event', 'snapshot')),
    originator text NOT NULL,
    version bigint NOT NULL CHECK (version >= 0),
    group_id uuid NOT NULL,
    position integer NOT NULL CHECK (position >= 0),
    PRIMARY KEY (log_id, kind, originator, version)
);
COMMENT ON TABLE ledger.recorded_events IS 'Guarded: one row a version of an aggregate; of two writers one comes first.';

ALTER TABLE ledger.recorded_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON ledger.recorded_events FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON ledger.recorded_events TO {appender}, {auditor} USING (true);
GRANT SELECT ON ledger.recorded_events TO {appender}, {auditor}, {reader};
GRANT INSERT ON ledger.recorded_events TO {appender};
