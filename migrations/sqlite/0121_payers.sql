-- Who pays for a tenant, and from when on. A row holds from its time on, in the place of what the tenant's rows before it
-- say of that time: so a change that is still to come can be changed. Before the first row a tenant pays for itself.
-- Rows are facts: what a statement was made of is not changed behind it.
-- +goose Up

CREATE TABLE payers (
    tenant  TEXT    NOT NULL,
    number  INTEGER NOT NULL CHECK (number >= 1), -- of the tenant's rows, without gaps
    from_s  INTEGER NOT NULL CHECK (from_s >= 0 AND from_s % 300 = 0), -- Unix seconds; 0 for the beginning of its usage
    payer   TEXT    NOT NULL,                     -- its parent then, or who pays for that; empty for the tenant itself
    PRIMARY KEY (tenant, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX payers_payer ON payers (payer) WHERE payer <> '';

INSERT INTO payers (tenant, number, from_s, payer)
    SELECT id, 1, 0, parent FROM tenants WHERE parent <> '' AND billing LIKE '%"parent_pays":true%';

-- +goose StatementBegin
CREATE TRIGGER payers_follow BEFORE INSERT ON payers
WHEN NEW.number <> (SELECT coalesce(max(p.number), 0) + 1 FROM payers p WHERE p.tenant = NEW.tenant)
BEGIN SELECT RAISE(ABORT, 'payers of a tenant follow one another'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER payers_no_update BEFORE UPDATE ON payers
BEGIN SELECT RAISE(ABORT, 'payers is append-only'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER payers_no_delete BEFORE DELETE ON payers
BEGIN SELECT RAISE(ABORT, 'payers is append-only'); END;
-- +goose StatementEnd
