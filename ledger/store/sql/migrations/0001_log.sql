-- The log: heads, entries, parts, tiles, checkpoints. FORMATS, "Tables".
-- {appender} inserts and moves heads; nobody but {owner} can change or delete what is written.

CREATE SCHEMA ledger;

CREATE TABLE ledger.logs (
    log_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin text NOT NULL UNIQUE,
    tenant uuid UNIQUE,
    reader name UNIQUE,
    CHECK ((tenant IS NULL) = (reader IS NULL))
);
COMMENT ON TABLE ledger.logs IS 'One row a log; the system log has no tenant and no reader role.';

CREATE TABLE ledger.heads (
    log_id integer PRIMARY KEY REFERENCES ledger.logs,
    size bigint NOT NULL DEFAULT 0 CHECK (size >= 0),
    last bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex') CHECK (length(last) = 32),
    frontier bytea NOT NULL DEFAULT '' CHECK (length(frontier) = 32 * bit_count(size::bit(64))),
    control_index bigint NOT NULL DEFAULT -1 CHECK (control_index < size),
    recorded_at timestamptz
) WITH (fillfactor = 10);
COMMENT ON TABLE ledger.heads IS 'The sequencer: whoever holds the row lock appends. Loose pages keep its updates in place (HOT).';

-- No foreign key from here on: its check would run for every row (a fifth of the cost of an append) and can find nothing,
-- since rows come from the transaction that holds the log's head, entries with their parts and tiles together.
CREATE TABLE ledger.entries (
    log_id integer NOT NULL,
    index bigint NOT NULL,
    entry bytea NOT NULL CHECK (length(entry) <= 65535),
    leaf bytea NOT NULL CHECK (length(leaf) = 32),
    type text NOT NULL,
    key text NOT NULL,
    is_control boolean NOT NULL,
    group_id uuid,
    PRIMARY KEY (log_id, index)
);
ALTER TABLE ledger.entries ALTER COLUMN entry SET STORAGE MAIN;
CREATE UNIQUE INDEX entries_group ON ledger.entries (log_id, group_id) WHERE group_id IS NOT NULL;
CREATE INDEX entries_control ON ledger.entries (log_id, index) WHERE is_control;
CREATE INDEX entries_control_key ON ledger.entries (log_id, key, index) WHERE is_control;

CREATE TABLE ledger.parts (
    log_id integer NOT NULL,
    index bigint NOT NULL,
    name text NOT NULL,
    subject text,
    key_id uuid,
    sealed bytea NOT NULL,
    PRIMARY KEY (log_id, index, name)
);
CREATE INDEX parts_subject ON ledger.parts (log_id, subject) WHERE subject IS NOT NULL;

CREATE TABLE ledger.tiles (
    log_id integer NOT NULL,
    level smallint NOT NULL CHECK (level BETWEEN 0 AND 7),
    tile bigint NOT NULL CHECK (tile >= 0),
    hashes bytea NOT NULL CHECK (length(hashes) = 8192),
    PRIMARY KEY (log_id, level, tile)
);

CREATE TABLE ledger.checkpoints (
    log_id integer NOT NULL REFERENCES ledger.logs,
    size bigint NOT NULL,
    note bytea NOT NULL,
    PRIMARY KEY (log_id, size)
);

CREATE TABLE ledger.subjects (
    log_id integer NOT NULL REFERENCES ledger.logs,
    actor text NOT NULL CHECK (actor ~ '^[0-9a-f]{{32}}$'),
    identity text NOT NULL,
    PRIMARY KEY (log_id, actor),
    UNIQUE (log_id, identity)
);
COMMENT ON TABLE ledger.subjects IS 'Who an actor is. Erasing a person deletes the row; the log keeps 128 random bits.';

CREATE TABLE ledger.aggregates (
    log_id integer NOT NULL REFERENCES ledger.logs,
    key text NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    PRIMARY KEY (log_id, key)
);
COMMENT ON TABLE ledger.aggregates IS 'Guarded: the version of everything people edit (policies, keys, catalogs).';

-- Row-level security: a tenant's reader role sees the rows of its own log and nothing else.
CREATE FUNCTION ledger.log_of(reader name) RETURNS integer
    LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE SET search_path = ''
    RETURN (SELECT log_id FROM ledger.logs WHERE logs.reader = log_of.reader);

ALTER TABLE ledger.logs ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.heads ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.parts ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.tiles ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.subjects ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger.aggregates ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON ledger.logs FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.heads FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.entries FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.parts FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.tiles FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.checkpoints FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.subjects FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));
CREATE POLICY tenant ON ledger.aggregates FOR SELECT USING (log_id = (SELECT ledger.log_of(current_user)));

-- Services that work across tenants: a batch spans tenants, a checkpoint round all logs.
CREATE POLICY services ON ledger.logs TO {appender}, {signer}, {projector}, {auditor} USING (true);
CREATE POLICY services ON ledger.heads TO {appender}, {signer}, {projector}, {auditor} USING (true);
CREATE POLICY services ON ledger.entries TO {appender}, {signer}, {projector}, {auditor} USING (true);
CREATE POLICY services ON ledger.parts TO {appender}, {projector} USING (true);
CREATE POLICY services ON ledger.tiles TO {appender}, {signer}, {projector}, {auditor} USING (true);
CREATE POLICY services ON ledger.checkpoints TO {appender}, {signer}, {projector}, {auditor} USING (true);
CREATE POLICY services ON ledger.subjects TO {appender}, {projector} USING (true);
CREATE POLICY services ON ledger.aggregates TO {appender}, {auditor} USING (true);

GRANT USAGE ON SCHEMA ledger TO {appender}, {signer}, {projector}, {auditor}, {reader};
GRANT EXECUTE ON FUNCTION ledger.log_of(name) TO PUBLIC;
GRANT SELECT ON ledger.logs, ledger.heads, ledger.entries, ledger.tiles, ledger.checkpoints
    TO {appender}, {signer}, {projector}, {auditor}, {reader};
GRANT SELECT ON ledger.parts, ledger.subjects TO {appender}, {projector}, {reader};
GRANT SELECT ON ledger.aggregates TO {appender}, {auditor}, {reader};
GRANT INSERT ON ledger.entries, ledger.parts, ledger.tiles, ledger.subjects TO {appender};
GRANT UPDATE ON ledger.heads TO {appender};
GRANT INSERT, UPDATE ON ledger.aggregates TO {appender};
GRANT INSERT ON ledger.checkpoints TO {signer};
