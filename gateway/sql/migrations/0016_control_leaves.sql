-- What judges is checked against the leaf hash that was stored with it, before it is in force.

GRANT SELECT (leaf) ON ledger.entries TO {gateway};
