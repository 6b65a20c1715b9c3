-- Contexts of a type in the order in which they were made, and by when they last changed: lists of runs, and what
-- watches them. Without these each list reads every context.
CREATE INDEX context_by_type ON context (type_id, id);
CREATE INDEX context_by_change ON context (type_id, updated_at);
