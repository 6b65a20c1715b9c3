-- What each role of a namespace may do, as the database's own rights; done again whenever the schema was changed.
-- The roles are groups, named by the database and the namespace ("ml.team_a.reader"), which `namespaces.py` makes; the
-- tables are the property of the group of admins, which no rule here binds. In another schema nothing happens.
-- What it says of contexts and artifacts, `roles.py` says in Python, for what an error calls the role that is missing.
DO $namespace$
DECLARE
    space TEXT := current_schema();
    groups TEXT := current_database() || '.' || space || '.';
    reader TEXT := quote_ident(groups || 'reader');
    writer TEXT := quote_ident(groups || 'writer');
    approver TEXT := quote_ident(groups || 'approver');
    gc TEXT := quote_ident(groups || 'gc');
    ending CONSTANT TEXT := 'state, error, properties, version, finished_at, updated_at';
    -- SQL: the type of the context that a policy is asked about. Types are never renamed.
    of_type CONSTANT TEXT := '(SELECT t.name FROM type t WHERE t.id = type_id)';
    of_registry CONSTANT TEXT := 'starts_with(' || of_type || ', ''registry of '')';
    of_gc CONSTANT TEXT := of_type || ' IN (''garbage_collection'', ''repair'')';
    of_nobody_else CONSTANT TEXT :=
        'NOT ' || of_registry || ' AND ' || of_type || ' NOT IN (''decision'', ''garbage_collection'', ''repair'')';
    entry RECORD;
BEGIN
    PERFORM FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
        WHERE n.nspname = space AND r.rolname = groups || 'admin';
    IF NOT FOUND THEN
        RETURN;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', space, reader);
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC, %s, %s, %s, %s', space, reader, writer, approver, gc);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %s', space, reader);
    EXECUTE format('GRANT SELECT ON ALL SEQUENCES IN SCHEMA %I TO %s', space, reader);  -- pg_dump reads them
    -- New rows: all columns but the number that the database gives.
    FOR entry IN
        SELECT c.relname AS name, string_agg(quote_ident(a.attname), ', ') AS columns
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = CAST(quote_ident(space) AS regnamespace) AND c.relkind = 'r' AND a.attnum > 0
            AND NOT a.attisdropped AND a.attidentity = '' AND c.relname NOT IN ('schema_version', 'answered')
        GROUP BY c.relname
    LOOP
        EXECUTE format('GRANT INSERT (%s) ON %I TO %s', entry.columns, entry.name, writer);
        IF entry.name IN ('type', 'context', 'journal') THEN
            EXECUTE format('GRANT INSERT (%s) ON %I TO %s, %s', entry.columns, entry.name, approver, gc);
        ELSIF entry.name = 'claim' THEN  -- what lies behind a URL is removed under the claim of who would make it
            EXECUTE format('GRANT INSERT (%s) ON %I TO %s', entry.columns, entry.name, gc);
        END IF;
    END LOOP;
    EXECUTE format('GRANT UPDATE (%s) ON execution TO %s, %s', ending, writer, gc);
    EXECUTE format('GRANT UPDATE (properties, version, updated_at) ON context TO %s, %s', writer, gc);
    EXECUTE format('GRANT UPDATE (owner, token, expires_at, lease, state) ON claim TO %s, %s', writer, gc);
    EXECUTE format('GRANT UPDATE (properties, version, updated_at) ON artifact TO %s', approver);
    EXECUTE format('GRANT UPDATE (state, properties, version, updated_at) ON artifact TO %s', gc);

    -- Which rows: what has ended stays so, and who records runs decides nothing.
    FOR entry IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = space LOOP
        EXECUTE format('DROP POLICY %I ON %I', entry.policyname, entry.tablename);
    END LOOP;
    ALTER TABLE execution ENABLE ROW LEVEL SECURITY;
    ALTER TABLE context ENABLE ROW LEVEL SECURITY;
    EXECUTE format('CREATE POLICY reading ON execution FOR SELECT TO %s USING (true)', reader);
    EXECUTE format('CREATE POLICY starting ON execution FOR INSERT TO %s WITH CHECK (true)', writer);
    EXECUTE format(
        'CREATE POLICY ending ON execution FOR UPDATE TO %s USING (state IN (''NEW'', ''RUNNING'')) WITH CHECK (true)',
        writer);
    EXECUTE format(
        'CREATE POLICY ending_the_dead ON execution FOR UPDATE TO %s USING (state = ''RUNNING'') '
        'WITH CHECK (state IN (''ABANDONED'', ''CANCELED''))', gc);
    EXECUTE format('CREATE POLICY reading ON context FOR SELECT TO %s USING (true)', reader);
    EXECUTE format(
        'CREATE POLICY recording ON context FOR INSERT TO %s WITH CHECK (%s OR (%s AND properties ->> ''kind'' IN '
        '(''version'', ''words'')))', writer, of_nobody_else, of_registry);
    EXECUTE format('CREATE POLICY changing ON context FOR UPDATE TO %s USING (%s)', writer, of_nobody_else);
    EXECUTE format(
        'CREATE POLICY deciding ON context FOR INSERT TO %s WITH CHECK (%s OR %s IN (''decision'', ''registered_model''))',
        approver, of_registry, of_type);
    EXECUTE format('CREATE POLICY collecting ON context FOR INSERT TO %s WITH CHECK (%s)', gc, of_gc);
    EXECUTE format('CREATE POLICY collected ON context FOR UPDATE TO %s USING (%s)', gc, of_gc);

    -- Which properties of an artifact: a policy does not see the row as it was.
    EXECUTE format($law$
        CREATE OR REPLACE FUNCTION artifact_law() RETURNS trigger LANGUAGE plpgsql AS $body$
        DECLARE
            retention CONSTANT TEXT[] := '{pinned,collected}';
            verdicts CONSTANT TEXT[] := '{blessed,overruled}';
            before JSONB := OLD.properties;
            after JSONB := NEW.properties;
        BEGIN
            IF pg_has_role(%1$L, 'USAGE') THEN
                RETURN NEW;
            ELSIF before - retention - verdicts <> after - retention - verdicts THEN
                RAISE EXCEPTION 'drivetrain: what an artifact is stays so' USING ERRCODE = '42501';
            ELSIF before - retention <> after - retention AND NOT pg_has_role(%2$L, 'USAGE') THEN
                RAISE EXCEPTION 'drivetrain: verdicts are the approvers''' USING ERRCODE = '42501';
            ELSIF before - verdicts <> after - verdicts AND NOT pg_has_role(%3$L, 'USAGE') THEN
                RAISE EXCEPTION 'drivetrain: pins and marks are who collects''s' USING ERRCODE = '42501';
            END IF;
            RETURN NEW;
        END
        $body$ $law$, groups || 'admin', groups || 'approver', groups || 'gc');
    DROP TRIGGER IF EXISTS artifact_law ON artifact;
    CREATE TRIGGER artifact_law BEFORE UPDATE ON artifact FOR EACH ROW EXECUTE FUNCTION artifact_law();
    -- The search path is the caller's, who might put a table of the same name before ours.
    EXECUTE format('ALTER FUNCTION event_law() SET search_path = pg_catalog, %I, pg_temp', space);
    EXECUTE format('ALTER FUNCTION journal_law() SET search_path = pg_catalog, %I, pg_temp', space);
    EXECUTE format('ALTER FUNCTION artifact_law() SET search_path = pg_catalog, %I, pg_temp', space);
END
$namespace$;
