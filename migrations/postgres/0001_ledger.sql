-- The ledger. Facts (reports, entries, blocks, keys, quarantine) are append-only
-- for everybody, and quota_app owns nothing. The other tables are what can be made
-- again from facts, or moves only under a condition that facts are written with.
-- +goose Up

-- One row per start of an agent. It moves by compare-and-set in the transaction
-- that stores the report: that is what makes settlement happen once.
CREATE TABLE frontier (
    agent      text   COLLATE "C" NOT NULL,
    epoch      bigint NOT NULL,
    seq        bigint NOT NULL,
    total      bigint NOT NULL,
    through_ms bigint NOT NULL,
    seen_ms    bigint NOT NULL,
    digest     bytea  NOT NULL,            -- of report seq
    state      text   NOT NULL,            -- open, closed or fenced
    reason     text   NOT NULL,            -- why it is fenced
    PRIMARY KEY (agent, epoch),
    CHECK (seq >= 0 AND total >= 0)
) WITH (fillfactor = 70);
CREATE INDEX frontier_living ON frontier (agent, epoch) WHERE state <> 'closed';

-- Which months there are partitions for.
CREATE TABLE months (
    month date PRIMARY KEY CHECK (extract(day FROM month) = 1)
);

-- What agents sent, as they sent it. Partitioned by the month of through, held to
-- the months that there are.
CREATE TABLE reports (
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
    payload      bytea   NOT NULL,
    held         bytea   NOT NULL,         -- which rows are in quarantine
    stored_ms    bigint  NOT NULL,
    PRIMARY KEY (agent, epoch, seq, month),
    CHECK (seq >= 1 AND total_after >= total_before)
) PARTITION BY RANGE (month);

-- What is not yet folded: a table, for a cursor over ids would skip what commits
-- late. Within an epoch, ids have the order of seq.
CREATE TABLE queue (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    month     date    NOT NULL,
    agent     text    COLLATE "C" NOT NULL,
    epoch     bigint  NOT NULL,
    seq       bigint  NOT NULL,
    row_count integer NOT NULL,
    size      integer NOT NULL,
    UNIQUE (agent, epoch, seq)
);

CREATE TABLE blocks (
    height    bigint  PRIMARY KEY CHECK (height >= 1),
    previous  bytea   NOT NULL UNIQUE,     -- one block above each
    hash      bytea   NOT NULL,
    reports   integer NOT NULL,
    entries   integer NOT NULL,
    sources   bytea   NOT NULL,            -- which reports, in the ledger's encoding
    folded_ms bigint  NOT NULL
);

-- The names of what an entry is about, once. key is a hash over them.
CREATE TABLE keys (
    key        uuid   PRIMARY KEY,
    tenant     text   COLLATE "C" NOT NULL,
    limit_name text   COLLATE "C" NOT NULL,
    meter      text   COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    attributes text   COLLATE "C" NOT NULL
);
CREATE INDEX keys_tenant ON keys (tenant);

-- An entry moves admitted units from its meter's account to the tenant's usage of
-- that meter: one row is both sides. n is its place in the block's encoding.
CREATE TABLE entries (
    month    date    NOT NULL,             -- of slot
    height   bigint  NOT NULL,
    n        integer NOT NULL,
    slot     bigint  NOT NULL,             -- Unix seconds
    key      uuid    NOT NULL,
    admitted bigint  NOT NULL,
    overage  bigint  NOT NULL,
    denied   bigint  NOT NULL,
    PRIMARY KEY (height, n, month),
    CHECK (month = date_trunc('month', to_timestamp(slot) AT TIME ZONE 'UTC')::date)
) PARTITION BY RANGE (month);
CREATE INDEX entries_slot ON entries (slot);
CREATE INDEX entries_key ON entries (key, slot);

-- Sums of entries; can be made again from them.
CREATE TABLE rollups (
    key      uuid   NOT NULL,
    hour     bigint NOT NULL,              -- Unix seconds
    admitted bigint NOT NULL,
    overage  bigint NOT NULL,
    denied   bigint NOT NULL,
    PRIMARY KEY (key, hour)
) WITH (fillfactor = 80);
CREATE INDEX rollups_hour ON rollups (hour);

-- Which epochs settled usage of a tenant, while they are open.
CREATE TABLE touched (
    tenant text   COLLATE "C" NOT NULL,
    agent  text   COLLATE "C" NOT NULL,
    epoch  bigint NOT NULL,
    PRIMARY KEY (tenant, agent, epoch)
);
CREATE INDEX touched_epoch ON touched (agent, epoch);

-- Rows that could not become entries, and whole reports (row_number -1) that could
-- not be taken at all.
CREATE TABLE quarantine (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent      text    COLLATE "C" NOT NULL,
    epoch      bigint  NOT NULL,
    seq        bigint  NOT NULL,
    row_number integer NOT NULL,
    reason     text    NOT NULL,
    body       bytea   NOT NULL,
    stored_ms  bigint  NOT NULL
);

-- Rights alone keep quota_app from changing facts; the triggers keep everybody
-- from doing it by mistake. Retention drops partitions, which no trigger sees.
-- +goose StatementBegin
CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
-- +goose StatementEnd

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON reports FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON blocks FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON keys FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON quarantine FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON reports FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON entries FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON blocks FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON keys FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON quarantine FOR EACH STATEMENT EXECUTE FUNCTION append_only();

-- make_months makes partitions for every month from first to last, and for those
-- between them and the months there are: months have no gaps. It runs with the
-- owner's rights, so that a server can make room ahead without owning anything.
-- A TRUNCATE trigger does not reach partitions: each gets its own.
-- +goose StatementBegin
CREATE FUNCTION make_months(first date, last date) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    m    date;
    made integer := 0;
    fact text;
    part text;
BEGIN
    IF first > last OR last > first + interval '10 years' THEN
        RAISE EXCEPTION 'months % to % are out of range', first, last;
    END IF;
    LOCK TABLE months IN SHARE ROW EXCLUSIVE MODE;
    SELECT least(first, (max(month) + interval '1 month')::date),
           greatest(last, (min(month) - interval '1 month')::date)
      INTO first, last FROM months;
    m := date_trunc('month', first)::date;
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

REVOKE ALL ON FUNCTION make_months(date, date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION make_months(date, date) TO quota_app;

GRANT SELECT, INSERT ON reports, entries, blocks, keys, quarantine TO quota_app;
GRANT SELECT, INSERT, UPDATE ON frontier, rollups TO quota_app;
GRANT SELECT, INSERT, DELETE ON queue, touched TO quota_app;
GRANT SELECT ON months TO quota_app;
