-- Which plan a tenant had when. A subscription goes from its time to the tenant's next
-- one: ranges that are told apart by where they begin cannot overlap, and cannot have
-- gaps. They are facts, written with every change of a tenant's plan, each after the
-- one before: what a statement was made of is not changed behind it.
-- +goose Up

CREATE TABLE subscriptions (
    tenant  TEXT    NOT NULL,
    from_ms INTEGER NOT NULL,
    plan    TEXT    NOT NULL,
    PRIMARY KEY (tenant, from_ms)
) STRICT, WITHOUT ROWID;

-- What there was until now is in the audit log; of several changes in a millisecond the
-- last is kept. Tenants that are not as the log has them end as they are.
INSERT INTO subscriptions (tenant, from_ms, plan)
    SELECT object, at_ms, json_extract(after, '$.plan') FROM (
        SELECT object, at_ms, after, row_number() OVER (PARTITION BY object, at_ms ORDER BY number DESC) AS newest
        FROM audit_log WHERE action IN ('tenant.create', 'tenant.apply', 'tenant.set-plan')
            AND (before = '' OR json_extract(before, '$.plan') IS NOT json_extract(after, '$.plan'))) AS changes
    WHERE newest = 1;
INSERT INTO subscriptions (tenant, from_ms, plan)
    SELECT t.id, coalesce(max(s.from_ms) + 1, 0), t.plan FROM tenants t LEFT JOIN subscriptions s ON s.tenant = t.id
    GROUP BY t.id, t.plan
    HAVING t.plan IS NOT (SELECT l.plan FROM subscriptions l WHERE l.tenant = t.id ORDER BY l.from_ms DESC LIMIT 1);

-- +goose StatementBegin
CREATE TRIGGER subscriptions_follow BEFORE INSERT ON subscriptions
WHEN EXISTS (SELECT 1 FROM subscriptions s WHERE s.tenant = NEW.tenant AND s.from_ms >= NEW.from_ms)
BEGIN SELECT RAISE(ABORT, 'subscriptions of a tenant follow one another'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER subscriptions_no_update BEFORE UPDATE ON subscriptions
BEGIN SELECT RAISE(ABORT, 'subscriptions is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER subscriptions_no_delete BEFORE DELETE ON subscriptions
BEGIN SELECT RAISE(ABORT, 'subscriptions is append-only'); END;
-- +goose StatementEnd

-- How the tenant's periods follow one another: JSON; empty for calendar months in UTC.
ALTER TABLE tenants ADD COLUMN billing TEXT NOT NULL DEFAULT '';
