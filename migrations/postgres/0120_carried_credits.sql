-- A statement that comes to less than zero makes a credit of that, in the transaction that closes it: once for each
-- currency. carried is the statement's number; 0 for a credit that was given.
-- +goose Up

ALTER TABLE credits ADD COLUMN carried bigint NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX credits_carried ON credits (tenant, carried, currency) WHERE carried > 0;
