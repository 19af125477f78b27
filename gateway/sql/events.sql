-- SPDX-License-Identifier: Apache-2.0
-- name: outcomes
-- The first outcomes in a range of a log on keys that begin in one of some ways.
SELECT index, entry FROM ledger.entries
WHERE log_id = %(log_id)s AND index >= %(from_index)s AND index < %(to_index)s
  AND type = 'commit.settled' AND key ^@ ANY (%(prefixes)s::text[])
ORDER BY index
LIMIT %(limit)s

-- name: first_entries
-- The first entries of groups.
SELECT entry FROM ledger.entries WHERE log_id = %(log_id)s AND group_id = ANY(%(group_ids)s)

-- name: ranges
-- The entries of some ranges, in order. Each range is looked up by index: its own ORDER BY keeps it a query of its own.
SELECT e.entry
FROM unnest(%(starts)s::bigint[], %(ends)s::bigint[]) AS r (first, behind)
CROSS JOIN LATERAL (
    SELECT index, entry FROM ledger.entries
    WHERE log_id = %(log_id)s AND index >= r.first AND index < r.behind
    ORDER BY index
) AS e
ORDER BY e.index
