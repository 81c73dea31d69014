-- Spending caps of tenants, what they reached, the events that they and others' thresholds
-- made, and the deliveries of these. An event is a fact, told of once: its alert, tenant,
-- threshold and period are unique, and its deliveries are written with it.
-- +goose Up

ALTER TABLE tenants ADD COLUMN spending_cap text NOT NULL DEFAULT ''; -- JSON; empty for the plan's
ALTER TABLE tenants ADD COLUMN capped text NOT NULL DEFAULT '';       -- JSON of what was reached; empty for nothing
CREATE INDEX tenants_capped ON tenants (id) WHERE capped <> '';
CREATE INDEX tenants_spending_cap ON tenants (id) WHERE spending_cap <> '';

CREATE TABLE alerts (
    number     bigint PRIMARY KEY,
    id         text   COLLATE "C" NOT NULL UNIQUE,
    kind       text   NOT NULL,
    alert      text   COLLATE "C" NOT NULL,
    tenant     text   COLLATE "C" NOT NULL,
    plan       text   NOT NULL,
    limit_name text   NOT NULL,
    threshold  bigint NOT NULL,            -- parts per million
    period     text   COLLATE "C" NOT NULL,
    used       bigint NOT NULL,            -- units, minor units or parts per million, by kind
    of         bigint NOT NULL,
    currency   text   NOT NULL,
    action     text   NOT NULL,
    height     bigint NOT NULL,
    at_ms      bigint NOT NULL,
    body       text   NOT NULL,            -- what is delivered, the same bytes every time
    UNIQUE (alert, tenant, threshold, period)
);
CREATE INDEX alerts_tenant ON alerts (tenant, number);

CREATE TABLE alert_deliveries (
    number   bigint NOT NULL REFERENCES alerts (number),
    webhook  text   COLLATE "C" NOT NULL,
    state    text   NOT NULL,              -- pending, delivered or dead
    attempts bigint NOT NULL,
    since_ms bigint NOT NULL,              -- when it was made, or begun anew
    next_ms  bigint NOT NULL,
    tried_ms bigint NOT NULL,
    status   bigint NOT NULL,
    error    text   NOT NULL,
    PRIMARY KEY (number, webhook)
);
CREATE INDEX alert_deliveries_pending ON alert_deliveries (webhook, next_ms) WHERE state = 'pending';

CREATE INDEX alert_deliveries_dead ON alert_deliveries (number) WHERE state = 'dead';

-- How far all has been looked at.
CREATE TABLE alert_marks (
    id       bigint PRIMARY KEY CHECK (id = 1),
    height   bigint NOT NULL,
    change   bigint NOT NULL,
    version  bigint NOT NULL,
    audit    bigint NOT NULL,
    sweeping bigint NOT NULL,              -- 1 while all tenants are looked at
    sweep    text   NOT NULL               -- after this one, by id
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON alerts FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON alerts FOR EACH STATEMENT EXECUTE FUNCTION append_only();

GRANT SELECT, INSERT ON alerts TO quota_app;
GRANT SELECT, INSERT, UPDATE ON alert_deliveries, alert_marks TO quota_app;
