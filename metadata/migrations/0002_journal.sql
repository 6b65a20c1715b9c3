-- The journal: an entry for each transaction that changed rows, chained by hashes. Entries are only ever added.
CREATE TABLE journal (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT NOT NULL,
    changes TEXT NOT NULL,
    hash TEXT NOT NULL CHECK (length(hash) = 64)
) STRICT;
-- An INSERT OR REPLACE deletes without asking the triggers of DELETE: so an entry has the next number, and no other.
CREATE TRIGGER journal_goes_on BEFORE INSERT ON journal
WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM journal)
BEGIN
    SELECT RAISE(ABORT, 'drivetrain: entries of the journal are only added at its end');
END;
CREATE TRIGGER journal_is_not_changed BEFORE UPDATE ON journal
BEGIN
    SELECT RAISE(ABORT, 'drivetrain: an entry of the journal is never changed');
END;
CREATE TRIGGER journal_is_not_shortened BEFORE DELETE ON journal
BEGIN
    SELECT RAISE(ABORT, 'drivetrain: an entry of the journal is never deleted');
END;
