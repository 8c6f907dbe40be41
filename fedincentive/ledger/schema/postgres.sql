-- The same ledger as in sqlite.sql, in a schema of its own.
CREATE SCHEMA fedincentive;

CREATE TABLE fedincentive.ledger (
    one     integer PRIMARY KEY CHECK (one = 1),
    version integer NOT NULL,
    minor   bigint  NOT NULL CHECK (minor >= 1)
);

-- body is canonical JSON and the only truth; the other columns repeat parts of it so that SQL can find them.
CREATE TABLE fedincentive.entries (
    seq      bigint PRIMARY KEY CHECK (seq >= 1),
    run      text   NOT NULL,
    round    bigint NOT NULL CHECK (round >= 0),
    kind     text   NOT NULL,
    corrects bigint NOT NULL CHECK (corrects >= 0 AND corrects < seq),
    body     text   NOT NULL,
    hash     text   NOT NULL CHECK (length(hash) = 64),
    UNIQUE (run, round, kind, corrects)
);

-- Postings are written before their entry, in the same transaction: inserting the entry closes them.
CREATE TABLE fedincentive.postings (
    seq     bigint NOT NULL REFERENCES fedincentive.entries (seq) DEFERRABLE INITIALLY DEFERRED,
    account text   COLLATE "C" NOT NULL CHECK (account <> ''),
    amount  bigint NOT NULL,
    PRIMARY KEY (seq, account)
);

CREATE FUNCTION fedincentive.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a ledger is never changed or deleted (% on %); append a correction', TG_OP, TG_TABLE_NAME;
END $$;

CREATE FUNCTION fedincentive.refuse_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM fedincentive.entries e JOIN (SELECT DISTINCT seq FROM fresh) f USING (seq)) THEN
        RAISE EXCEPTION 'a ledger entry is closed: its postings cannot be added to';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION fedincentive.refuse_gap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.seq <> (SELECT COALESCE(MAX(seq), 0) + 1 FROM fedincentive.entries) THEN
        RAISE EXCEPTION 'ledger entries are numbered without gaps';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION fedincentive.refuse_imbalance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT COALESCE(SUM(amount), 0) FROM fedincentive.postings WHERE seq = NEW.seq) <> 0 THEN
        RAISE EXCEPTION 'the postings of a ledger entry must sum to zero';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER postings_closed AFTER INSERT ON fedincentive.postings REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION fedincentive.refuse_closed();
CREATE TRIGGER entries_in_order BEFORE INSERT ON fedincentive.entries
    FOR EACH ROW EXECUTE FUNCTION fedincentive.refuse_gap();
CREATE CONSTRAINT TRIGGER entries_zero_sum AFTER INSERT ON fedincentive.entries DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION fedincentive.refuse_imbalance();

CREATE TRIGGER ledger_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON fedincentive.ledger
    FOR EACH STATEMENT EXECUTE FUNCTION fedincentive.refuse();
CREATE TRIGGER entries_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON fedincentive.entries
    FOR EACH STATEMENT EXECUTE FUNCTION fedincentive.refuse();
CREATE TRIGGER postings_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON fedincentive.postings
    FOR EACH STATEMENT EXECUTE FUNCTION fedincentive.refuse();
