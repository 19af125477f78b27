-- SPDX-License-Identifier: Apache-2.0
-- name: control_index
-- The index of the newest control entry of one log, unlocked: what must be known before anything is judged.
SELECT control_index FROM ledger.heads WHERE log_id = %(log_id)s

-- name: control_index_and_identity
-- The same, and the identity behind an actor, null once that is erased.
SELECT h.control_index, s.identity FROM ledger.heads AS h
LEFT JOIN ledger.subjects AS s ON s.log_id = h.log_id AND s.actor = %(actor)s
WHERE h.log_id = %(log_id)s
