-- What keys are for, when they end, when they were last used and what took their place.
-- An agent's key names its agent; one from before that does not can only be revoked.
-- +goose Up

ALTER TABLE access_keys ADD COLUMN tenants    text   NOT NULL DEFAULT '[]'; -- JSON list of ids and beginnings of ids; none for all
ALTER TABLE access_keys ADD COLUMN subtree    bigint NOT NULL DEFAULT 0;    -- 0 or 1
ALTER TABLE access_keys ADD COLUMN limits     text   NOT NULL DEFAULT '[]'; -- likewise of limits
ALTER TABLE access_keys ADD COLUMN expires_ms bigint NOT NULL DEFAULT 0;    -- 0 for never
ALTER TABLE access_keys ADD COLUMN used_ms    bigint NOT NULL DEFAULT 0;    -- 0 for never
ALTER TABLE access_keys ADD COLUMN successor  text   NOT NULL DEFAULT '';

-- +goose StatementBegin
CREATE TRIGGER access_keys_agent BEFORE INSERT ON access_keys WHEN NEW.role = 'agent' AND NEW.agent = ''
BEGIN SELECT RAISE(ABORT, 'an agent''s key names its agent'); END;
-- +goose StatementEnd

-- Servers hold those that were not revoked in memory.
CREATE INDEX access_keys_good ON access_keys (id) WHERE revoked_ms = 0;
