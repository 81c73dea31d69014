-- Retention: whole months of reports and entries go into files, and only then out of
-- the database. What the ledger is checked by stays: of each report all but its
-- payload, of each archive its digest.
-- +goose Up

-- Months that take no more usage: they are gone from months, and are never made again.
CREATE TABLE retired (
    month INTEGER PRIMARY KEY,
    actor TEXT    NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;

-- The files that months went into. A month has both, or neither.
CREATE TABLE archives (
    month    INTEGER NOT NULL,
    fact     TEXT    NOT NULL CHECK (fact IN ('reports', 'entries')),
    file     TEXT    NOT NULL,
    row_count INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,             -- of the file
    sha256   TEXT    NOT NULL,             -- of the file, in hexadecimal
    low      INTEGER NOT NULL,             -- heights of the blocks that its entries are of; 0 without any
    high     INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    at_ms    INTEGER NOT NULL,
    PRIMARY KEY (month, fact)
) STRICT, WITHOUT ROWID;

CREATE TABLE archived_reports (
    month        INTEGER NOT NULL,
    agent        TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    total_before INTEGER NOT NULL,
    total_after  INTEGER NOT NULL,
    through_ms   INTEGER NOT NULL,
    closed       INTEGER NOT NULL,
    row_count    INTEGER NOT NULL,
    digest       BLOB    NOT NULL,
    held         BLOB    NOT NULL,
    stored_ms    INTEGER NOT NULL,
    PRIMARY KEY (agent, epoch, seq)
) STRICT, WITHOUT ROWID;

-- What the reports of a month hold, by epoch and limit: their part of settled.
CREATE TABLE archived_settled (
    agent      TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    limit_name TEXT    NOT NULL,
    month      INTEGER NOT NULL,
    units      INTEGER NOT NULL,
    PRIMARY KEY (agent, epoch, limit_name, month)
) STRICT, WITHOUT ROWID;

-- The blocks of corrections whose entries are archived.
CREATE TABLE archived_corrections (
    correction INTEGER NOT NULL,
    month      INTEGER NOT NULL,
    height     INTEGER NOT NULL,
    PRIMARY KEY (correction, month)
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER retired_update BEFORE UPDATE ON retired BEGIN SELECT RAISE(ABORT, 'retired is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER retired_delete BEFORE DELETE ON retired BEGIN SELECT RAISE(ABORT, 'retired is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archives_update BEFORE UPDATE ON archives BEGIN SELECT RAISE(ABORT, 'archives is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archives_delete BEFORE DELETE ON archives BEGIN SELECT RAISE(ABORT, 'archives is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_reports_update BEFORE UPDATE ON archived_reports BEGIN SELECT RAISE(ABORT, 'archived_reports is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_reports_delete BEFORE DELETE ON archived_reports BEGIN SELECT RAISE(ABORT, 'archived_reports is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_settled_update BEFORE UPDATE ON archived_settled BEGIN SELECT RAISE(ABORT, 'archived_settled is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_settled_delete BEFORE DELETE ON archived_settled BEGIN SELECT RAISE(ABORT, 'archived_settled is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_corrections_update BEFORE UPDATE ON archived_corrections BEGIN SELECT RAISE(ABORT, 'archived_corrections is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER archived_corrections_delete BEFORE DELETE ON archived_corrections BEGIN SELECT RAISE(ABORT, 'archived_corrections is append-only'); END;
-- +goose StatementEnd

-- Reports and entries may be deleted once their month is archived, and only then.
DROP TRIGGER reports_delete;
DROP TRIGGER entries_delete;
-- +goose StatementBegin
CREATE TRIGGER reports_delete BEFORE DELETE ON reports WHEN NOT EXISTS (SELECT 1 FROM archives a WHERE a.month = OLD.month AND a.fact = 'reports')
BEGIN SELECT RAISE(ABORT, 'reports is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER entries_delete BEFORE DELETE ON entries WHEN NOT EXISTS (SELECT 1 FROM archives a WHERE a.month = OLD.month AND a.fact = 'entries')
BEGIN SELECT RAISE(ABORT, 'entries is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER months_retired BEFORE INSERT ON months WHEN NEW.month <= (SELECT max(month) FROM retired)
BEGIN SELECT RAISE(IGNORE); END;
-- +goose StatementEnd
