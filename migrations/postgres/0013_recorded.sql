-- When servers last recorded a renewal of an account: since then its agent may have admitted while nobody could be asked.
-- 0 for accounts from before.
-- +goose Up

ALTER TABLE leases ADD COLUMN recorded_ms BIGINT NOT NULL DEFAULT 0;
