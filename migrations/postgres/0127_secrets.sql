-- What servers of one policy store share and nobody else knows: each secret is made once, by whichever server asks first.
-- +goose Up

CREATE TABLE server_secrets (
    name   text  COLLATE "C" PRIMARY KEY,
    secret bytea NOT NULL
);
GRANT SELECT, INSERT ON server_secrets TO quota_app;
