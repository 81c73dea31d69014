-- Who does what is to be done once by all servers: the closing of statements. It spares
-- work, and nothing depends on it: a statement is closed once whoever closes it.
-- +goose Up

CREATE TABLE leaders (
    task     text   COLLATE "C" PRIMARY KEY,
    holder   text   NOT NULL,
    until_ms bigint NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON leaders TO quota_app;

-- What was changed of one object.
CREATE INDEX audit_object ON audit_log (object, number);
