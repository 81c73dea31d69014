-- Credits, what was voided of them, and what statements used: facts. What is left of a
-- credit is its amount, less what the statements used or let lapse.
-- +goose Up

CREATE TABLE credits (
    id       TEXT    NOT NULL PRIMARY KEY,
    tenant   TEXT    NOT NULL,
    currency TEXT    NOT NULL,
    amount   INTEGER NOT NULL CHECK (amount > 0), -- minor units
    priority INTEGER NOT NULL,
    given_ms INTEGER NOT NULL,
    expires  INTEGER NOT NULL,                    -- Unix seconds; 0 for never
    rollover INTEGER NOT NULL,                    -- minor units; -1 for all
    note     TEXT    NOT NULL,
    actor    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX credits_tenant ON credits (tenant, id);

CREATE TABLE credit_voids (
    credit TEXT    NOT NULL PRIMARY KEY REFERENCES credits (id),
    at_ms  INTEGER NOT NULL,
    reason TEXT    NOT NULL,
    actor  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE credit_burns (
    credit      TEXT    NOT NULL REFERENCES credits (id),
    number      INTEGER NOT NULL,                 -- of the tenant's statement
    left_before INTEGER NOT NULL,
    paid        INTEGER NOT NULL,
    lapsed      INTEGER NOT NULL,
    left_after  INTEGER NOT NULL,
    PRIMARY KEY (credit, number),
    CHECK (left_before = paid + lapsed + left_after AND paid >= 0 AND lapsed >= 0 AND left_after >= 0)
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER credits_no_update BEFORE UPDATE ON credits
BEGIN SELECT RAISE(ABORT, 'credits is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credits_no_delete BEFORE DELETE ON credits
BEGIN SELECT RAISE(ABORT, 'credits is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credit_voids_no_update BEFORE UPDATE ON credit_voids
BEGIN SELECT RAISE(ABORT, 'credit_voids is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credit_voids_no_delete BEFORE DELETE ON credit_voids
BEGIN SELECT RAISE(ABORT, 'credit_voids is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credit_burns_no_update BEFORE UPDATE ON credit_burns
BEGIN SELECT RAISE(ABORT, 'credit_burns is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credit_burns_no_delete BEFORE DELETE ON credit_burns
BEGIN SELECT RAISE(ABORT, 'credit_burns is append-only'); END;
-- +goose StatementEnd
