-- Erasure: who was erased, which erasures were carried out, and the role that does it. Keys are not in the database.

CREATE TABLE ledger.erased_subjects (
    log_id integer NOT NULL REFERENCES ledger.logs,
    subject text NOT NULL CHECK (subject ~ '^[0-9a-f]{{32}}$'),
    PRIMARY KEY (log_id, subject)
);
COMMENT ON TABLE ledger.erased_subjects IS
    'Guarded: written in the transaction of payload.erased. No part of these subjects is shown, whenever it was appended.';

CREATE TABLE ledger.erasures_done (
    log_id integer NOT NULL REFERENCES ledger.logs,
    index bigint NOT NULL,
    PRIMARY KEY (log_id, index)
);
COMMENT ON TABLE ledger.erasures_done IS
    'The payload.erased entries whose parts are deleted. A backup that is restored lacks the later ones: they run again.';

CREATE TABLE ledger.key_folder (
    id uuid NOT NULL,
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
COMMENT ON TABLE ledger.key_folder IS 'The name of the folder that holds the keys of sealed parts: no other one will do.';

CREATE INDEX entries_erasure ON ledger.entries (log_id, index) WHERE type = 'payload.erased';

ALTER TABLE ledger.erased_subjects ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.erasures_done ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.key_folder ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON ledger.erased_subjects FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY services ON ledger.erased_subjects TO {appender}, {projector}, {auditor}, {eraser} USING (true);
CREATE POLICY services ON ledger.erasures_done TO {eraser}, {auditor} USING (true);
CREATE POLICY services ON ledger.key_folder TO {eraser} USING (true);
CREATE POLICY eraser ON ledger.logs FOR SELECT TO {eraser} USING (true);
CREATE POLICY eraser ON ledger.heads FOR SELECT TO {eraser} USING (true);
CREATE POLICY eraser ON ledger.entries FOR SELECT TO {eraser} USING (true);
CREATE POLICY eraser ON ledger.parts TO {eraser} USING (true);
CREATE POLICY eraser ON ledger.subjects TO {eraser} USING (true);

GRANT USAGE ON SCHEMA ledger TO {eraser};
GRANT SELECT ON ledger.logs, ledger.heads, ledger.entries TO {eraser};
GRANT SELECT ON ledger.erased_subjects TO {appender}, {projector}, {auditor}, {reader}, {eraser};
GRANT INSERT ON ledger.erased_subjects TO {appender}, {eraser};
GRANT SELECT, INSERT ON ledger.erasures_done TO {eraser};
GRANT SELECT ON ledger.erasures_done TO {auditor};
GRANT SELECT, INSERT ON ledger.key_folder TO {eraser};
-- Whoever deletes parts need not read them.
GRANT SELECT (log_id, index, name, subject, key_id), DELETE ON ledger.parts TO {eraser};
GRANT SELECT (log_id, actor), DELETE ON ledger.subjects TO {eraser};
GRANT MAINTAIN ON ledger.parts, ledger.subjects TO {eraser};

-- An identity leaves no sample in the planner's statistics: those outlive its row.
ALTER TABLE ledger.subjects ALTER COLUMN identity SET STATISTICS 0;
