-- A rename opens one decision on two keys: the old name of the table, and the new one.

ALTER TABLE gateway.open_decisions DROP CONSTRAINT open_decisions_pkey, ADD PRIMARY KEY (log_id, decision, key);
