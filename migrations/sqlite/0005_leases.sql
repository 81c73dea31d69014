-- Reconciliation: what servers and agents say of leases, beside what is settled. Not
-- facts, and nothing is billed from them: what a server had not written when it died is missing.
-- +goose Up

CREATE TABLE leases (
    agent         TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    limit_name    TEXT    NOT NULL,
    granted       INTEGER NOT NULL,         -- recorded by servers, added up
    unrun         INTEGER NOT NULL,
    returned      INTEGER NOT NULL,
    spent         INTEGER NOT NULL,
    said_number   INTEGER NOT NULL,         -- 0 where the agent said nothing
    said_granted  INTEGER NOT NULL,         -- said by the agent, the last
    said_unrun    INTEGER NOT NULL,
    said_returned INTEGER NOT NULL,
    said_told     INTEGER NOT NULL,
    said_spent    INTEGER NOT NULL,
    said_beyond   INTEGER NOT NULL,
    said_held     INTEGER NOT NULL,
    said_booked   INTEGER NOT NULL,
    PRIMARY KEY (agent, epoch, limit_name)
) STRICT, WITHOUT ROWID;

-- Which of a server's records were written last: written again after a lost answer, one
-- is not added again.
CREATE TABLE recorders (
    server TEXT    NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    at_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Units of folded reports, those in quarantine included, by epoch and limit.
CREATE TABLE settled (
    agent      TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    limit_name TEXT    NOT NULL,
    units      INTEGER NOT NULL,
    PRIMARY KEY (agent, epoch, limit_name)
) STRICT, WITHOUT ROWID;

