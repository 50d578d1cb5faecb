-- The functions and triggers of a store on PostgreSQL (11 or later), replaced whole at every upgrade of the tables.
-- server_functions.py fills in @KEYS@ and @LEFT_OUT@ from audited.py, and installs each part between lines of `---`.
-- Statements of a VOLATILE function see what was committed before they began, as in READ COMMITTED transactions.

CREATE OR REPLACE FUNCTION orch_keys() RETURNS json LANGUAGE sql IMMUTABLE AS $$
  SELECT @KEYS@::json  -- the audited tables, and the columns of their keys in the order of an event's subject
$$
---
CREATE OR REPLACE FUNCTION orch_left_out() RETURNS json LANGUAGE sql IMMUTABLE AS $$
  SELECT @LEFT_OUT@::json  -- the columns that the audit leaves out, by table
$$
---
CREATE OR REPLACE FUNCTION orch_measured(part text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN part IS NULL THEN '-' ELSE octet_length(convert_to(part, 'UTF8')) || ':' || part END
$$
---
-- The hash of an event; audited.hash_event computes the same.
CREATE OR REPLACE FUNCTION orch_event_hash(
  prev_hash text, seq integer, at double precision, cluster text, actor text, kind text, what text, subject text,
  cause text, before text, after text
) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT '1:' || encode(sha256(convert_to(
    orch_measured(prev_hash) || orch_measured(seq::text) || orch_measured(encode(float8send(at + 0.0), 'hex'))
    || orch_measured(cluster) || orch_measured(actor) || orch_measured(kind) || orch_measured(what)
    || orch_measured(subject) || orch_measured(cause) || orch_measured(before) || orch_measured(after), 'UTF8')), 'hex')
$$
---
-- The columns of a row that an event records, as JSON in the form of audited.to_json; NULL for none.
-- It works on the type json, which keeps how a float is written: as jsonb, 1e23 would become another number.
CREATE OR REPLACE FUNCTION orch_event_columns(table_name text, present json, names text[]) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT '{' || string_agg(to_json(name)::text || ': ' || (present -> name)::text, ', ' ORDER BY name COLLATE "C") || '}'
  FROM unnest(names) AS name
  WHERE NOT EXISTS (
    SELECT FROM json_array_elements_text(COALESCE(orch_left_out() -> table_name, '[]')) AS left_out(column_name)
    WHERE column_name = name
  )
$$
---
-- Lock one row. present: the row, NULL when there is none; wanted: the row with `new_values`;
-- changed: the columns in which they differ.
CREATE OR REPLACE FUNCTION orch_lock_row(
  table_name text, row_key json, new_values json, OUT present json, OUT wanted json, OUT changed text[]
) LANGUAGE plpgsql AS $$
DECLARE
  key_columns text;
BEGIN
  SELECT string_agg(format('%I', name), ', ') INTO key_columns
    FROM json_array_elements_text(
      COALESCE(orch_keys() -> table_name, CASE table_name WHEN 'meta' THEN '["key"]' ELSE '["name"]' END::json)) AS name;
  EXECUTE format(
    'SELECT row_to_json(t), row_to_json(json_populate_record(t, $2)) FROM %1$I AS t '
    'WHERE (%2$s) = (SELECT %2$s FROM json_populate_record(NULL::%1$I, $1)) FOR UPDATE', table_name, key_columns
  ) INTO present, wanted USING row_key, COALESCE(new_values, '{}');
  IF present IS NULL THEN
    RETURN;
  END IF;
  IF EXISTS (SELECT FROM json_object_keys(COALESCE(new_values, '{}')) AS name WHERE present -> name IS NULL) THEN
    RAISE 'table % lacks a column of %: its orch is older', table_name, new_values;
  END IF;
  SELECT array_agg(name) INTO changed FROM json_object_keys(COALESCE(new_values, '{}')) AS name
    WHERE (present -> name)::text IS DISTINCT FROM (wanted -> name)::text;
END
$$
---
-- Refuse a change that a budget forbids to who sends it: of the budget itself by another login than the tables' owner
-- (or one that inherits its rights), of bills and of a project's settings likewise, and a slice that was not compared with the budgets that cover its cluster.
-- Which slices a budget allows is computed by the client (budget_changes.py).
CREATE OR REPLACE FUNCTION orch_refuse_budget_change(change json, guards json) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  scope record;
BEGIN
  IF change ->> 'table' = 'budgets' AND NOT pg_has_role(session_user, current_user, 'USAGE') AND (
    change ->> 'verb' <> 'update'
    OR EXISTS (SELECT FROM json_object_keys(change -> 'values') AS name WHERE name <> 'revision')
  ) THEN
    RAISE 'only the login that owns the tables changes budgets' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF change ->> 'table' = 'project_settings' AND NOT pg_has_role(session_user, current_user, 'USAGE') THEN
    RAISE 'only the login that owns the tables changes the settings of projects' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF change ->> 'table' = 'bills' AND NOT pg_has_role(session_user, current_user, 'USAGE') THEN
    RAISE 'only the login that owns the tables imports bills' USING ERRCODE = 'insufficient_privilege';
  END IF;
  IF change ->> 'table' = 'intents' AND change ->> 'verb' = 'insert' THEN
    FOR scope IN SELECT b.project, b.member FROM budgets AS b, clusters AS c
      WHERE c.uid = change -> 'values' ->> 'cluster_uid' AND b.removed IS NULL
        AND b.project IN ('', COALESCE(NULLIF(c.project, ''), 'default')) AND b.member IN ('', c.owner)
    LOOP
      IF NOT EXISTS (
        SELECT FROM json_array_elements(guards) AS guard WHERE guard ->> 'table' = 'budgets'
          AND guard -> 'key' ->> 'project' = scope.project AND guard -> 'key' ->> 'member' = scope.member
      ) THEN
        RAISE 'a budget covers this cluster, and the change was not compared with it';
      END IF;
    END LOOP;
  END IF;
END
$$
---
-- Do all changes of a request (change.ChangeRequest), or none: {"failed": N} names the guard that does not hold.
-- The answer is short, so that the server never waits for a client to read it while the head is locked.
-- A request that arrives again, because its answer was lost, is not done again.
-- The login of the session acts, whatever the client says.
CREATE OR REPLACE FUNCTION orch_change(request json) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
DECLARE
  number integer;
  last_hash text;
  new_hash text;
  guard record;
  change json;
  table_name text;
  row_is record;
  made_row json;
  columns text;
  names text[];
  event_subject text;
  event_before text;
  event_after text;
  made boolean[] := '{}';
  has_events boolean := false;
  event_actor text := session_user || '@' || (request ->> 'client');
  event_at double precision := (request ->> 'at')::double precision + 0.0;
BEGIN
  SELECT split_part(value, ' ', 1)::integer, split_part(value, ' ', 2) INTO STRICT number, last_hash
    FROM meta WHERE key = 'chain' FOR UPDATE;
  IF EXISTS (SELECT FROM events WHERE events.request = orch_change.request ->> 'id') THEN  -- its answer was lost
    SELECT array_agg(EXISTS (
      SELECT FROM events WHERE events.request = orch_change.request ->> 'id' AND events.what = asked.value ->> 'what'
    ) ORDER BY ordinality) INTO made
      FROM json_array_elements(orch_change.request -> 'changes') WITH ORDINALITY AS asked(value, ordinality);
    RETURN json_build_object('made', made);
  END IF;
  FOR guard IN SELECT ordinality - 1 AS place, value FROM json_array_elements(request -> 'guards') WITH ORDINALITY LOOP
    table_name := guard.value ->> 'table';
    IF table_name NOT IN ('leases', 'meta') AND orch_keys() -> table_name IS NULL THEN
      RAISE 'table % cannot be a guard', table_name;
    END IF;
    SELECT * INTO row_is FROM orch_lock_row(
      table_name, guard.value -> 'key',
      CASE json_typeof(guard.value -> 'values') WHEN 'object' THEN guard.value -> 'values' END);
    IF (json_typeof(guard.value -> 'values') = 'null') <> (row_is.present IS NULL) OR row_is.changed IS NOT NULL THEN
      RETURN json_build_object('failed', guard.place);
    END IF;
  END LOOP;
  FOR change IN SELECT value FROM json_array_elements(request -> 'changes') LOOP
    table_name := change ->> 'table';
    event_subject := '';
    event_before := NULL;
    event_after := NULL;
    IF change ->> 'verb' <> 'event' THEN
      IF orch_keys() -> table_name IS NULL THEN
        RAISE 'table % is not audited', table_name;
      END IF;
      PERFORM orch_refuse_budget_change(change, request -> 'guards');
      SELECT string_agg(format('%I', name), ', ') INTO columns FROM json_object_keys(change -> 'values') AS name;
      IF change ->> 'verb' = 'insert' THEN
        EXECUTE format(
          'INSERT INTO %1$I AS t (%2$s) SELECT %2$s FROM json_populate_record(NULL::%1$I, $1) '
          'ON CONFLICT DO NOTHING RETURNING row_to_json(t)', table_name, columns
        ) INTO made_row USING change -> 'values';
        made := made || (made_row IS NOT NULL);
        CONTINUE WHEN made_row IS NULL;
        SELECT array_agg(name) INTO names FROM json_object_keys(made_row) AS name;
        event_after := orch_event_columns(table_name, made_row, names);
      ELSE
        SELECT * INTO row_is FROM orch_lock_row(table_name, change -> 'key', change -> 'values');
        IF row_is.present IS NULL THEN
          RAISE 'no row % in %', change -> 'key', table_name;
        END IF;
        made_row := row_is.present;
        names := row_is.changed;
        made := made || (names IS NOT NULL);
        CONTINUE WHEN names IS NULL;
        SELECT string_agg(format('%I', name), ', ') INTO columns FROM unnest(names) AS name;
        EXECUTE format(
          'UPDATE %1$I AS t SET (%2$s) = (SELECT %2$s FROM json_populate_record(NULL::%1$I, $2)) '
          'WHERE (%3$s) = (SELECT %3$s FROM json_populate_record(NULL::%1$I, $1))', table_name, columns,
          (SELECT string_agg(format('%I', name), ', ') FROM json_array_elements_text(orch_keys() -> table_name) AS name)
        ) USING change -> 'key', change -> 'values';
        event_before := orch_event_columns(table_name, row_is.present, names);
        event_after := orch_event_columns(table_name, row_is.wanted, names);
        CONTINUE WHEN event_after IS NULL;
      END IF;
      -- as audited.format_subject
      SELECT left(table_name, -1) || ' '
          || string_agg(replace(replace(made_row ->> name, '%', '%25'), '/', '%2F'), '/' ORDER BY ordinality)
        INTO event_subject
        FROM json_array_elements_text(orch_keys() -> table_name) WITH ORDINALITY AS keys(name, ordinality);
    ELSE
      made := made || true;
    END IF;
    number := number + 1;
    new_hash := orch_event_hash(
      last_hash, number, event_at, change ->> 'cluster', event_actor, change ->> 'kind', change ->> 'what',
      event_subject, change ->> 'cause', event_before, event_after);
    INSERT INTO events (
      seq, at, cluster, actor, kind, what, subject, cause, before, after, prev_hash, hash, request
    ) VALUES (
      number, event_at, change ->> 'cluster', event_actor, change ->> 'kind', change ->> 'what',
      event_subject, change ->> 'cause', event_before, event_after, last_hash, new_hash, request ->> 'id'
    );
    last_hash := new_hash;
    has_events := true;
  END LOOP;
  IF has_events THEN
    UPDATE meta SET value = number || ' ' || last_hash WHERE key = 'chain';
  END IF;
  RETURN json_build_object('made', made);
END
$$
---
-- Note the last backup (backup_note.BackupNote): the one row of meta that a member writes.
CREATE OR REPLACE FUNCTION orch_note_backup(note text) RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER AS $$
  INSERT INTO meta (key, value) VALUES ('backup', note) ON CONFLICT (key) DO UPDATE SET value = excluded.value
$$
---
CREATE OR REPLACE FUNCTION orch_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE 'events are only added: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$
---
DROP TRIGGER IF EXISTS events_are_kept ON events
---
CREATE TRIGGER events_are_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON events
  FOR EACH STATEMENT EXECUTE FUNCTION orch_refuse_change()
---
-- A name that a caller defines, in its temporary schema for instance, is never used by a function that has our rights.
DO $$
DECLARE
  name text;
BEGIN
  FOREACH name IN ARRAY ARRAY[
    'orch_event_hash(text, integer, double precision, text, text, text, text, text, text, text, text)',
    'orch_event_columns(text, json, text[])', 'orch_lock_row(text, json, json)', 'orch_change(json)',
    'orch_refuse_budget_change(json, json)', 'orch_note_backup(text)'
  ] LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %I, pg_temp', name, current_schema());
    EXECUTE format('ALTER FUNCTION %s SET extra_float_digits = 1', name);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', name);
  END LOOP;
END
$$
