-- Roll-ups can be made again from entries, by whoever serves, without the right to
-- delete one: the owner's function does nothing but make them what entries add up to.
-- +goose Up

-- rebuild_rollups makes the roll-ups of the hours from from_hour to before to_hour
-- again, and returns how many were wrong. No fold is under way meanwhile: it holds
-- the lock that the fold's leader does. Hours whose entries are gone are out of range.
-- +goose StatementBegin
CREATE FUNCTION rebuild_rollups(from_hour bigint, to_hour bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    wrong   bigint;
    n       bigint;
    highest constant numeric := 9223372036854775807;
BEGIN
    IF from_hour % 3600 <> 0 OR to_hour % 3600 <> 0 OR from_hour >= to_hour OR to_hour > from_hour + 32 * 86400
        OR from_hour < (SELECT extract(epoch FROM min(month)) FROM months)
        OR to_hour > (SELECT extract(epoch FROM max(month) + interval '1 month') FROM months) THEN
        RAISE EXCEPTION 'hours % to % are out of range', from_hour, to_hour;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('quota.fold.' || current_schema(), 0));
    DELETE FROM rollups r WHERE r.hour >= from_hour AND r.hour < to_hour
        AND NOT EXISTS (SELECT FROM entries e WHERE e.key = r.key AND e.slot >= r.hour AND e.slot < r.hour + 3600);
    GET DIAGNOSTICS wrong = ROW_COUNT;
    INSERT INTO rollups AS r (key, hour, admitted, overage, denied)
        SELECT key, slot - slot % 3600, greatest(least(sum(admitted), highest), -highest)::bigint,
            greatest(least(sum(overage), highest), -highest)::bigint, greatest(least(sum(denied), highest), -highest)::bigint
        FROM entries WHERE slot >= from_hour AND slot < to_hour GROUP BY 1, 2
        ON CONFLICT (key, hour) DO UPDATE SET admitted = excluded.admitted, overage = excluded.overage, denied = excluded.denied
        WHERE (r.admitted, r.overage, r.denied) IS DISTINCT FROM (excluded.admitted, excluded.overage, excluded.denied);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN wrong + n;
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION rebuild_rollups(bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION rebuild_rollups(bigint, bigint) TO quota_app;
