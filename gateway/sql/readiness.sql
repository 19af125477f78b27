-- SPDX-License-Identifier: Apache-2.0
-- name: takes_entries
-- Whether any log takes entries: after a start of the server, none does before the signer has confirmed it.
SELECT EXISTS (SELECT FROM ledger.confirmed_logs)
