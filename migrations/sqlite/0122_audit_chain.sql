-- Each row of the audit log holds a hash of itself and of the row before: a row that is
-- changed or taken away by whoever may is found by "quotactl ledger verify". Empty in rows of before.
--
-- Facts cannot be replaced. INSERT OR REPLACE deletes the row that has the same key, and fires triggers
-- on that only where recursive_triggers is on, which is each connection's own. So a row
-- whose key, or rowid, there is already is refused before it is inserted.
-- +goose Up

ALTER TABLE audit_log ADD COLUMN chain BLOB NOT NULL DEFAULT x'';

-- +goose StatementBegin
CREATE TRIGGER policy_versions_no_replace BEFORE INSERT ON policy_versions
WHEN EXISTS (SELECT 1 FROM policy_versions o
    WHERE o.number = NEW.number
    OR o.rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'policy_versions is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_log_no_replace BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log o
    WHERE o.number = NEW.number
    OR o.rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER statements_no_replace BEFORE INSERT ON statements
WHEN EXISTS (SELECT 1 FROM statements o
    WHERE o.tenant = NEW.tenant AND o.number = NEW.number
    OR o.tenant = NEW.tenant AND o.period = NEW.period)
BEGIN SELECT RAISE(ABORT, 'statements is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credits_no_replace BEFORE INSERT ON credits
WHEN EXISTS (SELECT 1 FROM credits o
    WHERE o.id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'credits is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credit_voids_no_replace BEFORE INSERT ON credit_voids
WHEN EXISTS (SELECT 1 FROM credit_voids o
    WHERE o.credit = NEW.credit)
BEGIN SELECT RAISE(ABORT, 'credit_voids is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER credit_burns_no_replace BEFORE INSERT ON credit_burns
WHEN EXISTS (SELECT 1 FROM credit_burns o
    WHERE o.credit = NEW.credit AND o.number = NEW.number)
BEGIN SELECT RAISE(ABORT, 'credit_burns is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER alerts_no_replace BEFORE INSERT ON alerts
WHEN EXISTS (SELECT 1 FROM alerts o
    WHERE o.number = NEW.number
    OR o.id = NEW.id
    OR o.alert = NEW.alert AND o.tenant = NEW.tenant AND o.threshold = NEW.threshold AND o.period = NEW.period
        AND (NEW.kind = 'denials' OR o.kind = 'denials' OR o.of = NEW.of)
        AND o.currency = NEW.currency AND o.action = NEW.action)
BEGIN SELECT RAISE(ABORT, 'alerts is append-only'); END;
-- +goose StatementEnd
