-- The root over each complete tile, beside it: the hash that stands for the tile one level up. A proof reads up to 255 of
-- them for each level, and would otherwise read and hash as many tiles. Derived, and verified like every derived column;
-- tiles that were complete before this have none, and are hashed when they are read.

ALTER TABLE ledger.tiles ADD COLUMN root bytea CHECK (length(root) = 32);
