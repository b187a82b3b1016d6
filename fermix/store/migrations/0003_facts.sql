-- One row per remembered fact, kept for ever: what is forgotten is archived. A fact is known by its scope and its key;
-- `value`, `category` and the archive are as its last change, `change_id`, left them, and so is where they came from.
CREATE TABLE memories (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id           TEXT NOT NULL,
    owner_id           TEXT NOT NULL,
    scope_type         TEXT NOT NULL CHECK (scope_type IN ('owner', 'agent', 'conversation', 'job')),
    scope_id           TEXT NOT NULL,
    category           TEXT NOT NULL
        CHECK (category IN ('identity', 'preference', 'interest', 'goal', 'context', 'directive')),
    key                TEXT NOT NULL,
    value              TEXT NOT NULL,
    confidence         REAL NOT NULL DEFAULT 1.0,
    promote_target     TEXT NOT NULL CHECK (promote_target IN ('none', 'user_md', 'memory_md')),
    created_by         TEXT NOT NULL,
    trust              TEXT NOT NULL CHECK (trust IN ('operator', 'guest')),
    source_type        TEXT NOT NULL,
    source_id          TEXT NOT NULL,
    source_name        TEXT NOT NULL,
    source_description TEXT NOT NULL,
    source_message_id  TEXT NOT NULL,
    ledger_id          INTEGER,
    session_id         TEXT NOT NULL,
    run_id             TEXT NOT NULL,
    change_id          INTEGER NOT NULL,
    created_at         TEXT NOT NULL,
    updated_at         TEXT NOT NULL,
    archived_at        TEXT,
    archived_by        TEXT,
    archive_reason     TEXT,
    UNIQUE (agent_id, owner_id, scope_type, scope_id, key)
);

-- What was ever done to a fact and what it was afterwards; appended and never changed, so that all of it can be undone.
CREATE TABLE memory_changes (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id          INTEGER NOT NULL REFERENCES memories (id),
    action             TEXT NOT NULL CHECK (action IN ('store', 'forget', 'restore')),
    category           TEXT NOT NULL,
    value              TEXT NOT NULL,
    archived           INTEGER NOT NULL,
    changed_by         TEXT NOT NULL,
    trust              TEXT NOT NULL CHECK (trust IN ('operator', 'guest')),
    source_type        TEXT NOT NULL,
    source_id          TEXT NOT NULL,
    source_name        TEXT NOT NULL,
    source_description TEXT NOT NULL,
    source_message_id  TEXT NOT NULL,
    ledger_id          INTEGER,
    session_id         TEXT NOT NULL,
    run_id             TEXT NOT NULL,
    reason             TEXT NOT NULL,
    created_at         TEXT NOT NULL
);

CREATE INDEX memory_changes_by_memory ON memory_changes (memory_id, id);

-- The texts of files that are made from the database, and what an owner wrote into one. `change_id` is the newest change
-- of a memory that the text knows of.
CREATE TABLE resource_revisions (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id        TEXT NOT NULL,
    owner_id        TEXT NOT NULL,
    resource_type   TEXT NOT NULL,
    name            TEXT NOT NULL,
    revision        INTEGER NOT NULL,
    parent          INTEGER,
    sha256          TEXT NOT NULL,
    content         TEXT NOT NULL,
    size_bytes      INTEGER NOT NULL,
    mutation_source TEXT NOT NULL,
    change_id       INTEGER NOT NULL,
    created_at      TEXT NOT NULL,
    UNIQUE (agent_id, owner_id, resource_type, name, revision)
);
