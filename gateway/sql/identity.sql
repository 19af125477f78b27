-- name: key_by_prefix
-- A key in force, the tenant whose it is, and the identity behind its actor (null once that is erased).
SELECT k.log_id, l.tenant, k.key_id, k.actor, k.hash, s.identity
FROM gateway.api_keys AS k
JOIN ledger.logs AS l USING (log_id)
LEFT JOIN ledger.subjects AS s USING (log_id, actor)
WHERE k.prefix = %(prefix)s

-- name: mint_actor
-- An actor for an identity that has none; the first one stays.
INSERT INTO ledger.subjects (log_id, actor, identity) VALUES (%(log_id)s, %(actor)s, %(identity)s)
ON CONFLICT (log_id, identity) DO NOTHING

-- name: actor_of
-- The actor of an identity.
SELECT actor FROM ledger.subjects WHERE log_id = %(log_id)s AND identity = %(identity)s

-- name: key_create
-- Holds if neither the key nor the prefix exists.
INSERT INTO gateway.api_keys (log_id, key_id, prefix, hash, actor)
VALUES (%(log_id)s, %(key_id)s, %(prefix)s, %(hash)s, %(actor)s)
ON CONFLICT DO NOTHING

-- name: key_revoke
-- Holds if the key is in force; its hash goes with it.
DELETE FROM gateway.api_keys WHERE log_id = %(log_id)s AND key_id = %(key_id)s
