-- Which plan a tenant had when. A subscription goes from its time to the tenant's next
-- one: ranges that are told apart by where they begin cannot overlap, and cannot have
-- gaps. They are facts, written with every change of a tenant's plan, each after the
-- one before: what a statement was made of is not changed behind it.
-- +goose Up

CREATE TABLE subscriptions (
    tenant  text   COLLATE "C" NOT NULL,
    from_ms bigint NOT NULL,
    plan    text   COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, from_ms)
);

-- What there was until now is in the audit log; of several changes in a millisecond the
-- last is kept. Tenants that are not as the log has them end as they are.
INSERT INTO subscriptions (tenant, from_ms, plan)
    SELECT object, at_ms, after::jsonb ->> 'plan' FROM (
        SELECT object, at_ms, after, row_number() OVER (PARTITION BY object, at_ms ORDER BY number DESC) AS newest
        FROM audit_log WHERE action IN ('tenant.create', 'tenant.apply', 'tenant.set-plan')
            AND (before = '' OR before::jsonb ->> 'plan' IS DISTINCT FROM after::jsonb ->> 'plan')) AS changes
    WHERE newest = 1;
INSERT INTO subscriptions (tenant, from_ms, plan)
    SELECT t.id, coalesce(max(s.from_ms) + 1, 0), t.plan FROM tenants t LEFT JOIN subscriptions s ON s.tenant = t.id
    GROUP BY t.id, t.plan
    HAVING t.plan IS DISTINCT FROM (SELECT l.plan FROM subscriptions l WHERE l.tenant = t.id ORDER BY l.from_ms DESC LIMIT 1);

-- +goose StatementBegin
CREATE FUNCTION subscriptions_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM subscriptions s WHERE s.tenant = NEW.tenant AND s.from_ms >= NEW.from_ms) THEN
        RAISE EXCEPTION 'subscriptions of a tenant follow one another' USING ERRCODE = 'exclusion_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER follow BEFORE INSERT ON subscriptions FOR EACH ROW EXECUTE FUNCTION subscriptions_follow();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON subscriptions FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON subscriptions FOR EACH STATEMENT EXECUTE FUNCTION append_only();

GRANT SELECT, INSERT ON subscriptions TO quota_app;

-- How the tenant's periods follow one another: JSON; empty for calendar months in UTC.
ALTER TABLE tenants ADD COLUMN billing text NOT NULL DEFAULT '';
