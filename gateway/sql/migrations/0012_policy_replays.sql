-- Replays of policies that were started over HTTP: how far one is, and what it found. The last one of each log. Not of
-- the log: what is attested is there.

CREATE TABLE gateway.policy_replays (
    log_id bigint PRIMARY KEY,
    replay uuid NOT NULL,
    actor text NOT NULL CHECK (length(actor) <= 64),
    proposal text NOT NULL CHECK (length(proposal) <= 1048576),
    since timestamptz NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    done bigint NOT NULL DEFAULT 0,
    total bigint NOT NULL DEFAULT 0,
    is_cancelled boolean NOT NULL DEFAULT false,
    state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'failed', 'cancelled')),
    trouble text NOT NULL DEFAULT '' CHECK (length(trouble) <= 4096),
    found text NOT NULL DEFAULT '' CHECK (length(found) <= 4194304)
);
COMMENT ON COLUMN gateway.policy_replays.seen_at IS
    'When the process that replays was last heard of: if that is long ago, it has ended, and the replay with it.';

ALTER TABLE gateway.policy_replays ENABLE ROW LEVEL SECURITY;
CREATE POLICY services ON gateway.policy_replays TO {gateway} USING (true);
GRANT SELECT, INSERT, UPDATE ON gateway.policy_replays TO {gateway};
