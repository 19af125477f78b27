-- What is kept of messages may mention people: once that is erased, no sample of it stays in the planner's statistics.

-- The type stays as it was; naming it throws away the samples that there are.
ALTER TABLE streams.dead_letters
    ALTER COLUMN payload TYPE bytea,
    ALTER COLUMN reason TYPE text,
    ALTER COLUMN payload SET STATISTICS 0,
    ALTER COLUMN reason SET STATISTICS 0;
ALTER TABLE streams.outbox
    ALTER COLUMN payload TYPE bytea,
    ALTER COLUMN payload SET STATISTICS 0;
ALTER TABLE streams.hosts
    ALTER COLUMN reason TYPE text,
    ALTER COLUMN reason SET STATISTICS 0;
