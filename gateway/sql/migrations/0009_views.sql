-- Views share the names of tables: a name is that of the one or the other, and both are a pointer to a metadata file.

ALTER TABLE gateway.tables ADD COLUMN is_view boolean NOT NULL DEFAULT false;
