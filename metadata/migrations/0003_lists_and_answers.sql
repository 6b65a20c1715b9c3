-- Contexts of a type in the order in which they were made, and by when they last changed: lists of runs, and what
-- watches them. Without these each list reads every context.
CREATE INDEX context_by_type ON context (type_id, id);
CREATE INDEX context_by_change ON context (type_id, updated_at);

-- The last answer of a metadata server to each session, stored with what was done: asked again, it is not done again.
CREATE TABLE answered (
    session TEXT PRIMARY KEY,
    number INTEGER NOT NULL,
    asker TEXT NOT NULL,
    at INTEGER NOT NULL,
    answer TEXT NOT NULL
) STRICT, WITHOUT ROWID;
