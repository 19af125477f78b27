-- Replays of policies are jobs like the others: their rows move to gateway.jobs. A job says itself how long it is kept.

ALTER TABLE gateway.jobs
    ADD COLUMN kept interval CHECK (kept > interval '0'),
    DROP CONSTRAINT jobs_kind_check,
    DROP CONSTRAINT jobs_asked_check,
    ADD CONSTRAINT jobs_kind_check CHECK (kind IN ('evidence', 'rebuild', 'replay', 'policy_replay')),
    ADD CONSTRAINT jobs_asked_check
        CHECK (length(asked) <= CASE kind WHEN 'policy_replay' THEN 1049600 ELSE 16384 END),
    ADD CONSTRAINT jobs_result_check CHECK (kind <> 'policy_replay' OR length(result) <= 4194304);
COMMENT ON COLUMN gateway.jobs.kept IS
    'So long after its end it has expired; null: when another one of its kind and subject is asked for.';

UPDATE gateway.jobs SET kept = CASE kind WHEN 'evidence' THEN interval '1 hour' ELSE interval '24 hours' END;

-- A replay that runs now does so in a process of the version before, which cannot end it here.
INSERT INTO gateway.jobs
    (log_id, job, kind, subject, asked, actor, state, asked_at, began_at, seen_at, ended_at, done, total, result, problem)
SELECT
    r.log_id, r.replay, 'policy_replay', 'policies',
    json_build_object(
        'proposal', r.proposal::json,
        'since', to_char(r.since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    )::text,
    r.actor, CASE r.state WHEN 'running' THEN 'failed' ELSE r.state END,
    r.started_at, r.started_at, r.seen_at, r.seen_at, r.done, r.total, nullif(r.found, ''),
    CASE r.state
        WHEN 'running' THEN 'the process that did it has ended: nothing is left half done; ask for it again'
        ELSE nullif(r.trouble, '')
    END
FROM gateway.policy_replays AS r JOIN ledger.logs AS l ON l.log_id = r.log_id;

DROP TABLE gateway.policy_replays;
