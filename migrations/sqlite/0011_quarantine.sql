-- Facts cannot be replaced. INSERT OR REPLACE deletes the row that has the same key, and fires triggers
-- on that only where recursive_triggers is on, which is each connection's own. So a row
-- whose key, or rowid, there is already is refused before it is inserted.
--
-- What is in quarantine is told by tenant and slot: a period is not closed while rows of it
-- are there. NULL in rows of before; the tenant is empty for whole reports, and where it is no text.
-- +goose Up

ALTER TABLE quarantine ADD COLUMN tenant TEXT;
ALTER TABLE quarantine ADD COLUMN slot INTEGER;              -- Unix seconds
ALTER TABLE quarantine ADD COLUMN units INTEGER;             -- admitted
CREATE INDEX quarantine_tenant ON quarantine (tenant, slot);

-- +goose StatementBegin
CREATE TRIGGER reports_no_replace BEFORE INSERT ON reports
WHEN EXISTS (SELECT 1 FROM reports o
    WHERE o.agent = NEW.agent AND o.epoch = NEW.epoch AND o.seq = NEW.seq
    OR o.rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'reports is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER entries_no_replace BEFORE INSERT ON entries
WHEN EXISTS (SELECT 1 FROM entries o
    WHERE o.height = NEW.height AND o.n = NEW.n)
BEGIN SELECT RAISE(ABORT, 'entries is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER blocks_no_replace BEFORE INSERT ON blocks
WHEN EXISTS (SELECT 1 FROM blocks o
    WHERE o.height = NEW.height
    OR o.previous = NEW.previous)
BEGIN SELECT RAISE(ABORT, 'blocks is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER quarantine_no_replace BEFORE INSERT ON quarantine
WHEN EXISTS (SELECT 1 FROM quarantine o
    WHERE o.id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'quarantine is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER keys_no_replace BEFORE INSERT ON keys
WHEN EXISTS (SELECT 1 FROM keys o
    WHERE o.key = NEW.key)
BEGIN SELECT RAISE(ABORT, 'keys is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER corrections_no_replace BEFORE INSERT ON corrections
WHEN EXISTS (SELECT 1 FROM corrections o
    WHERE o.number = NEW.number
    OR o.key = NEW.key
    OR o.reverts = NEW.reverts AND o.reverts > 0)
BEGIN SELECT RAISE(ABORT, 'corrections is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER resolutions_no_replace BEFORE INSERT ON resolutions
WHEN EXISTS (SELECT 1 FROM resolutions o
    WHERE o.quarantined = NEW.quarantined)
BEGIN SELECT RAISE(ABORT, 'resolutions is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER retired_no_replace BEFORE INSERT ON retired
WHEN EXISTS (SELECT 1 FROM retired o
    WHERE o.month = NEW.month)
BEGIN SELECT RAISE(ABORT, 'retired is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archives_no_replace BEFORE INSERT ON archives
WHEN EXISTS (SELECT 1 FROM archives o
    WHERE o.month = NEW.month AND o.fact = NEW.fact)
BEGIN SELECT RAISE(ABORT, 'archives is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_reports_no_replace BEFORE INSERT ON archived_reports
WHEN EXISTS (SELECT 1 FROM archived_reports o
    WHERE o.agent = NEW.agent AND o.epoch = NEW.epoch AND o.seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'archived_reports is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_settled_no_replace BEFORE INSERT ON archived_settled
WHEN EXISTS (SELECT 1 FROM archived_settled o
    WHERE o.agent = NEW.agent AND o.epoch = NEW.epoch AND o.limit_name = NEW.limit_name AND o.month = NEW.month)
BEGIN SELECT RAISE(ABORT, 'archived_settled is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_corrections_no_replace BEFORE INSERT ON archived_corrections
WHEN EXISTS (SELECT 1 FROM archived_corrections o
    WHERE o.correction = NEW.correction AND o.month = NEW.month)
BEGIN SELECT RAISE(ABORT, 'archived_corrections is append-only'); END;
-- +goose StatementEnd
