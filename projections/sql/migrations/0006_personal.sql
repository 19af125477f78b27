-- What came from payload parts leaves no samples in the planner's statistics, and can be written anew once it was erased.

ALTER TABLE projections.commits ALTER COLUMN principal SET STATISTICS 0;
GRANT MAINTAIN ON projections.commits TO {projector};
