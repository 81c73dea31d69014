-- What keys are for, when they end, when they were last used and what took their place.
-- An agent's key names its agent; one from before that does not can only be revoked.
-- +goose Up

ALTER TABLE access_keys
    ADD COLUMN tenants    text   NOT NULL DEFAULT '[]', -- JSON list of ids and beginnings of ids; none for all
    ADD COLUMN subtree    bigint NOT NULL DEFAULT 0,    -- 0 or 1
    ADD COLUMN limits     text   NOT NULL DEFAULT '[]', -- likewise of limits
    ADD COLUMN expires_ms bigint NOT NULL DEFAULT 0,    -- 0 for never
    ADD COLUMN used_ms    bigint NOT NULL DEFAULT 0,    -- 0 for never
    ADD COLUMN successor  text   COLLATE "C" NOT NULL DEFAULT '',
    ADD CONSTRAINT access_keys_agent CHECK (role <> 'agent' OR agent <> '' OR revoked_ms <> 0) NOT VALID;

-- Servers hold those that were not revoked in memory.
CREATE INDEX access_keys_good ON access_keys (id) WHERE revoked_ms = 0;
