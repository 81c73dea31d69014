-- Reconciliation: what servers and agents say of leases, beside what is settled. Not
-- facts, and nothing is billed from them: what a server had not written when it died is missing.
-- +goose Up

CREATE TABLE leases (
    agent         text   COLLATE "C" NOT NULL,
    epoch         bigint NOT NULL,
    limit_name    text   COLLATE "C" NOT NULL,
    granted       bigint NOT NULL,         -- recorded by servers, added up
    unrun         bigint NOT NULL,
    returned      bigint NOT NULL,
    spent         bigint NOT NULL,
    said_number   bigint NOT NULL,         -- 0 where the agent said nothing
    said_granted  bigint NOT NULL,         -- said by the agent, the last
    said_unrun    bigint NOT NULL,
    said_returned bigint NOT NULL,
    said_told     bigint NOT NULL,
    said_spent    bigint NOT NULL,
    said_beyond   bigint NOT NULL,
    said_held     bigint NOT NULL,
    said_booked   bigint NOT NULL,
    PRIMARY KEY (agent, epoch, limit_name)
) WITH (fillfactor = 70);

-- Which of a server's records were written last: written again after a lost answer, one
-- is not added again.
CREATE TABLE recorders (
    server text   COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    at_ms  bigint NOT NULL
);

-- Units of folded reports, those in quarantine included, by epoch and limit.
CREATE TABLE settled (
    agent      text   COLLATE "C" NOT NULL,
    epoch      bigint NOT NULL,
    limit_name text   COLLATE "C" NOT NULL,
    units      bigint NOT NULL,
    PRIMARY KEY (agent, epoch, limit_name)
) WITH (fillfactor = 70);

GRANT SELECT, INSERT, UPDATE ON leases, settled TO quota_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON recorders TO quota_app;
