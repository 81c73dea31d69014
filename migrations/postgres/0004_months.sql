-- make_months took any years: a server's role could have partitions made without end.
-- +goose Up

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
