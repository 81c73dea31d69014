-- When overrides of a tenant come in effect or cease to be: agents are told of the tenant then.
-- +goose Up

CREATE TABLE override_edges (
    tenant TEXT    NOT NULL,
    at_ms  INTEGER NOT NULL,
    PRIMARY KEY (tenant, at_ms)
) STRICT, WITHOUT ROWID;
CREATE INDEX override_edges_due ON override_edges (at_ms);
