-- Each row of the audit log holds a hash of itself and of the row before: a row that is
-- changed or taken away by whoever may is found by "quotactl ledger verify". Empty in rows of before.
-- +goose Up

ALTER TABLE audit_log ADD COLUMN chain bytea NOT NULL DEFAULT '';
