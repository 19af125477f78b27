-- SPDX-License-Identifier: Apache-2.0
-- name: one_at_a_time
-- Until the transaction ends, nobody else asks for a job in this log: they are counted first.
SELECT pg_advisory_xact_lock(hashtextextended('gateway.jobs', %(log_id)s))

-- name: under_way
-- The job of a kind and subject that has not ended.
SELECT * FROM gateway.jobs
WHERE log_id = %(log_id)s AND kind = %(kind)s AND subject = %(subject)s AND ended_at IS NULL

-- name: count
-- How many jobs of a log have not ended, and how many of a kind either have not, or have a file.
SELECT
    count(*) FILTER (WHERE ended_at IS NULL),
    count(*) FILTER (WHERE kind = %(kind)s AND (ended_at IS NULL OR (%(has_files)s AND state = 'done')))
FROM gateway.jobs
WHERE log_id = %(log_id)s AND (ended_at + kept > clock_timestamp()) IS NOT FALSE

-- name: trim
-- Of those that have ended and left no file, the newest stay, and none whose place another one of its subject takes.
DELETE FROM gateway.jobs
WHERE log_id = %(log_id)s AND kind = %(kind)s AND ended_at IS NOT NULL AND NOT (kind = 'evidence' AND state = 'done')
    AND (
        (kept IS NULL AND subject = %(subject)s)
        OR job NOT IN (
            SELECT job FROM gateway.jobs
            WHERE log_id = %(log_id)s AND kind = %(kind)s AND ended_at IS NOT NULL
            ORDER BY ended_at DESC LIMIT %(left)s
        )
    )

-- name: add
-- A job that waits for a process that does it.
INSERT INTO gateway.jobs (log_id, job, kind, subject, asked, actor, kept)
VALUES (%(log_id)s, %(job)s, %(kind)s, %(subject)s, %(asked)s, %(actor)s, %(kept)s)
RETURNING *

-- name: find
-- One job, unless it has expired.
SELECT * FROM gateway.jobs
WHERE log_id = %(log_id)s AND kind = %(kind)s AND job = %(job)s
    AND (ended_at + kept > clock_timestamp()) IS NOT FALSE

-- name: newest
-- The newest jobs of a kind, one for each subject.
SELECT DISTINCT ON (subject) * FROM gateway.jobs
WHERE log_id = %(log_id)s AND kind = %(kind)s AND (ended_at + kept > clock_timestamp()) IS NOT FALSE
ORDER BY subject, asked_at DESC

-- name: of_actor
-- The jobs of a kind that an actor has asked for, the newest first.
SELECT * FROM gateway.jobs
WHERE log_id = %(log_id)s AND kind = %(kind)s AND actor = %(actor)s
    AND (ended_at + kept > clock_timestamp()) IS NOT FALSE
ORDER BY asked_at DESC
LIMIT %(limit)s

-- name: cancel
-- What waits is cancelled; what runs is told by its next sign of life.
UPDATE gateway.jobs SET
    state = CASE state WHEN 'waiting' THEN 'cancelled' ELSE 'cancelling' END,
    ended_at = CASE state WHEN 'waiting' THEN clock_timestamp() END
WHERE log_id = %(log_id)s AND job = %(job)s AND ended_at IS NULL
RETURNING *

-- name: remove
-- A job that has ended.
DELETE FROM gateway.jobs WHERE log_id = %(log_id)s AND job = %(job)s AND ended_at IS NOT NULL

-- name: take
-- The job that has waited longest; of each log one at a time, so that nobody's many keep others waiting.
UPDATE gateway.jobs SET state = 'running', began_at = clock_timestamp(), seen_at = clock_timestamp()
WHERE (log_id, job) = (
    SELECT w.log_id, w.job FROM gateway.jobs AS w
    WHERE w.kind = %(kind)s AND w.state = 'waiting' AND NOT EXISTS (
        SELECT FROM gateway.jobs AS r
        WHERE r.log_id = w.log_id AND r.kind = w.kind AND r.state IN ('running', 'cancelling')
    )
    ORDER BY w.asked_at LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING *

-- name: beat
-- The process that does it is alive, and so far.
UPDATE gateway.jobs SET seen_at = clock_timestamp(), done = %(done)s, total = %(total)s
WHERE log_id = %(log_id)s AND job = %(job)s AND state IN ('running', 'cancelling')
RETURNING state

-- name: end
-- It has ended, unless somebody has taken its process for dead meanwhile.
UPDATE gateway.jobs SET
    state = %(state)s, ended_at = clock_timestamp(), result = %(result)s, problem = %(problem)s,
    done = CASE %(state)s WHEN 'done' THEN coalesce(total, done) ELSE done END
WHERE log_id = %(log_id)s AND job = %(job)s AND ended_at IS NULL
RETURNING job

-- name: end_lost
-- Those whose process has died, and those that nobody has taken, unless a process was busy with another one meanwhile.
UPDATE gateway.jobs AS j SET
    state = 'failed', ended_at = clock_timestamp(),
    problem = CASE state WHEN 'waiting' THEN %(untaken)s ELSE %(died)s END
WHERE (state IN ('running', 'cancelling') AND seen_at < clock_timestamp() - %(silent)s::interval)
    OR (
        state = 'waiting' AND asked_at < clock_timestamp() - %(waited)s::interval
        AND NOT EXISTS (
            SELECT FROM gateway.jobs AS o
            WHERE o.kind = j.kind AND o.job <> j.job AND o.seen_at >= clock_timestamp() - %(waited)s::interval
        )
    )

-- name: forget_expired
-- Those that have expired.
DELETE FROM gateway.jobs WHERE ended_at + kept <= clock_timestamp()
RETURNING job

-- name: forget_log
-- Those of a log that have ended: what they say may mention somebody who is erased.
DELETE FROM gateway.jobs WHERE log_id = %(log_id)s AND ended_at IS NOT NULL

-- name: of_kind
-- All that there are of a kind.
SELECT * FROM gateway.jobs WHERE kind = %(kind)s

-- name: erased_since
-- Whether something of a log was erased from an index on.
SELECT EXISTS (SELECT FROM ledger.entries WHERE log_id = %(log_id)s AND type = 'payload.erased' AND index >= %(index)s)
