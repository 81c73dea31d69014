-- An event is told of once for each amount as well: a cap that is raised and reached again, or
-- does something else when it is, is told of anew, and so is a quota of other units. What a
-- share of denials is held against moves with time, and is no part of it. A table of SQLite
-- keeps its constraints, so that this one is made again, and what refers to it.
-- +goose Up

CREATE TABLE alerts_kept AS SELECT * FROM alerts;
CREATE TABLE alert_deliveries_kept AS SELECT * FROM alert_deliveries;
DROP TABLE alert_deliveries;
DROP TABLE alerts;

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
    body       TEXT    NOT NULL            -- what is delivered, the same bytes every time
) STRICT;
CREATE INDEX alerts_tenant ON alerts (tenant, number);
CREATE UNIQUE INDEX alerts_once ON alerts (alert, tenant, threshold, period, (CASE WHEN kind = 'denials' THEN 0 ELSE of END), currency, action);

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

INSERT INTO alerts SELECT * FROM alerts_kept;
INSERT INTO alert_deliveries SELECT * FROM alert_deliveries_kept;
DROP TABLE alerts_kept;
DROP TABLE alert_deliveries_kept;

-- +goose StatementBegin
CREATE TRIGGER alerts_no_update BEFORE UPDATE ON alerts
BEGIN SELECT RAISE(ABORT, 'alerts is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER alerts_no_delete BEFORE DELETE ON alerts
BEGIN SELECT RAISE(ABORT, 'alerts is append-only'); END;
-- +goose StatementEnd
