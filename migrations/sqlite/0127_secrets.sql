-- What servers of one policy store share and nobody else knows: each secret is made once, by whichever server asks first.
-- +goose Up

CREATE TABLE server_secrets (
    name   TEXT NOT NULL PRIMARY KEY,
    secret BLOB NOT NULL
) STRICT, WITHOUT ROWID;
