-- SPDX-License-Identifier: Apache-2.0
-- name: begin_replay
-- A replay takes the place of the one before in its log, unless that still runs.
INSERT INTO gateway.policy_replays AS r (log_id, replay, actor, proposal, since)
VALUES (%(log_id)s, %(replay)s, %(actor)s, %(proposal)s, %(since)s)
ON CONFLICT (log_id) DO UPDATE SET
    replay = excluded.replay, actor = excluded.actor, proposal = excluded.proposal, since = excluded.since,
    started_at = DEFAULT, seen_at = DEFAULT, done = DEFAULT, total = DEFAULT, is_cancelled = DEFAULT, state = DEFAULT,
    trouble = DEFAULT, found = DEFAULT
WHERE r.state <> 'running' OR r.seen_at < now() - make_interval(secs => %(silent_s)s)
RETURNING replay

-- name: go_on_with_replay
-- How far a replay is. No row if it was cancelled, or another one has taken its place.
UPDATE gateway.policy_replays SET seen_at = now(), done = %(done)s, total = %(total)s
WHERE log_id = %(log_id)s AND replay = %(replay)s AND state = 'running' AND NOT is_cancelled
RETURNING replay

-- name: end_replay
-- What became of it.
UPDATE gateway.policy_replays
SET seen_at = now(), done = %(done)s, total = %(total)s, state = %(state)s, trouble = %(trouble)s, found = %(found)s
WHERE log_id = %(log_id)s AND replay = %(replay)s AND state = 'running'

-- name: cancel_replay
-- Its process stops it the next time that it says how far it is.
UPDATE gateway.policy_replays SET is_cancelled = true
WHERE log_id = %(log_id)s AND replay = %(replay)s AND state = 'running'
RETURNING replay

-- name: last_replay
-- The last one of a log.
SELECT replay, actor, proposal, since, started_at, done, total, is_cancelled, state, trouble, found,
       seen_at < now() - make_interval(secs => %(silent_s)s) AS is_silent,
       extract(epoch FROM CASE WHEN state = 'running' THEN now() ELSE seen_at END - started_at)::bigint AS ran_s
FROM gateway.policy_replays WHERE log_id = %(log_id)s
