-- A server of a release before retention judges rows by the months that it read when it
-- started. A row of a month that is dropped could be in a report of this month, and no fold
-- would pass it. Once a month is retired, a report is only stored by who keeps months from
-- being retired meanwhile, as every release since does before it judges; to others the
-- ledger is away, and their agents go to another server.
-- +goose Up

-- +goose StatementBegin
CREATE FUNCTION holds_months() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    lock constant bigint := hashtextextended('quota.months.' || current_schema(), 0);
    knows boolean := false;
BEGIN
    IF NOT EXISTS (SELECT FROM retired) THEN
        -- Retention waits for this transaction then, or this one for it, and finds the months
        -- retired: not while one that knows is under way, which has the lock already.
        PERFORM pg_advisory_xact_lock_shared(lock);
    ELSE
        knows := EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND classid::bigint = (lock >> 32) & 4294967295 AND objid::bigint = lock & 4294967295);
    END IF;
    IF NOT knows AND EXISTS (SELECT FROM retired) THEN
        RAISE EXCEPTION 'months were retired: this release of the server does not know, and may store no reports'
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER holds_months BEFORE INSERT ON reports FOR EACH STATEMENT EXECUTE FUNCTION holds_months();
