-- What the schema fedincentive is made of: name and definition of each object, to be compared with catalogue.json.
-- To be run with search_path = pg_catalog, so that all other names come out in full.
WITH relations AS (
    SELECT oid, relname, relkind, relpersistence, relrowsecurity, relforcerowsecurity, relispartition
    FROM pg_class WHERE relnamespace = to_regnamespace('fedincentive')
)
SELECT 'relation ' || relname, concat_ws(' ', 'kind', relkind, 'persistence', relpersistence,
    'row security', relrowsecurity, relforcerowsecurity, 'partition', relispartition) AS definition
FROM relations
UNION ALL
SELECT 'columns of ' || relname, string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod),
    CASE WHEN attcollation <> 0 THEN attcollation::regcollation END, CASE WHEN attnotnull THEN 'not null' END,
    attidentity, attgenerated, pg_get_expr(adbin, adrelid)), ', ' ORDER BY attnum)
FROM relations r JOIN pg_attribute a ON attrelid = r.oid LEFT JOIN pg_attrdef ON adrelid = r.oid AND adnum = attnum
WHERE relkind <> 'i' AND attnum > 0 AND NOT attisdropped GROUP BY relname
UNION ALL
SELECT 'constraint ' || conname || ' of ' || relname, concat_ws(' ', pg_get_constraintdef(c.oid),
    CASE WHEN NOT convalidated THEN 'not validated' END)
FROM relations r JOIN pg_constraint c ON conrelid = r.oid WHERE contype NOT IN ('n', 't')
UNION ALL
SELECT 'index ' || relname, concat_ws(' ', pg_get_indexdef(indexrelid), 'unique', indisunique, 'immediate', indimmediate,
    'valid', indisvalid, 'ready', indisready, 'live', indislive)
FROM relations r JOIN pg_index ON indexrelid = r.oid
UNION ALL
SELECT CASE WHEN tgisinternal THEN tgfoid::regproc::text || ' on ' || relname ELSE tgname::text END,
    concat_ws(' ', CASE tgenabled WHEN 'O' THEN 'on' WHEN 'A' THEN 'on' ELSE 'switched off' END,
    CASE WHEN NOT tgisinternal THEN pg_get_triggerdef(t.oid) END)
FROM relations r JOIN pg_trigger t ON tgrelid = r.oid
UNION ALL
SELECT 'rule ' || rulename || ' on ' || relname, concat_ws(' ', ev_enabled, pg_get_ruledef(w.oid))
FROM relations r JOIN pg_rewrite w ON ev_class = r.oid
UNION ALL
SELECT 'policy ' || polname || ' on ' || relname, concat_ws(' ', polcmd, pg_get_expr(polqual, polrelid))
FROM relations r JOIN pg_policy ON polrelid = r.oid
UNION ALL
SELECT 'child ' || inhrelid::regclass, 'of ' || inhparent::regclass
FROM relations r JOIN pg_inherits ON r.oid IN (inhparent, inhrelid)
UNION ALL
SELECT 'the function ' || p.oid::regprocedure, concat_ws(' ', prokind, format_type(prorettype, NULL), lanname, provolatile,
    CASE WHEN prosecdef THEN 'security definer' END, array_to_string(proconfig, ' '),
    encode(sha256(convert_to(prosrc, 'UTF8')), 'hex'))
FROM pg_proc p JOIN pg_language l ON l.oid = prolang WHERE pronamespace = to_regnamespace('fedincentive')
UNION ALL
SELECT 'setting session_replication_role', current_setting('session_replication_role')
UNION ALL
SELECT 'setting for role ' || setrole::regrole || ' in database ' || setdatabase, setting
FROM pg_db_role_setting, unnest(setconfig) AS setting WHERE setting LIKE 'session_replication_role=%'
