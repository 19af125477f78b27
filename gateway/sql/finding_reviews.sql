-- SPDX-License-Identifier: Apache-2.0
-- name: reviews_counted
-- How often something was reviewed.
SELECT version FROM ledger.aggregates WHERE log_id = %(log_id)s AND key = %(key)s
