-- An epoch that another goes on from: which, and how many of its units are settled at most,
-- for what came after them is the other's. What moves a frontier beyond that is refused,
-- also of a server of a release before this.
-- +goose Up

ALTER TABLE frontier
    ADD COLUMN next_epoch bigint NOT NULL DEFAULT 0,
    ADD COLUMN ends_at    bigint NOT NULL DEFAULT 0,
    ADD CHECK (next_epoch = 0 OR total <= ends_at);
