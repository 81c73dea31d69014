-- Webhooks that fail. One that does again and again is tried by one delivery at a time; the others
-- wait, and the time that they do is none of theirs.
-- +goose Up

CREATE TABLE webhook_outages (
    webhook  text   COLLATE "C" PRIMARY KEY,
    failures bigint NOT NULL,              -- one after another
    open_ms  bigint NOT NULL,              -- since when deliveries wait; 0 while they do not
    next_ms  bigint NOT NULL,              -- when one is tried next
    error    text   NOT NULL
);
ALTER TABLE alert_deliveries ADD COLUMN waited_ms bigint NOT NULL DEFAULT 0; -- during outages, since since_ms

GRANT SELECT, INSERT, UPDATE, DELETE ON webhook_outages TO quota_app;
