-- SPDX-License-Identifier: Apache-2.0
-- name: keys_by_prefix
-- The keys in force with one of these prefixes, the tenant whose each is, and its keyed hash under one secret, if any.
SELECT k.prefix, k.log_id, l.tenant, k.key_id, k.actor, k.hash, m.mac
FROM gateway.api_keys AS k
JOIN ledger.logs AS l USING (log_id)
LEFT JOIN gateway.key_macs AS m ON m.log_id = k.log_id AND m.key_id = k.key_id AND m.secret_id = %(secret_id)s
WHERE k.prefix = ANY (%(prefixes)s::text[])

-- name: keep_mac
-- The keyed hash of a key that its argon2id hash was found right for; none if it was revoked meanwhile.
INSERT INTO gateway.key_macs (log_id, key_id, secret_id, mac)
SELECT log_id, key_id, %(secret_id)s, %(mac)s FROM gateway.api_keys
WHERE log_id = %(log_id)s AND key_id = %(key_id)s AND hash = %(hash)s
ON CONFLICT DO NOTHING

-- name: identity_of
-- The identity behind an actor, and who issues its keys (null: it is the identity's own actor).
SELECT identity, issuer FROM ledger.subjects WHERE log_id = %(log_id)s AND actor = %(actor)s

-- name: identities_of
-- The identities behind some actors; run as the log's tenant.
SELECT actor, identity FROM ledger.subjects WHERE log_id = %(log_id)s AND actor = ANY(%(actors)s::text[])

-- name: mint_actor
-- An actor for an identity and an issuer that have none; the first one stays.
INSERT INTO ledger.subjects (log_id, actor, identity, issuer)
VALUES (%(log_id)s, %(actor)s, %(identity)s, %(issuer)s)
ON CONFLICT (log_id, identity, issuer) DO NOTHING

-- name: actor_of
-- The actor of an identity, for the keys that one issuer gives it (null: its own).
SELECT actor FROM ledger.subjects
WHERE log_id = %(log_id)s AND identity = %(identity)s AND issuer IS NOT DISTINCT FROM %(issuer)s

-- name: last_erasure
-- The newest erasure of a person in a log.
SELECT entry FROM ledger.entries
WHERE log_id = %(log_id)s AND type = 'payload.erased' AND starts_with(key, 'subject:')
ORDER BY index DESC
LIMIT 1

-- name: key_create
-- Holds if neither the key nor the prefix exists.
INSERT INTO gateway.api_keys (log_id, key_id, prefix, hash, actor)
VALUES (%(log_id)s, %(key_id)s, %(prefix)s, %(hash)s, %(actor)s)
ON CONFLICT DO NOTHING

-- name: key_mac
-- Holds if the key was made just before.
INSERT INTO gateway.key_macs (log_id, key_id, secret_id, mac)
SELECT log_id, key_id, %(secret_id)s, %(mac)s FROM gateway.api_keys
WHERE log_id = %(log_id)s AND key_id = %(key_id)s AND prefix = %(prefix)s
ON CONFLICT DO NOTHING

-- name: key_revoke
-- Holds if the key is in force; its hashes go with it.
DELETE FROM gateway.api_keys WHERE log_id = %(log_id)s AND key_id = %(key_id)s
