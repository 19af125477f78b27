-- Where in the log entries about one key are, for evidence of a table: of each 32 pages, a filter that says which keys
-- they may have. It is written once those pages are full, so an append pays next to nothing for it, where a B-tree on
-- keys would add a ninth to what is written ahead.

CREATE INDEX entries_key ON ledger.entries USING brin (key text_bloom_ops)
    WITH (pages_per_range = 32, autosummarize = on);
