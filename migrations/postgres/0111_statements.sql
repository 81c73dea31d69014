-- Closed statements: facts. A tenant's are numbered without gaps, and their periods and
-- blocks follow one another.
-- +goose Up

CREATE TABLE statements (
    tenant      text   COLLATE "C" NOT NULL,
    number      bigint NOT NULL CHECK (number >= 1),
    period      text   COLLATE "C" NOT NULL,
    from_s      bigint NOT NULL,           -- Unix seconds
    to_s        bigint NOT NULL,
    height      bigint NOT NULL,           -- of the block that it was made at; 0 for none
    block_hash  text   NOT NULL,
    digest      text   NOT NULL,           -- SHA-256 of the document, in hexadecimal
    document    text   NOT NULL,
    complete_ms bigint NOT NULL,           -- through when usage was complete
    forced      text   NOT NULL,           -- why it was closed all the same; empty where usage was complete
    actor       text   NOT NULL,
    at_ms       bigint NOT NULL,
    PRIMARY KEY (tenant, number),
    UNIQUE (tenant, period),
    CHECK (from_s < to_s AND height >= 0)
);

-- +goose StatementBegin
CREATE FUNCTION statements_follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number > 1 AND NOT EXISTS (SELECT FROM statements s
            WHERE s.tenant = NEW.tenant AND s.number = NEW.number - 1 AND s.to_s = NEW.from_s AND s.height <= NEW.height) THEN
        RAISE EXCEPTION 'statements of a tenant follow one another' USING ERRCODE = 'exclusion_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER follow BEFORE INSERT ON statements FOR EACH ROW EXECUTE FUNCTION statements_follow();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON statements FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON statements FOR EACH STATEMENT EXECUTE FUNCTION append_only();

GRANT SELECT, INSERT ON statements TO quota_app;
