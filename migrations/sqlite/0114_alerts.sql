-- Spending caps of tenants, what they reached, the events that they and others' thresholds
-- made, and the deliveries of these. An event is a fact, told of once: its alert, tenant,
-- threshold and period are unique, and its deliveries are written with it.
-- +goose Up

ALTER TABLE tenants ADD COLUMN spending_cap TEXT NOT NULL DEFAULT ''; -- JSON; empty for the plan's
ALTER TABLE tenants ADD COLUMN capped TEXT NOT NULL DEFAULT '';       -- JSON of what was reached; empty for nothing
CREATE INDEX tenants_capped ON tenants (id) WHERE capped <> '';
CREATE INDEX tenants_spending_cap ON tenants (id) WHERE spending_cap <> '';

CREATE TABLE alerts (
    number     INTEGER NOT NULL PRIMARY KEY,
    id         TEXT    NOT NULL UNIQUE,
    kind       TEXT    NOT NULL,
    alert      TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    plan       TEXT    NOT NULL,
    limit_name TEXT    NOT NULL,
    threshold  INTEGER NOT NULL,           -- parts per million
    period     TEXT    NOT NULL,
    used       INTEGER NOT NULL,           -- units, minor units or parts per million, by kind
    of         INTEGER NOT NULL,
    currency   TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    height     INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    body       TEXT    NOT NULL,           -- what is delivered, the same bytes every time
    UNIQUE (alert, tenant, threshold, period)
) STRICT;
CREATE INDEX alerts_tenant ON alerts (tenant, number);

CREATE TABLE alert_deliveries (
    number   INTEGER NOT NULL REFERENCES alerts (number),
    webhook  TEXT    NOT NULL,
    state    TEXT    NOT NULL,             -- pending, delivered or dead
    attempts INTEGER NOT NULL,
    since_ms INTEGER NOT NULL,             -- when it was made, or begun anew
    next_ms  INTEGER NOT NULL,
    tried_ms INTEGER NOT NULL,
    status   INTEGER NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (number, webhook)
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_deliveries_pending ON alert_deliveries (webhook, next_ms) WHERE state = 'pending';

CREATE INDEX alert_deliveries_dead ON alert_deliveries (number) WHERE state = 'dead';

-- How far all has been looked at.
CREATE TABLE alert_marks (
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    height   INTEGER NOT NULL,
    change   INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    audit    INTEGER NOT NULL,
    sweeping INTEGER NOT NULL,             -- 1 while all tenants are looked at
    sweep    TEXT    NOT NULL              -- after this one, by id
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER alerts_no_update BEFORE UPDATE ON alerts
BEGIN SELECT RAISE(ABORT, 'alerts is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER alerts_no_delete BEFORE DELETE ON alerts
BEGIN SELECT RAISE(ABORT, 'alerts is append-only'); END;
-- +goose StatementEnd
