-- What is in quarantine is told by tenant and slot: a period is not closed while rows of it
-- are there. NULL in rows of before; the tenant is empty for whole reports, and where it is no text.
-- +goose Up

ALTER TABLE quarantine ADD COLUMN tenant text COLLATE "C";
ALTER TABLE quarantine ADD COLUMN slot bigint;               -- Unix seconds
ALTER TABLE quarantine ADD COLUMN units bigint;              -- admitted
CREATE INDEX quarantine_tenant ON quarantine (tenant, slot);
