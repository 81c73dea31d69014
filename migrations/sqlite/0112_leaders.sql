-- Who does what is to be done once by all servers: the closing of statements. It spares
-- work, and nothing depends on it: a statement is closed once whoever closes it.
-- +goose Up

CREATE TABLE leaders (
    task     TEXT    NOT NULL PRIMARY KEY,
    holder   TEXT    NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What was changed of one object.
CREATE INDEX audit_object ON audit_log (object, number);
