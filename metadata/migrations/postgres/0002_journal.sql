-- The journal: an entry for each transaction that changed rows, chained by hashes. Entries are only ever added.
CREATE TABLE journal (
    number BIGINT PRIMARY KEY,
    at BIGINT NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    verb TEXT COLLATE "C" NOT NULL,
    changes TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL CHECK (length(hash) = 64)
);
CREATE FUNCTION journal_law() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        RAISE EXCEPTION 'drivetrain: an entry of the journal is never changed or deleted';
    ELSIF NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM journal) THEN
        RAISE EXCEPTION 'drivetrain: entries of the journal are only added at its end';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER journal_law BEFORE INSERT OR UPDATE OR DELETE ON journal FOR EACH ROW EXECUTE FUNCTION journal_law();
CREATE TRIGGER journal_is_not_emptied BEFORE TRUNCATE ON journal EXECUTE FUNCTION journal_law();
