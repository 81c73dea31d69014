-- Which key an epoch last reported or held leases under: what it may still have holds no usage back once that key is
-- revoked or has ended. Empty where none was asked for, and of epochs from before.
-- +goose Up

ALTER TABLE frontier ADD COLUMN key_id TEXT NOT NULL DEFAULT '';
