-- The last commits that were refused, however many were approved since.
CREATE INDEX commits_refused ON projections.commits (log_id, generation, index)
    WHERE decision IN ('rejected', 'undecidable');
