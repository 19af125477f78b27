-- Reviews of findings, few among many entries: what was known of a table at a place of the log is made of them, and of what
-- detection has said (`entries_detection`), without a look at what lies between.
CREATE INDEX entries_review ON ledger.entries (log_id, index) WHERE type = 'finding.reviewed';
