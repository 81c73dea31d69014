-- When a tenant was closed, Unix milliseconds; 0 while it is open. Its row stays: the books name
-- it, and its id is never another's.
-- +goose Up

ALTER TABLE tenants ADD COLUMN closed_ms bigint NOT NULL DEFAULT 0;
