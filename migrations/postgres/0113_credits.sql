-- Credits, what was voided of them, and what statements used: facts. What is left of a
-- credit is its amount, less what the statements used or let lapse.
-- +goose Up

CREATE TABLE credits (
    id       text   COLLATE "C" PRIMARY KEY,
    tenant   text   COLLATE "C" NOT NULL,
    currency text   NOT NULL,
    amount   bigint NOT NULL CHECK (amount > 0),  -- minor units
    priority bigint NOT NULL,
    given_ms bigint NOT NULL,
    expires  bigint NOT NULL,                     -- Unix seconds; 0 for never
    rollover bigint NOT NULL,                     -- minor units; -1 for all
    note     text   NOT NULL,
    actor    text   NOT NULL
);
CREATE INDEX credits_tenant ON credits (tenant, id);

CREATE TABLE credit_voids (
    credit text   COLLATE "C" PRIMARY KEY REFERENCES credits (id),
    at_ms  bigint NOT NULL,
    reason text   NOT NULL,
    actor  text   NOT NULL
);

CREATE TABLE credit_burns (
    credit      text   COLLATE "C" NOT NULL REFERENCES credits (id),
    number      bigint NOT NULL,                  -- of the tenant's statement
    left_before bigint NOT NULL,
    paid        bigint NOT NULL,
    lapsed      bigint NOT NULL,
    left_after  bigint NOT NULL,
    PRIMARY KEY (credit, number),
    CHECK (left_before = paid + lapsed + left_after AND paid >= 0 AND lapsed >= 0 AND left_after >= 0)
);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON credits FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON credit_voids FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON credit_burns FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON credits FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON credit_voids FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON credit_burns FOR EACH STATEMENT EXECUTE FUNCTION append_only();

GRANT SELECT, INSERT ON credits, credit_voids, credit_burns TO quota_app;
