-- name: path
-- For the rest of the transaction every name is written with its schema.
SELECT set_config('search_path', 'pg_catalog', true), set_config('quote_all_identifiers', 'off', true)

-- name: basis
-- What the objects may rightly depend on: migrations that ran, PostgreSQL's major version, that of AGE.
SELECT
    coalesce((SELECT string_agg(format('%%s %%s %%s', package, number, sha256), E'\n' ORDER BY package, number)
              FROM lakeproof.migrations), ''),
    current_setting('server_version_num')::integer / 10000,
    coalesce((SELECT extversion FROM pg_extension WHERE extname = 'age'), '')

-- name: record
-- The newest record, the last of its pages first.
SELECT index, entry FROM ledger.entries
WHERE log_id = (SELECT log_id FROM ledger.logs WHERE origin = %(origin)s) AND type = 'schema.recorded'
ORDER BY index DESC
LIMIT %(limit)s

-- name: objects
-- All that decides who may do what, and what is found: kind, name, definition. The installation's roles are written as
-- {duty}, superusers as {superuser}, no oid anywhere. Of tenants' roles and graphs, which come and go, only what is not as
-- it has to be.
WITH ours AS MATERIALIZED (
    SELECT oid, nspname::text AS name, nspowner, nspacl FROM pg_namespace
    WHERE nspname IN ('lakeproof', 'ledger', 'gateway', 'projections', 'streams', 'detection')
),
who AS MATERIALIZED (
    SELECT oid, CASE
        WHEN starts_with(rolname, %(prefix)s) THEN '{' || substr(rolname, length(%(prefix)s) + 1) || '}'
        WHEN rolsuper THEN '{superuser}'
        ELSE rolname::text
    END AS name,
    starts_with(rolname, %(prefix)s) AS is_ours,
    starts_with(rolname, %(prefix)s || 't_') AS is_tenant
    FROM pg_roles
    UNION ALL
    SELECT 0, 'PUBLIC', false, false
),
relations AS MATERIALIZED (
    SELECT c.oid, n.name || '.' || c.relname AS name, c.relkind, c.relowner, c.relacl, c.relrowsecurity,
           c.relforcerowsecurity, c.relpersistence, c.reloptions
    FROM pg_class AS c JOIN ours AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
),
routines AS MATERIALIZED (
    SELECT p.oid, p.oid::regprocedure::text AS name, p.proowner, p.proacl, p.prokind
    FROM pg_proc AS p JOIN ours AS n ON n.oid = p.pronamespace
),
graphs AS MATERIALIZED (
    SELECT n.oid, n.nspname::text AS name, n.nspowner, n.nspacl, (
        SELECT r.oid FROM pg_roles AS r WHERE r.rolname = %(prefix)s || 't_' || substr(n.nspname, 3, 32)
    ) AS reader
    FROM pg_namespace AS n
    WHERE n.nspname ~ '^g_[0-9a-f]{32}_[0-9]+$'
),
granted (kind, name, owner, acl) AS (
    SELECT 'schema', name, nspowner, coalesce(nspacl, acldefault('n', nspowner)) FROM ours
    UNION ALL
    SELECT CASE relkind WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view' ELSE 'table' END, name, relowner,
           coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))
    FROM relations
    UNION ALL
    SELECT 'column', r.name || '.' || a.attname, r.relowner, a.attacl
    FROM relations AS r JOIN pg_attribute AS a ON a.attrelid = r.oid
    WHERE a.attacl IS NOT NULL AND NOT a.attisdropped
    UNION ALL
    SELECT 'function', name, proowner, coalesce(proacl, acldefault('f', proowner)) FROM routines
    UNION ALL
    SELECT 'database', p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
    FROM pg_proc AS p WHERE p.oid = ANY (%(writing)s::regprocedure[])
    UNION ALL
    SELECT 'database', 'itself', datdba, coalesce(datacl, acldefault('d', datdba))
    FROM pg_database WHERE datname = current_database()
),
ag_catalog (kind, name, owner, acl) AS (
    SELECT 'ROUTINE', oid::regprocedure::text, proowner, coalesce(proacl, acldefault('f', proowner))
    FROM pg_proc WHERE pronamespace = to_regnamespace('ag_catalog')
    UNION ALL
    SELECT 'TYPE', oid::regtype::text, typowner, coalesce(typacl, acldefault('T', typowner))
    FROM pg_type WHERE typnamespace = to_regnamespace('ag_catalog') AND typtype <> 'c' AND typcategory <> 'A'
    UNION ALL
    SELECT 'TABLE', oid::regclass::text, relowner, relacl
    FROM pg_class WHERE relnamespace = to_regnamespace('ag_catalog') AND relkind NOT IN ('c', 'i')
),
members AS MATERIALIZED (
    SELECT DISTINCT g.name AS role, m.name AS member, a.admin_option, a.inherit_option, a.set_option,
        -- As a tenant is founded: in the group of readers, and one of those that the login may become.
        (m.is_tenant AND g.name = '{reader}' AND a.inherit_option AND a.set_option AND NOT a.admin_option)
        OR (g.is_tenant AND m.name = '{login}' AND NOT a.inherit_option AND a.set_option AND NOT a.admin_option)
        AS is_tenancy
    FROM pg_auth_members AS a
    JOIN who AS g ON g.oid = a.roleid
    JOIN who AS m ON m.oid = a.member
    WHERE g.is_ours OR m.is_ours
),
objects (kind, name, definition) AS (
    SELECT g.kind, g.name || ' (grants)', 'owner ' || o.name || '; ' || coalesce((
        SELECT string_agg(held.told, '; ' ORDER BY held.told) FROM (
            SELECT w.name || ' ' || string_agg(
                a.privilege_type || CASE WHEN a.is_grantable THEN ' (grantable)' ELSE '' END, ', '
                ORDER BY a.privilege_type, a.is_grantable
            ) AS told
            FROM aclexplode(g.acl) AS a JOIN who AS w ON w.oid = a.grantee GROUP BY w.name
        ) AS held
    ), '')
    FROM granted AS g JOIN who AS o ON o.oid = g.owner
    UNION ALL
    SELECT 'table', name, concat_ws(
        '; ', CASE relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' ELSE relkind::text END,
        CASE WHEN relrowsecurity THEN 'row security' END,
        CASE WHEN relforcerowsecurity THEN 'forced row security' END,
        CASE WHEN relpersistence <> 'p' THEN 'persistence ' || relpersistence::text END,
        CASE WHEN relkind = 'v' THEN coalesce(reloptions::text, '') || ' ' || pg_get_viewdef(oid) END,
        (SELECT count(*) || ' triggers of constraints are off' FROM pg_trigger AS t
         WHERE t.tgrelid = r.oid AND t.tgisinternal AND t.tgenabled <> 'O' HAVING count(*) > 0)
    )
    FROM relations AS r WHERE relkind <> 'S'
    UNION ALL
    SELECT 'column', r.name || '.' || a.attname, concat_ws(
        '; ', format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attnotnull THEN 'not null' END,
        CASE WHEN d.oid IS NOT NULL THEN 'default ' || pg_get_expr(d.adbin, d.adrelid) END,
        CASE WHEN a.attidentity <> '' THEN 'identity ' || a.attidentity::text END,
        CASE WHEN a.attgenerated <> '' THEN 'generated ' || a.attgenerated::text END,
        CASE WHEN a.attstattarget = 0 THEN 'no statistics' END
    )
    FROM relations AS r
    JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE r.relkind <> 'S'
    UNION ALL
    SELECT 'constraint', r.name || '.' || c.conname,
           pg_get_constraintdef(c.oid) || CASE WHEN c.convalidated THEN '' ELSE '; not validated' END
    FROM relations AS r JOIN pg_constraint AS c ON c.conrelid = r.oid
    WHERE c.contype <> 'n'  -- columns tell that they are not null
    UNION ALL
    SELECT 'index', i.indexrelid::regclass::text, concat_ws(
        '; ', pg_get_indexdef(i.indexrelid),
        CASE WHEN NOT i.indisvalid THEN 'not valid' END,
        CASE WHEN NOT i.indisready THEN 'not written' END,
        CASE WHEN NOT i.indislive THEN 'being dropped' END,
        CASE WHEN NOT i.indimmediate THEN 'deferrable' END
    )
    FROM relations AS r JOIN pg_index AS i ON i.indrelid = r.oid
    UNION ALL
    SELECT 'trigger', r.name || '.' || t.tgname, pg_get_triggerdef(t.oid) || '; ' || t.tgenabled::text
    FROM relations AS r JOIN pg_trigger AS t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'rule', r.name || '.' || w.rulename, pg_get_ruledef(w.oid) || '; ' || w.ev_enabled::text
    FROM relations AS r JOIN pg_rewrite AS w ON w.ev_class = r.oid
    WHERE w.rulename <> '_RETURN' OR r.relkind <> 'v'
    UNION ALL
    SELECT 'policy', r.name || '.' || p.polname, concat_ws(
        '; ', 'for ' || p.polcmd::text,
        CASE WHEN NOT p.polpermissive THEN 'restrictive' END,
        'to ' || (SELECT string_agg(w.name, ', ' ORDER BY w.name) FROM who AS w WHERE w.oid = ANY (p.polroles)),
        'using ' || pg_get_expr(p.polqual, p.polrelid),
        'check ' || pg_get_expr(p.polwithcheck, p.polrelid)
    )
    FROM relations AS r JOIN pg_policy AS p ON p.polrelid = r.oid
    UNION ALL
    SELECT 'function', name, CASE prokind WHEN 'a' THEN 'aggregate' ELSE pg_get_functiondef(oid) END FROM routines
    UNION ALL
    SELECT 'functions', 'of ' || n.nspname, count(*) || ', ' || md5(string_agg(concat_ws(
        ' ', p.oid::regprocedure::text, p.prosrc, p.probin, l.lanname, p.prosecdef, p.provolatile, p.proconfig::text
    ), E'\n' ORDER BY p.oid::regprocedure::text COLLATE "C"))
    FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_language AS l ON l.oid = p.prolang
    WHERE n.nspname IN ('ag_catalog', 'pg_catalog')
    GROUP BY n.nspname
    UNION ALL
    SELECT 'rights', 'in ag_catalog of ' || w.name,
           string_agg(DISTINCT c.kind || ' ' || c.name, ', ' ORDER BY c.kind || ' ' || c.name)
    FROM ag_catalog AS c CROSS JOIN aclexplode(c.acl) AS a JOIN who AS w ON w.oid = a.grantee
    WHERE a.grantee <> c.owner
    GROUP BY w.name
    UNION ALL
    SELECT 'rights', 'by default ' || d.defaclobjtype::text || ' ' || coalesce(n.nspname, '') || ' ' || w.name,
           d.defaclacl::text
    FROM pg_default_acl AS d JOIN who AS w ON w.oid = d.defaclrole
    LEFT JOIN pg_namespace AS n ON n.oid = d.defaclnamespace
    WHERE w.is_ours OR d.defaclnamespace = 0 OR n.oid IN (SELECT oid FROM ours)
    UNION ALL
    SELECT 'event trigger', e.evtname, concat_ws('; ', e.evtevent, e.evtfoid::regprocedure::text, e.evtenabled::text)
    FROM pg_event_trigger AS e
    UNION ALL
    SELECT 'role', w.name, concat_ws(
        '; ', CASE WHEN r.rolsuper THEN 'SUPERUSER' END,
        CASE WHEN r.rolbypassrls THEN 'BYPASSRLS' END,
        CASE WHEN r.rolcreaterole THEN 'CREATEROLE' END,
        CASE WHEN r.rolcreatedb THEN 'CREATEDB' END,
        CASE WHEN r.rolreplication THEN 'REPLICATION' END,
        CASE WHEN r.rolcanlogin THEN 'LOGIN' ELSE 'NOLOGIN' END,
        CASE WHEN NOT r.rolinherit THEN 'NOINHERIT' END
    )
    FROM pg_roles AS r JOIN who AS w ON w.oid = r.oid
    WHERE w.is_ours AND (
        NOT w.is_tenant OR r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
        OR r.rolcanlogin OR NOT r.rolinherit
    )
    UNION ALL
    SELECT 'membership', member || ' in ' || role, concat_ws(
        ', ', CASE WHEN admin_option THEN 'ADMIN' END, CASE WHEN inherit_option THEN 'INHERIT' END,
        CASE WHEN set_option THEN 'SET' END
    )
    FROM members WHERE NOT is_tenancy
    UNION ALL
    SELECT 'setting', coalesce(w.name, 'every role') || CASE s.setdatabase WHEN 0 THEN '' ELSE ' in this database' END
        || ' ' || split_part(c.config, '=', 1), c.config
    FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS c (config) LEFT JOIN who AS w ON w.oid = s.setrole AND s.setrole <> 0
    WHERE (s.setdatabase = 0 OR s.setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))
        AND (s.setrole = 0 OR w.is_ours)
        AND split_part(c.config, '=', 1) = ANY (%(settings)s::text[])
    UNION ALL
    SELECT 'setting', 'server ' || name, reset_val FROM pg_settings WHERE name = ANY (%(server_settings)s::text[])
    UNION ALL
    SELECT 'graph', g.name, 'owner ' || o.name FROM graphs AS g JOIN who AS o ON o.oid = g.nspowner
    WHERE o.name <> '{projector}'
    UNION ALL
    SELECT 'graph', g.name || ' (grants)', w.name || ' ' || a.privilege_type
    FROM graphs AS g CROSS JOIN aclexplode(g.nspacl) AS a JOIN who AS w ON w.oid = a.grantee
    WHERE a.grantee <> g.nspowner AND NOT (a.grantee = coalesce(g.reader, 0) AND a.privilege_type = 'USAGE'
        AND NOT a.is_grantable AND a.grantee <> 0)
    UNION ALL
    SELECT 'graph', g.name || '.' || c.relname, concat_ws(
        '; ', 'owner ' || o.name,
        (SELECT string_agg(w.name || ' ' || a.privilege_type, ', ' ORDER BY w.name, a.privilege_type)
         FROM aclexplode(c.relacl) AS a JOIN who AS w ON w.oid = a.grantee
         WHERE a.grantee <> c.relowner AND NOT (a.grantee = coalesce(g.reader, 0) AND a.grantee <> 0
             AND a.privilege_type = 'SELECT' AND NOT a.is_grantable)),
        (SELECT string_agg('trigger ' || t.tgname, ', ' ORDER BY t.tgname) FROM pg_trigger AS t
         WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgfoid <> ALL (ages.own)),
        (SELECT string_agg('rule ' || r.rulename, ', ' ORDER BY r.rulename) FROM pg_rewrite AS r
         WHERE r.ev_class = c.oid)
    )
    FROM graphs AS g JOIN pg_class AS c ON c.relnamespace = g.oid JOIN who AS o ON o.oid = c.relowner
    CROSS JOIN (
        -- AGE itself puts a trigger on each label, which drops what is cached of it.
        SELECT array_agg(oid) AS own FROM pg_proc WHERE pronamespace = to_regnamespace('ag_catalog')
    ) AS ages
    WHERE c.relkind NOT IN ('i', 'c') AND (
        o.name <> '{projector}'
        OR EXISTS (
            SELECT FROM aclexplode(c.relacl) AS a WHERE a.grantee <> c.relowner AND NOT (
                a.grantee = coalesce(g.reader, 0) AND a.grantee <> 0 AND a.privilege_type = 'SELECT'
                AND NOT a.is_grantable
            )
        )
        OR EXISTS (
            SELECT FROM pg_trigger AS t
            WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgfoid <> ALL (ages.own)
        )
        OR EXISTS (SELECT FROM pg_rewrite AS r WHERE r.ev_class = c.oid)
    )
)
SELECT kind, name, definition FROM objects
ORDER BY kind COLLATE "C", name COLLATE "C", definition COLLATE "C"
