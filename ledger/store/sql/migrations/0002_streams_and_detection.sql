-- Two more services read every log: streams and detection. Payload parts are not for them.

CREATE POLICY streams_and_detection ON ledger.logs FOR SELECT TO {streams}, {detector} USING (true);
CREATE POLICY streams_and_detection ON ledger.heads FOR SELECT TO {streams}, {detector} USING (true);
CREATE POLICY streams_and_detection ON ledger.entries FOR SELECT TO {streams}, {detector} USING (true);

GRANT USAGE ON SCHEMA ledger TO {streams}, {detector};
GRANT SELECT ON ledger.logs, ledger.heads, ledger.entries TO {streams}, {detector};

-- A reader of one type of entry (triggers, findings) finds them without reading the rest.
CREATE INDEX entries_trigger ON ledger.entries (log_id, index)
    WHERE type IN ('trigger.received', 'commit.settled', 'commit.observed', 'scan.requested');
