-- name: path
-- For the rest of the transaction names are resolved in AGE's schema, and written without it.
SELECT set_config('search_path', 'ag_catalog, pg_catalog', true)

-- name: things
-- Everything in AGE's schema that can be granted: what it is for GRANT, its name, its owner, who holds a right to it. No
-- stored grants are the defaults: PUBLIC has functions and types. Types of arrays and rows have no grants of their own.
SELECT kind, name, pg_get_userbyid(owner), ARRAY(
    SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(grantee) END FROM aclexplode(grants)
)
FROM (
    SELECT 'ROUTINE', oid::regprocedure::text, proowner, coalesce(proacl, acldefault('f', proowner))
    FROM pg_proc WHERE pronamespace = 'ag_catalog'::regnamespace
    UNION ALL
    SELECT 'TYPE', oid::regtype::text, typowner, coalesce(typacl, acldefault('T', typowner))
    FROM pg_type WHERE typnamespace = 'ag_catalog'::regnamespace AND typtype <> 'c' AND typcategory <> 'A'
    UNION ALL
    SELECT 'TABLE', oid::regclass::text, relowner, relacl
    FROM pg_class WHERE relnamespace = 'ag_catalog'::regnamespace AND relkind NOT IN ('c', 'i')
) AS t (kind, name, owner, grants)
ORDER BY kind, name
