-- One row names the ledger: its format version and how many minor units make one unit of money.
CREATE TABLE ledger (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL CHECK (version = 1),
    minor   INTEGER NOT NULL CHECK (typeof(minor) = 'integer' AND minor >= 1)
);

-- body is canonical JSON and the only truth; the other columns repeat parts of it so that SQL can find them.
CREATE TABLE entries (
    seq      INTEGER PRIMARY KEY CHECK (seq >= 1),
    run      TEXT    NOT NULL,
    round    INTEGER NOT NULL CHECK (typeof(round) = 'integer' AND round >= 0),
    kind     TEXT    NOT NULL,
    corrects INTEGER NOT NULL CHECK (corrects >= 0 AND corrects < seq),
    body     TEXT    NOT NULL CHECK (typeof(body) = 'text'),
    hash     TEXT    NOT NULL CHECK (length(hash) = 64),
    UNIQUE (run, round, kind, corrects)
);

-- Postings are written before their entry, in the same transaction: inserting the entry closes them.
CREATE TABLE postings (
    seq     INTEGER NOT NULL REFERENCES entries (seq) DEFERRABLE INITIALLY DEFERRED,
    account TEXT    NOT NULL CHECK (account <> ''),
    amount  INTEGER NOT NULL CHECK (typeof(amount) = 'integer'),
    PRIMARY KEY (seq, account)
) WITHOUT ROWID;

CREATE TRIGGER postings_closed BEFORE INSERT ON postings
WHEN EXISTS (SELECT 1 FROM entries WHERE seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'a ledger entry is closed: its postings cannot be added to');
END;

CREATE TRIGGER entries_in_order BEFORE INSERT ON entries
WHEN NEW.seq <> (SELECT COALESCE(MAX(seq), 0) + 1 FROM entries)
BEGIN
    SELECT RAISE(ABORT, 'ledger entries are numbered without gaps');
END;

-- INSERT OR REPLACE would delete the old row without asking the DELETE trigger.
CREATE TRIGGER entries_not_replaced BEFORE INSERT ON entries
WHEN EXISTS (
    SELECT 1 FROM entries
    WHERE run = NEW.run AND round = NEW.round AND kind = NEW.kind AND corrects = NEW.corrects
)
BEGIN
    SELECT RAISE(ABORT, 'a ledger entry is never replaced');
END;

-- The two halves of each amount are summed apart, because SUM over 64-bit integers can overflow on the way to 0.
CREATE TRIGGER entries_zero_sum BEFORE INSERT ON entries
WHEN (
    SELECT COALESCE(SUM(amount >> 32), 0) * 4294967296 + COALESCE(SUM(amount & 4294967295), 0)
    FROM postings WHERE seq = NEW.seq
) <> 0
BEGIN
    SELECT RAISE(ABORT, 'the postings of a ledger entry must sum to zero');
END;

CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger
BEGIN SELECT RAISE(ABORT, 'a ledger is never changed; append a correction'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger
BEGIN SELECT RAISE(ABORT, 'a ledger is never deleted'); END;
CREATE TRIGGER ledger_no_insert BEFORE INSERT ON ledger WHEN EXISTS (SELECT 1 FROM ledger)
BEGIN SELECT RAISE(ABORT, 'a ledger is named once'); END;
CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger entry is never changed; append a correction'); END;
CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger entry is never deleted; append a correction'); END;
CREATE TRIGGER postings_no_update BEFORE UPDATE ON postings
BEGIN SELECT RAISE(ABORT, 'a posting is never changed; append a correction'); END;
CREATE TRIGGER postings_no_delete BEFORE DELETE ON postings
BEGIN SELECT RAISE(ABORT, 'a posting is never deleted; append a correction'); END;
