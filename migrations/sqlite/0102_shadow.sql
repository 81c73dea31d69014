-- A policy version that is tried beside the one in force.
-- +goose Up

-- The version that is tried now; 0 for none.
ALTER TABLE policy_heads ADD COLUMN shadow bigint NOT NULL DEFAULT 0;

-- 1 for a version that was stored to be tried; it never is in force itself.
ALTER TABLE policy_versions ADD COLUMN shadow bigint NOT NULL DEFAULT 0;
CREATE INDEX policy_versions_shadow ON policy_versions (number) WHERE shadow = 1;
