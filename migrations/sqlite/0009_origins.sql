-- An epoch that another goes on from: which, and how many of its units are settled at most,
-- for what came after them is the other's.
-- +goose Up

ALTER TABLE frontier ADD COLUMN next_epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE frontier ADD COLUMN ends_at INTEGER NOT NULL DEFAULT 0 CHECK (next_epoch = 0 OR total <= ends_at);
