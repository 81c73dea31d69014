-- The ledger on SQLite: the tables of the Postgres ledger, without partitions.
-- Facts are append-only by triggers. Times in columns named _ms are Unix
-- milliseconds; month, slot and hour are Unix seconds.
-- +goose Up

CREATE TABLE frontier (
    agent      TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    seq        INTEGER NOT NULL CHECK (seq >= 0),
    total      INTEGER NOT NULL CHECK (total >= 0),
    through_ms INTEGER NOT NULL,
    seen_ms    INTEGER NOT NULL,
    digest     BLOB    NOT NULL,
    state      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    PRIMARY KEY (agent, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX frontier_living ON frontier (agent, epoch) WHERE state <> 'closed';

CREATE TABLE months (
    month INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE reports (
    month        INTEGER NOT NULL,
    agent        TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    seq          INTEGER NOT NULL CHECK (seq >= 1),
    total_before INTEGER NOT NULL,
    total_after  INTEGER NOT NULL,
    through_ms   INTEGER NOT NULL,
    closed       INTEGER NOT NULL,
    row_count    INTEGER NOT NULL,
    digest       BLOB    NOT NULL,
    payload      BLOB    NOT NULL,
    held         BLOB    NOT NULL,
    stored_ms    INTEGER NOT NULL,
    PRIMARY KEY (agent, epoch, seq),
    CHECK (total_after >= total_before)
) STRICT;

CREATE TABLE queue (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    agent     TEXT    NOT NULL,
    epoch     INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    row_count INTEGER NOT NULL,
    size      INTEGER NOT NULL,
    UNIQUE (agent, epoch, seq)
) STRICT;

CREATE TABLE blocks (
    height    INTEGER PRIMARY KEY CHECK (height >= 1),
    previous  BLOB    NOT NULL UNIQUE,
    hash      BLOB    NOT NULL,
    reports   INTEGER NOT NULL,
    entries   INTEGER NOT NULL,
    sources   BLOB    NOT NULL,
    folded_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE keys (
    key        BLOB    NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    limit_name TEXT    NOT NULL,
    meter      TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    attributes TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX keys_tenant ON keys (tenant);

CREATE TABLE entries (
    month    INTEGER NOT NULL,
    height   INTEGER NOT NULL,
    n        INTEGER NOT NULL,
    slot     INTEGER NOT NULL,
    key      BLOB    NOT NULL,
    admitted INTEGER NOT NULL,
    overage  INTEGER NOT NULL,
    denied   INTEGER NOT NULL,
    PRIMARY KEY (height, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX entries_slot ON entries (slot);
CREATE INDEX entries_key ON entries (key, slot);

CREATE TABLE rollups (
    key      BLOB    NOT NULL,
    hour     INTEGER NOT NULL,
    admitted INTEGER NOT NULL,
    overage  INTEGER NOT NULL,
    denied   INTEGER NOT NULL,
    PRIMARY KEY (key, hour)
) STRICT, WITHOUT ROWID;
CREATE INDEX rollups_hour ON rollups (hour);

CREATE TABLE touched (
    tenant TEXT    NOT NULL,
    agent  TEXT    NOT NULL,
    epoch  INTEGER NOT NULL,
    PRIMARY KEY (tenant, agent, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX touched_epoch ON touched (agent, epoch);

CREATE TABLE quarantine (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    agent      TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    row_number INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    body       BLOB    NOT NULL,
    stored_ms  INTEGER NOT NULL
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER reports_update BEFORE UPDATE ON reports BEGIN SELECT RAISE(ABORT, 'reports is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER reports_delete BEFORE DELETE ON reports BEGIN SELECT RAISE(ABORT, 'reports is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER entries_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'entries is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER entries_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'entries is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER blocks_update BEFORE UPDATE ON blocks BEGIN SELECT RAISE(ABORT, 'blocks is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER blocks_delete BEFORE DELETE ON blocks BEGIN SELECT RAISE(ABORT, 'blocks is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER keys_update BEFORE UPDATE ON keys BEGIN SELECT RAISE(ABORT, 'keys is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER keys_delete BEFORE DELETE ON keys BEGIN SELECT RAISE(ABORT, 'keys is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER quarantine_update BEFORE UPDATE ON quarantine BEGIN SELECT RAISE(ABORT, 'quarantine is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER quarantine_delete BEFORE DELETE ON quarantine BEGIN SELECT RAISE(ABORT, 'quarantine is append-only'); END;
-- +goose StatementEnd
