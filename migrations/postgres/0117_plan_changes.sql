-- What a tenant's plan will be, and from when on. A row goes when its time has come, in the
-- transaction that writes the subscription; one whose plan does not fit then stays, and says why.
-- +goose Up

CREATE TABLE plan_changes (
    tenant text   COLLATE "C" NOT NULL,
    at_ms  bigint NOT NULL,
    plan   text   COLLATE "C" NOT NULL,
    actor  text   NOT NULL,
    failed text   NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, at_ms)            -- two at one time would overlap
);
CREATE INDEX plan_changes_due ON plan_changes (at_ms) WHERE failed = '';

GRANT SELECT, INSERT, UPDATE, DELETE ON plan_changes TO quota_app;
