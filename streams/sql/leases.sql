-- SPDX-License-Identifier: Apache-2.0
-- name: renew
-- The work takes longer; nothing if somebody else has taken it over.
UPDATE streams.leases SET free_at = clock_timestamp() + %(lease_s)s * interval '1 second'
WHERE duty = %(duty)s AND log_id = %(log_id)s AND lease = %(lease)s
RETURNING duty

-- name: release
-- The work is done: part of the transaction that stores it, which a lease that was taken over must not commit.
UPDATE streams.leases SET lease = NULL, free_at = clock_timestamp(), failures = 0
WHERE duty = %(duty)s AND log_id = %(log_id)s AND lease = %(lease)s
RETURNING duty

-- name: hold
-- Part of the work is done, and the rest follows at once: in the transaction that stores that part.
UPDATE streams.leases SET free_at = clock_timestamp() + %(lease_s)s * interval '1 second', failures = 0
WHERE duty = %(duty)s AND log_id = %(log_id)s AND lease = %(lease)s
RETURNING duty

-- name: put_off
-- The work could not be done: nobody tries again for a while, and longer each time.
UPDATE streams.leases
SET lease = NULL, failures = failures + 1, free_at = clock_timestamp() + interval '1 second'
    * least(%(pause_s_max)s, %(pause_s)s * 2 ^ least(failures, 30))
WHERE duty = %(duty)s AND log_id = %(log_id)s AND lease = %(lease)s
RETURNING failures

-- name: drop
-- The work was not begun, or was given up: anybody may take it at once.
UPDATE streams.leases SET lease = NULL, free_at = clock_timestamp()
WHERE duty = %(duty)s AND log_id = %(log_id)s AND lease = %(lease)s
