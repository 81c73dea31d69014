-- What a tenant's plan will be, and from when on. A row goes when its time has come, in the
-- transaction that writes the subscription; one whose plan does not fit then stays, and says why.
-- +goose Up

CREATE TABLE plan_changes (
    tenant TEXT    NOT NULL,
    at_ms  INTEGER NOT NULL,
    plan   TEXT    NOT NULL,
    actor  TEXT    NOT NULL,
    failed TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, at_ms)            -- two at one time would overlap
) STRICT, WITHOUT ROWID;
CREATE INDEX plan_changes_due ON plan_changes (at_ms) WHERE failed = '';
