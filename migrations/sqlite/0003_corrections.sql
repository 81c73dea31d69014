-- Corrections: usage that is changed otherwise than by reports, and what became of
-- rows in quarantine. Both are facts, each written with its row of the audit log.
-- +goose Up

CREATE TABLE corrections (
    number       INTEGER PRIMARY KEY CHECK (number >= 1),
    key          TEXT    NOT NULL UNIQUE,
    kind         TEXT    NOT NULL,
    negative     INTEGER NOT NULL,
    payload      BLOB    NOT NULL,
    row_count    INTEGER NOT NULL,
    reverts      INTEGER NOT NULL,
    entry_height INTEGER NOT NULL,
    entry_n      INTEGER NOT NULL,
    reason       TEXT    NOT NULL,
    actor        TEXT    NOT NULL,
    at_ms        INTEGER NOT NULL,
    digest       BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX corrections_reverts ON corrections (reverts) WHERE reverts > 0;
CREATE INDEX corrections_entry ON corrections (entry_height, entry_n) WHERE entry_height > 0;

CREATE TABLE corrections_queue (
    number    INTEGER PRIMARY KEY,
    row_count INTEGER NOT NULL
) STRICT;

CREATE TABLE resolutions (
    quarantined INTEGER PRIMARY KEY,
    correction  INTEGER NOT NULL,
    reason      TEXT    NOT NULL,
    actor       TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL
) STRICT;
CREATE INDEX resolutions_correction ON resolutions (correction) WHERE correction > 0;

ALTER TABLE entries ADD COLUMN correction INTEGER NOT NULL DEFAULT 0;
ALTER TABLE blocks ADD COLUMN corrections BLOB NOT NULL DEFAULT x'';
CREATE INDEX entries_correction ON entries (correction) WHERE correction > 0;
CREATE INDEX quarantine_report ON quarantine (agent, epoch, seq, row_number);

-- +goose StatementBegin
CREATE TRIGGER corrections_update BEFORE UPDATE ON corrections BEGIN SELECT RAISE(ABORT, 'corrections is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER corrections_delete BEFORE DELETE ON corrections BEGIN SELECT RAISE(ABORT, 'corrections is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER resolutions_update BEFORE UPDATE ON resolutions BEGIN SELECT RAISE(ABORT, 'resolutions is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER resolutions_delete BEFORE DELETE ON resolutions BEGIN SELECT RAISE(ABORT, 'resolutions is append-only'); END;
-- +goose StatementEnd
