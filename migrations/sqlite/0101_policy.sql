-- Policy versions, tenants, keys, switches and the audit log. Versions and the
-- audit log are append-only. Every change takes the only row of policy_heads
-- first: changes are serialized, and their numbers have the order of commits.
-- +goose Up

-- The numbers of the newest changes, which servers poll.
CREATE TABLE policy_heads (
    id       bigint PRIMARY KEY CHECK (id = 1),
    version  bigint NOT NULL,              -- policy version in force; 0 before the first
    tenants  bigint NOT NULL,
    switches bigint NOT NULL,
    keys     bigint NOT NULL,
    audit    bigint NOT NULL
);
INSERT INTO policy_heads (id, version, tenants, switches, keys, audit) VALUES (1, 0, 0, 0, 0, 0);

CREATE TABLE policy_versions (
    number     bigint PRIMARY KEY,
    document   text   NOT NULL,
    file       text   NOT NULL,
    author     text   NOT NULL,
    created_ms bigint NOT NULL
);

CREATE TABLE tenants (
    id        text   PRIMARY KEY,
    plan      text   NOT NULL,
    parent    text   NOT NULL, -- empty at the top
    overrides text   NOT NULL,             -- JSON as written, compiled against the plan in force; empty for none
    suspended bigint NOT NULL,             -- 0 or 1
    change    bigint NOT NULL              -- number of its last change
);
CREATE UNIQUE INDEX tenants_change ON tenants (change);
CREATE INDEX tenants_parent ON tenants (parent) WHERE parent <> '';
CREATE INDEX tenants_plan ON tenants (plan);
CREATE INDEX tenants_overrides ON tenants (id) WHERE overrides <> '';

-- Operators' switches, as one row.
CREATE TABLE policy_switches (
    id     bigint PRIMARY KEY CHECK (id = 1),
    mode   bigint NOT NULL,
    denied text   NOT NULL                 -- JSON list of tenants
);
INSERT INTO policy_switches (id, mode, denied) VALUES (1, 0, '[]');

CREATE TABLE access_keys (
    id         text   PRIMARY KEY,
    hash       text   NOT NULL UNIQUE, -- SHA-256 of the secret, in hex
    role       text   NOT NULL,
    agent      text   NOT NULL,
    note       text   NOT NULL,
    created_ms bigint NOT NULL,
    revoked_ms bigint NOT NULL             -- 0 while the key is good
);

CREATE TABLE audit_log (
    number bigint PRIMARY KEY,
    at_ms  bigint NOT NULL,
    actor  text   NOT NULL,
    action text   NOT NULL,
    object text   NOT NULL,
    before text   NOT NULL,
    after  text   NOT NULL
);

-- +goose StatementBegin
CREATE TRIGGER policy_versions_no_update BEFORE UPDATE ON policy_versions
BEGIN SELECT RAISE(ABORT, 'policy_versions is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER policy_versions_no_delete BEFORE DELETE ON policy_versions
BEGIN SELECT RAISE(ABORT, 'policy_versions is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_log_no_update BEFORE UPDATE ON audit_log
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_log_no_delete BEFORE DELETE ON audit_log
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;
-- +goose StatementEnd
