-- What is written, once writing has failed, to find out whether there is room again.
-- +goose Up

CREATE TABLE probe (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    filler BLOB NOT NULL
) STRICT;
