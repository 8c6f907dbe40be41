-- Who may do what with a ledger in PostgreSQL. Run it once as the owner of the database, after the ledger was made:
--     psql "$ADDRESS" -f roles.sql
--     psql "$ADDRESS" -c "CREATE ROLE center LOGIN PASSWORD '...' IN ROLE fedincentive_writer"
-- The owner itself should not be used in daily work: it can drop triggers, which only `ledger verify` would tell.
DO $$
BEGIN
    IF to_regrole('fedincentive_writer') IS NULL THEN
        CREATE ROLE fedincentive_writer NOLOGIN;
    END IF;
    IF to_regrole('fedincentive_auditor') IS NULL THEN
        CREATE ROLE fedincentive_auditor NOLOGIN;
    END IF;
END $$;

REVOKE ALL ON SCHEMA fedincentive FROM PUBLIC, fedincentive_writer, fedincentive_auditor;
REVOKE ALL ON ALL TABLES IN SCHEMA fedincentive FROM PUBLIC, fedincentive_writer, fedincentive_auditor;

-- The auditor reads everything.
GRANT USAGE ON SCHEMA fedincentive TO fedincentive_auditor, fedincentive_writer;
GRANT SELECT ON ALL TABLES IN SCHEMA fedincentive TO fedincentive_auditor, fedincentive_writer;

-- The writer appends, and can neither change, delete nor truncate, nor touch tables and triggers.
GRANT INSERT ON fedincentive.entries, fedincentive.postings TO fedincentive_writer;
