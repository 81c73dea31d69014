-- When overrides of a tenant come in effect or cease to be: agents are told of the tenant then.
-- +goose Up

CREATE TABLE override_edges (
    tenant text   COLLATE "C" NOT NULL,
    at_ms  bigint NOT NULL,
    PRIMARY KEY (tenant, at_ms)
);
CREATE INDEX override_edges_due ON override_edges (at_ms);

GRANT SELECT, INSERT, DELETE ON override_edges TO quota_app;
