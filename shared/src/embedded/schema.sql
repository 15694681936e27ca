-- The embedded store: jobs and their ledger entries, and the retry queue beside them.
--
-- Times are whole milliseconds since 1970. The text must be readable by SQLite 3.37 and later, since a person's
-- `sqlite3` parses it too: so RAISE has literal messages only.
--
-- Three ways around a constraint are closed on purpose. `OR REPLACE` deletes without firing DELETE triggers, so the
-- INSERT triggers refuse what is there already. `OR REPLACE` also puts a column's default where NULL is written, so
-- no column has one. And `OR IGNORE` or `OR FAIL` on a job reaches into the triggers' own inserts, so an entry is
-- refused by RAISE(ABORT), which takes the job's change with it, before any constraint of `entries` is looked at.

CREATE TABLE jobs (
    job_id            TEXT    NOT NULL PRIMARY KEY CHECK (length(job_id) BETWEEN 1 AND 256),
    account_id        TEXT    NOT NULL CHECK (length(account_id) BETWEEN 1 AND 256),
    cost              INTEGER NOT NULL CHECK (cost BETWEEN 1 AND 9007199254740991),
    is_refunded       INTEGER NOT NULL, -- 0 or 1, as invariant 6 has it
    refunded_at       INTEGER,
    is_reclaimed      INTEGER NOT NULL, -- 0 or 1, as invariant 2 has it
    reclaimed_at      INTEGER,
    delivered_at      INTEGER,
    phase             TEXT    NOT NULL
                      CHECK (phase IN ('running', 'retry_waiting', 'dead_lettered', 'failed', 'delivered')),
    attempts          INTEGER NOT NULL CHECK (attempts BETWEEN 0 AND 2147483647),
    max_attempts      INTEGER NOT NULL CHECK (max_attempts BETWEEN 0 AND 2147483647),
    not_before        INTEGER,
    dispatched_at     INTEGER,
    last_error_reason TEXT,
    last_error_at     INTEGER,
    counted_events    TEXT    NOT NULL CHECK (json_type(counted_events) = 'array'),
    redriven_at       INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    replayed          INTEGER NOT NULL CHECK (replayed IN (0, 1)),

    -- What the program takes for an id: no control character (NUL ends what GLOB sees), and not only white space.
    CHECK (instr(job_id, char(0)) = 0),
    CHECK (job_id NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'),
    CHECK (trim(job_id, char(32, 160, 5760, 8192, 8193, 8194, 8195, 8196, 8197, 8198, 8199, 8200, 8201, 8202, 8232,
                             8233, 8239, 8287, 12288)) <> ''),
    CHECK (instr(account_id, char(0)) = 0),
    CHECK (account_id NOT GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'),
    CHECK (trim(account_id, char(32, 160, 5760, 8192, 8193, 8194, 8195, 8196, 8197, 8198, 8199, 8200, 8201, 8202, 8232,
                                 8233, 8239, 8287, 12288)) <> ''),
    -- The entries that the flags ask for have a time each, in order.
    CHECK (is_refunded = (refunded_at IS NOT NULL)),
    CHECK (is_reclaimed = (reclaimed_at IS NOT NULL)),
    CHECK (refunded_at >= created_at),
    CHECK (reclaimed_at >= refunded_at),
    -- Invariant 2, and 3 with it.
    CHECK (is_reclaimed = (is_refunded AND phase = 'delivered')),
    -- Invariant 6.
    CHECK (is_refunded = (attempts > 0)),
    CHECK (is_refunded OR phase IN ('running', 'delivered')),
    -- What the sweep must be able to find again.
    CHECK ((not_before IS NOT NULL) = (phase = 'retry_waiting')),
    CHECK ((delivered_at IS NOT NULL) = (phase = 'delivered')),
    CHECK ((last_error_reason IS NULL) = (last_error_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE entries (
    job_id     TEXT    NOT NULL REFERENCES jobs (job_id),
    position   INTEGER NOT NULL, -- 0 charge, 1 refund, 2 reclaim; entries_insert_refused holds all columns to it
    account_id TEXT    NOT NULL,
    type       TEXT    NOT NULL,
    amount     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (job_id, position)
) STRICT, WITHOUT ROWID;

-- Balance and statement, both from the index alone.
CREATE INDEX entries_of_account ON entries (account_id, created_at, position, job_id, type, amount);

-- The ledger as others see it.
CREATE VIEW ledger AS
SELECT job_id || ':' || type AS _id, job_id, account_id, type, amount, created_at FROM entries;

-- One for each kind of outstanding job, in the order of its pages; a job stands in one of them at most.
CREATE INDEX jobs_overdue_retry ON jobs (not_before, job_id) WHERE phase = 'retry_waiting';
CREATE INDEX jobs_open_hand_over ON jobs (updated_at, job_id)
    WHERE phase = 'running' AND attempts > 0 AND dispatched_at IS NULL;
CREATE INDEX jobs_silent_first_attempt ON jobs (created_at, job_id) WHERE phase = 'running' AND attempts = 0;
CREATE INDEX jobs_silent_retry ON jobs (dispatched_at, job_id)
    WHERE phase = 'running' AND attempts > 0 AND dispatched_at IS NOT NULL;

-- What a person decides about.
CREATE INDEX jobs_set_aside ON jobs (phase, job_id) WHERE phase = 'dead_lettered' OR phase = 'failed';

-- ------------------------------------------------------------------ the flag and the row are one statement

CREATE TRIGGER jobs_insert_refused BEFORE INSERT ON jobs BEGIN
    SELECT RAISE(ABORT, 'this job is there already; a job is charged once')
    WHERE EXISTS (SELECT 1 FROM jobs WHERE job_id = NEW.job_id);
    SELECT RAISE(ABORT, 'a job begins running, without a failure and without a refund')
    WHERE (NEW.phase = 'running' AND NEW.attempts = 0 AND NEW.is_refunded = 0) IS NOT TRUE;
END;

CREATE TRIGGER jobs_charged AFTER INSERT ON jobs BEGIN
    INSERT INTO entries VALUES (NEW.job_id, 0, NEW.account_id, 'charge', -NEW.cost, NEW.created_at);
END;

CREATE TRIGGER jobs_refunded AFTER UPDATE OF is_refunded ON jobs WHEN NEW.is_refunded AND NOT OLD.is_refunded BEGIN
    INSERT INTO entries VALUES (NEW.job_id, 1, NEW.account_id, 'refund', NEW.cost, NEW.refunded_at);
END;

CREATE TRIGGER jobs_reclaimed AFTER UPDATE OF is_reclaimed ON jobs
WHEN NEW.is_reclaimed AND NOT OLD.is_reclaimed BEGIN
    INSERT INTO entries VALUES (NEW.job_id, 2, NEW.account_id, 'reclaim', -NEW.cost, NEW.reclaimed_at);
END;

-- ------------------------------------------------------------------ what no writer may do

-- Our own update names none of these columns, so this costs it nothing.
CREATE TRIGGER jobs_origin_refused
BEFORE UPDATE OF job_id, account_id, cost, created_at, replayed ON jobs
WHEN NEW.job_id IS NOT OLD.job_id OR NEW.account_id IS NOT OLD.account_id OR NEW.cost IS NOT OLD.cost
  OR NEW.created_at IS NOT OLD.created_at OR NEW.replayed IS NOT OLD.replayed BEGIN
    SELECT RAISE(ABORT, 'job_id, account_id, cost, created_at and replayed of a job never change');
END;

CREATE TRIGGER jobs_going_back_refused
BEFORE UPDATE OF is_refunded, refunded_at, is_reclaimed, reclaimed_at, attempts, phase ON jobs BEGIN
    SELECT RAISE(ABORT, 'a refund once written stays, with its time')
    WHERE OLD.is_refunded AND (NEW.is_refunded IS NOT 1 OR NEW.refunded_at IS NOT OLD.refunded_at);
    SELECT RAISE(ABORT, 'a reclaim once written stays, with its time')
    WHERE OLD.is_reclaimed AND (NEW.is_reclaimed IS NOT 1 OR NEW.reclaimed_at IS NOT OLD.reclaimed_at);
    SELECT RAISE(ABORT, 'attempts never goes down') WHERE (NEW.attempts >= OLD.attempts) IS NOT TRUE;
    SELECT RAISE(ABORT, 'nothing leads out of phase delivered')
    WHERE OLD.phase = 'delivered' AND NEW.phase IS NOT 'delivered';
END;

CREATE TRIGGER jobs_delete_refused BEFORE DELETE ON jobs BEGIN
    SELECT RAISE(ABORT, 'a job never goes away');
END;

CREATE TRIGGER entries_insert_refused BEFORE INSERT ON entries
WHEN EXISTS (SELECT 1 FROM entries WHERE job_id = NEW.job_id AND position = NEW.position)
  OR NOT EXISTS (
    SELECT 1 FROM jobs
    WHERE job_id = NEW.job_id AND account_id = NEW.account_id AND CASE NEW.position
        WHEN 0 THEN NEW.type = 'charge' AND NEW.amount = -cost AND NEW.created_at = jobs.created_at
        WHEN 1 THEN is_refunded AND NEW.type = 'refund' AND NEW.amount = cost AND NEW.created_at = refunded_at
        WHEN 2 THEN is_reclaimed AND NEW.type = 'reclaim' AND NEW.amount = -cost AND NEW.created_at = reclaimed_at
    END
) BEGIN
    SELECT RAISE(ABORT, 'an entry is written by its job''s flag, and once');
END;

CREATE TRIGGER entries_update_refused BEFORE UPDATE ON entries BEGIN
    SELECT RAISE(ABORT, 'an entry once written never changes');
END;

CREATE TRIGGER entries_delete_refused BEFORE DELETE ON entries BEGIN
    SELECT RAISE(ABORT, 'an entry once written never goes away');
END;

-- ------------------------------------------------------------------ the retry queue, which holds no truth

-- New entries as they came, the smallest id at the head. A list that ran empty may begin again at 1.
CREATE TABLE retry (id INTEGER PRIMARY KEY, raw BLOB NOT NULL) STRICT;

CREATE TABLE parked (member BLOB NOT NULL PRIMARY KEY, due INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX parked_due ON parked (due, member);

-- A claim and its history in one row, so that the count is gone with the claim. `first_claim` is when the entry
-- came here: the time of the first of the claims that ran out, once one did.
CREATE TABLE in_flight (
    member         BLOB    NOT NULL PRIMARY KEY,
    deadline       INTEGER NOT NULL,
    expired_claims INTEGER NOT NULL,
    first_claim    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX in_flight_deadline ON in_flight (deadline, member);

CREATE TABLE ready (id INTEGER PRIMARY KEY, message TEXT NOT NULL) STRICT;
CREATE TABLE dead_letter (id INTEGER PRIMARY KEY, message TEXT NOT NULL) STRICT;

-- Where the sweep ended.
CREATE TABLE sweep (id INTEGER PRIMARY KEY CHECK (id = 1), cursor TEXT NOT NULL) STRICT;
