-- Policy versions, tenants, keys, switches and the audit log. Versions and the
-- audit log are append-only for quota_app. Every change takes policy_heads' only
-- row first: changes are serialized, and their numbers have the order of commits.
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
    id        text   COLLATE "C" PRIMARY KEY,
    plan      text   COLLATE "C" NOT NULL,
    parent    text   COLLATE "C" NOT NULL, -- empty at the top
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
    id         text   COLLATE "C" PRIMARY KEY,
    hash       text   COLLATE "C" NOT NULL UNIQUE, -- SHA-256 of the secret, in hex
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

GRANT SELECT, UPDATE ON policy_heads TO quota_app;
GRANT SELECT, INSERT ON policy_versions TO quota_app;
GRANT SELECT, INSERT, UPDATE ON tenants TO quota_app;
GRANT SELECT, UPDATE ON policy_switches TO quota_app;
GRANT SELECT, INSERT, UPDATE ON access_keys TO quota_app;
GRANT SELECT, INSERT ON audit_log TO quota_app;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON policy_versions FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON policy_versions FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION append_only();
