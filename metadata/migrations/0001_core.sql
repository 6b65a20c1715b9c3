-- The core: types, artifacts, executions, contexts, what links them, claims. Times are microseconds since 1970, UTC.
CREATE TABLE schema_version (
    version INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE type (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('artifact', 'execution', 'context')),
    name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    version TEXT NOT NULL DEFAULT '',
    schema TEXT CHECK (schema IS NULL OR json_valid(schema)),
    UNIQUE (kind, name, version)
) STRICT;

CREATE TABLE execution (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    type_id INTEGER NOT NULL REFERENCES type (id),
    name TEXT CHECK (length(name) BETWEEN 1 AND 255),
    cache_key TEXT,
    state TEXT NOT NULL CHECK (state IN ('NEW', 'RUNNING', 'COMPLETE', 'CACHED', 'FAILED', 'CANCELED', 'SKIPPED',
                                         'BLOCKED', 'ABANDONED')),
    cached_from INTEGER REFERENCES execution (id),
    properties TEXT NOT NULL CHECK (json_valid(properties)),
    error TEXT,
    owner TEXT CHECK (owner IS NULL OR json_valid(owner)),
    version INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    updated_at INTEGER NOT NULL,
    UNIQUE (type_id, name),
    CHECK ((state = 'CACHED') = (cached_from IS NOT NULL))
) STRICT;
CREATE INDEX execution_by_key ON execution (cache_key, state);
CREATE INDEX execution_by_state ON execution (state, updated_at);

CREATE TABLE artifact (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    type_id INTEGER NOT NULL REFERENCES type (id),
    name TEXT CHECK (length(name) BETWEEN 1 AND 255),
    uri TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    size INTEGER NOT NULL CHECK (size >= 0),
    state TEXT NOT NULL CHECK (state IN ('PENDING', 'LIVE', 'MARKED_FOR_DELETION', 'DELETED', 'ABANDONED',
                                         'REFERENCE')),
    producer_id INTEGER REFERENCES execution (id),
    properties TEXT NOT NULL CHECK (json_valid(properties)),
    version INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (type_id, name)
) STRICT;
CREATE INDEX artifact_by_type ON artifact (type_id, state);
CREATE INDEX artifact_by_fingerprint ON artifact (fingerprint);
CREATE INDEX artifact_by_state ON artifact (state, updated_at);
-- A payload has one artifact; a deleted one's place is free again.
CREATE UNIQUE INDEX artifact_uri ON artifact (uri) WHERE state NOT IN ('DELETED', 'ABANDONED');

CREATE TABLE context (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    type_id INTEGER NOT NULL REFERENCES type (id),
    name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    properties TEXT NOT NULL CHECK (json_valid(properties)),
    version INTEGER NOT NULL DEFAULT 1,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (type_id, name)
) STRICT;

CREATE TABLE context_parent (
    parent_id INTEGER NOT NULL REFERENCES context (id),
    child_id INTEGER NOT NULL REFERENCES context (id),
    PRIMARY KEY (parent_id, child_id),
    CHECK (parent_id <> child_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX context_parent_by_child ON context_parent (child_id);

CREATE TABLE event (
    execution_id INTEGER NOT NULL REFERENCES execution (id),
    direction TEXT NOT NULL CHECK (direction IN ('INPUT', 'OUTPUT')),
    key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    idx INTEGER NOT NULL CHECK (idx >= 0),
    artifact_id INTEGER NOT NULL REFERENCES artifact (id),
    at INTEGER NOT NULL,
    PRIMARY KEY (execution_id, direction, key, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_by_artifact ON event (artifact_id, direction, execution_id);
CREATE UNIQUE INDEX event_one_producer ON event (artifact_id) WHERE direction = 'OUTPUT';
-- Two local rules keep the whole graph free of cycles: an output is new (nothing leads on from it yet), and inputs
-- come before outputs (nothing leads on from the execution yet). So no edge can close a circle.
CREATE TRIGGER event_output_is_new BEFORE INSERT ON event
WHEN NEW.direction = 'OUTPUT' AND EXISTS (SELECT 1 FROM event WHERE artifact_id = NEW.artifact_id)
BEGIN
    SELECT RAISE(ABORT, 'drivetrain: an output must be a new artifact');
END;
CREATE TRIGGER event_inputs_first BEFORE INSERT ON event
WHEN NEW.direction = 'INPUT'
    AND EXISTS (SELECT 1 FROM event WHERE execution_id = NEW.execution_id AND direction = 'OUTPUT')
BEGIN
    SELECT RAISE(ABORT, 'drivetrain: an execution with outputs takes no further input');
END;
CREATE TRIGGER event_is_fixed BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'drivetrain: an event is never changed');
END;

CREATE TABLE association (
    context_id INTEGER NOT NULL REFERENCES context (id),
    execution_id INTEGER NOT NULL REFERENCES execution (id),
    PRIMARY KEY (context_id, execution_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX association_by_execution ON association (execution_id);

CREATE TABLE attribution (
    context_id INTEGER NOT NULL REFERENCES context (id),
    artifact_id INTEGER NOT NULL REFERENCES artifact (id),
    PRIMARY KEY (context_id, artifact_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX attribution_by_artifact ON attribution (artifact_id);

CREATE TABLE claim (
    cache_key TEXT PRIMARY KEY,
    owner TEXT NOT NULL CHECK (json_valid(owner)),
    token INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    lease REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('HELD', 'DONE', 'RELEASED'))
) STRICT;
CREATE INDEX claim_by_state ON claim (state, expires_at);

CREATE TABLE cache_preimage (
    cache_key TEXT PRIMARY KEY,
    preimage TEXT NOT NULL CHECK (json_valid(preimage))
) STRICT;
