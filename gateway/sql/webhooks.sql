-- SPDX-License-Identifier: Apache-2.0
-- name: log_of_tenant
-- The log of a tenant, and the system log in its place where there is none: what follows is then the same work.
SELECT log_id, tenant IS NOT NULL FROM ledger.logs
WHERE tenant = %(tenant)s OR tenant IS NULL
ORDER BY tenant NULLS LAST
LIMIT 1
