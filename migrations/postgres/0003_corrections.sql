-- Corrections: usage that is changed otherwise than by reports, and what became of
-- rows in quarantine. Both are facts, each written with its row of the audit log.
-- +goose Up

-- Counts of a correction's rows are as if they were added; negative takes them away.
CREATE TABLE corrections (
    number       bigint  PRIMARY KEY CHECK (number >= 1),
    key          text    COLLATE "C" NOT NULL UNIQUE, -- the caller's, or of what can be done once
    kind         text    NOT NULL,                    -- adjust, backfill, release or revert
    negative     boolean NOT NULL,
    payload      bytea   NOT NULL,                    -- rows in the ledger's encoding
    row_count    integer NOT NULL,
    reverts      bigint  NOT NULL,                    -- the correction taken back; 0 for none
    entry_height bigint  NOT NULL,                    -- the entry corrected, where one is named; 0 for none
    entry_n      integer NOT NULL,
    reason       text    NOT NULL,
    actor        text    NOT NULL,
    at_ms        bigint  NOT NULL,
    digest       bytea   NOT NULL                     -- over all of it
);
CREATE UNIQUE INDEX corrections_reverts ON corrections (reverts) WHERE reverts > 0;
CREATE INDEX corrections_entry ON corrections (entry_height, entry_n) WHERE entry_height > 0;

-- Corrections that are not folded yet.
CREATE TABLE corrections_queue (
    number    bigint  PRIMARY KEY,
    row_count integer NOT NULL
);

-- What became of a row in quarantine, once.
CREATE TABLE resolutions (
    quarantined bigint PRIMARY KEY,                   -- quarantine.id
    correction  bigint NOT NULL,                      -- that released it; 0 where it was discarded
    reason      text   NOT NULL,
    actor       text   NOT NULL,
    at_ms       bigint NOT NULL
);
CREATE INDEX resolutions_correction ON resolutions (correction) WHERE correction > 0;

ALTER TABLE entries ADD COLUMN correction bigint NOT NULL DEFAULT 0; -- that the entry is of; 0 for reports'
ALTER TABLE blocks ADD COLUMN corrections bytea NOT NULL DEFAULT ''; -- which, in the ledger's encoding
CREATE INDEX entries_correction ON entries (correction) WHERE correction > 0;
CREATE INDEX quarantine_report ON quarantine (agent, epoch, seq, row_number);

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON corrections FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON resolutions FOR EACH ROW EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON corrections FOR EACH STATEMENT EXECUTE FUNCTION append_only();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON resolutions FOR EACH STATEMENT EXECUTE FUNCTION append_only();

GRANT SELECT, INSERT ON corrections, resolutions TO quota_app;
GRANT SELECT, INSERT, DELETE ON corrections_queue TO quota_app;
