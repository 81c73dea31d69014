-- A statement that comes to less than zero makes a credit of that, in the transaction that closes it: once for each
-- currency. carried is the statement's number; 0 for a credit that was given.
-- +goose Up

ALTER TABLE credits ADD COLUMN carried INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX credits_carried ON credits (tenant, carried, currency) WHERE carried > 0;
-- +goose StatementBegin
CREATE TRIGGER credits_carried_once BEFORE INSERT ON credits
WHEN NEW.carried > 0 AND EXISTS (SELECT 1 FROM credits o
    WHERE o.tenant = NEW.tenant AND o.carried = NEW.carried AND o.currency = NEW.currency)
BEGIN SELECT RAISE(ABORT, 'credits is append-only: a statement carries a currency once'); END;
-- +goose StatementEnd
