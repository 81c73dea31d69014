-- Closed statements: facts. A tenant's are numbered without gaps, and their periods and
-- blocks follow one another.
-- +goose Up

CREATE TABLE statements (
    tenant      TEXT    NOT NULL,
    number      INTEGER NOT NULL CHECK (number >= 1),
    period      TEXT    NOT NULL,
    from_s      INTEGER NOT NULL,          -- Unix seconds
    to_s        INTEGER NOT NULL,
    height      INTEGER NOT NULL,          -- of the block that it was made at; 0 for none
    block_hash  TEXT    NOT NULL,
    digest      TEXT    NOT NULL,          -- SHA-256 of the document, in hexadecimal
    document    TEXT    NOT NULL,
    complete_ms INTEGER NOT NULL,          -- through when usage was complete
    forced      TEXT    NOT NULL,          -- why it was closed all the same; empty where usage was complete
    actor       TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL,
    PRIMARY KEY (tenant, number),
    UNIQUE (tenant, period),
    CHECK (from_s < to_s AND height >= 0)
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER statements_follow BEFORE INSERT ON statements
WHEN NEW.number > 1 AND NOT EXISTS (SELECT 1 FROM statements s
    WHERE s.tenant = NEW.tenant AND s.number = NEW.number - 1 AND s.to_s = NEW.from_s AND s.height <= NEW.height)
BEGIN SELECT RAISE(ABORT, 'statements of a tenant follow one another'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER statements_no_update BEFORE UPDATE ON statements
BEGIN SELECT RAISE(ABORT, 'statements is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER statements_no_delete BEFORE DELETE ON statements
BEGIN SELECT RAISE(ABORT, 'statements is append-only'); END;
-- +goose StatementEnd
