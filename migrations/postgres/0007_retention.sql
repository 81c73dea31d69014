-- Retention: whole months of reports and entries go into files, and only then out of
-- the database. What the ledger is checked by stays: of each report all but its
-- payload, of each archive its digest. The owner alone writes here.
-- +goose Up

-- Months that take no more usage: they are gone from months, and are never made again.
CREATE TABLE retired (
    month date   PRIMARY KEY CHECK (extract(day FROM month) = 1),
    actor text   NOT NULL,
    at_ms bigint NOT NULL
);

-- The files that months went into. A month has both, or neither.
CREATE TABLE archives (
    month    date   NOT NULL,
    fact     text   COLLATE "C" NOT NULL CHECK (fact IN ('reports', 'entries')),
    file     text   NOT NULL,
    row_count bigint NOT NULL,
    bytes    bigint NOT NULL,              -- of the file
    sha256   text   NOT NULL,              -- of the file, in hexadecimal
    low      bigint NOT NULL,              -- heights of the blocks that its entries are of; 0 without any
    high     bigint NOT NULL,
    actor    text   NOT NULL,
    at_ms    bigint NOT NULL,
    PRIMARY KEY (month, fact)
);

CREATE TABLE archived_reports (
    month        date    NOT NULL,
    agent        text    COLLATE "C" NOT NULL,
    epoch        bigint  NOT NULL,
    seq          bigint  NOT NULL,
    total_before bigint  NOT NULL,
    total_after  bigint  NOT NULL,
    through_ms   bigint  NOT NULL,
    closed       boolean NOT NULL,
    row_count    integer NOT NULL,
    digest       bytea   NOT NULL,
    held         bytea   NOT NULL,
    stored_ms    bigint  NOT NULL,
    PRIMARY KEY (agent, epoch, seq)
);

-- What the reports of a month hold, by epoch and limit: their part of settled.
CREATE TABLE archived_settled (
    agent      text   COLLATE "C" NOT NULL,
    epoch      bigint NOT NULL,
    limit_name text   COLLATE "C" NOT NULL,
    month      date   NOT NULL,
    units      bigint NOT NULL,
    PRIMARY KEY (agent, epoch, limit_name, month)
);

-- The blocks of corrections whose entries are archived.
CREATE TABLE archived_corrections (
    correction bigint NOT NULL,
    month      date   NOT NULL,
    height     bigint NOT NULL,
    PRIMARY KEY (correction, month)
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON retired FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON archives FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON archived_reports FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON archived_settled FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON archived_corrections FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON retired FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON archives FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON archived_reports FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON archived_settled FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON archived_corrections FOR EACH STATEMENT EXECUTE FUNCTION append_only();

-- make_months makes no month again that is retired, whoever asks.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION make_months(first date, last date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    m    date;
    made integer := 0;
    fact text;
    part text;
BEGIN
    -- Around the present, with room for clocks and for a ledger that was away for years.
    IF first > last OR first < now() - interval '5 years' OR last > now() + interval '3 years' THEN
        RAISE EXCEPTION 'months % to % are out of range', first, last;
    END IF;
    LOCK TABLE months IN SHARE ROW EXCLUSIVE MODE;
    SELECT least(first, (max(month) + interval '1 month')::date),
           greatest(last, (min(month) - interval '1 month')::date)
      INTO first, last FROM months;
    m := date_trunc('month', first)::date;
    m := greatest(m, (SELECT (max(month) + interval '1 month')::date FROM retired));
    WHILE m <= last LOOP
        IF NOT EXISTS (SELECT FROM months WHERE month = m) THEN
            FOREACH fact IN ARRAY ARRAY['reports', 'entries'] LOOP
                part := fact || to_char(m, '_YYYYMM');
                EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                               part, fact, m, (m + interval '1 month')::date);
                EXECUTE format('CREATE TRIGGER no_truncate BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION append_only()', part);
            END LOOP;
            INSERT INTO months (month) VALUES (m);
            made := made + 1;
        END IF;
        m := (m + interval '1 month')::date;
    END LOOP;
    RETURN made;
END $$;
-- +goose StatementEnd

GRANT SELECT ON retired, archives, archived_reports, archived_settled, archived_corrections TO quota_app;
