-- Webhooks that fail. One that does again and again is tried by one delivery at a time; the others
-- wait, and the time that they do is none of theirs.
-- +goose Up

CREATE TABLE webhook_outages (
    webhook  TEXT    NOT NULL PRIMARY KEY,
    failures INTEGER NOT NULL,             -- one after another
    open_ms  INTEGER NOT NULL,             -- since when deliveries wait; 0 while they do not
    next_ms  INTEGER NOT NULL,             -- when one is tried next
    error    TEXT    NOT NULL
) STRICT;
ALTER TABLE alert_deliveries ADD COLUMN waited_ms INTEGER NOT NULL DEFAULT 0; -- during outages, since since_ms
