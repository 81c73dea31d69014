-- Who pays for a tenant, and from when on. A row holds from its time on, in the place of what the tenant's rows before it
-- say of that time: so a change that is still to come can be changed. Before the first row a tenant pays for itself.
-- Rows are facts: what a statement was made of is not changed behind it.
-- +goose Up

CREATE TABLE payers (
    tenant  text   COLLATE "C" NOT NULL,
    number  bigint NOT NULL CHECK (number >= 1),  -- of the tenant's rows, without gaps
    from_s  bigint NOT NULL CHECK (from_s >= 0 AND from_s % 300 = 0), -- Unix seconds; 0 for the beginning of its usage
    payer   text   COLLATE "C" NOT NULL,          -- its parent then, or who pays for that; empty for the tenant itself
    PRIMARY KEY (tenant, number)
);
CREATE INDEX payers_payer ON payers (payer) WHERE payer <> '';

INSERT INTO payers (tenant, number, from_s, payer)
    SELECT id, 1, 0, parent FROM tenants WHERE parent <> '' AND billing LIKE '%"parent_pays":true%';

-- +goose StatementBegin
CREATE FUNCTION payers_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number <> (SELECT coalesce(max(p.number), 0) + 1 FROM payers p WHERE p.tenant = NEW.tenant) THEN
        RAISE EXCEPTION 'payers of a tenant follow one another' USING ERRCODE = 'exclusion_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER follow BEFORE INSERT ON payers FOR EACH ROW EXECUTE FUNCTION payers_follow();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON payers FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON payers FOR EACH STATEMENT EXECUTE FUNCTION append_only();

GRANT SELECT, INSERT ON payers TO quota_app;
