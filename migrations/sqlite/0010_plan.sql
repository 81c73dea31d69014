-- The plan that a tenant had when its units were admitted, at the agent. It is a part of what
-- a key is of; empty where an agent did not say, or did not know.
-- +goose Up

ALTER TABLE keys ADD COLUMN plan TEXT NOT NULL DEFAULT '';
