-- One row per accepted message. (channel, message_id) is the key that a platform's second copy is known by, for a day.
-- `outcome` is NULL until the message has its last word; `effect` names the first tool with an effect that began;
-- `answer` is the whole text that the replies of outcome 'answered' are the parts of.
CREATE TABLE inbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    channel      TEXT NOT NULL,
    message_id   TEXT NOT NULL,
    trust        TEXT NOT NULL CHECK (trust IN ('operator', 'guest')),
    commands     INTEGER NOT NULL,
    message_json TEXT NOT NULL,
    media        INTEGER NOT NULL,
    accepted_at  TEXT NOT NULL,
    begun        INTEGER NOT NULL DEFAULT 0,
    effect       TEXT,
    stopped      INTEGER NOT NULL DEFAULT 0,
    draft        TEXT,
    answer       TEXT,
    model        TEXT,
    outcome      TEXT CHECK (outcome IN ('answered', 'handled', 'stopped', 'failed', 'refused', 'excused')),
    UNIQUE (channel, message_id)
);

CREATE INDEX inbox_unfinished ON inbox (id) WHERE outcome IS NULL;
CREATE INDEX inbox_by_age ON inbox (accepted_at);

-- One row per send. `settles` is the outcome that this reply gives its message, NULL for a word in between.
CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    entry_id    INTEGER NOT NULL REFERENCES inbox (id) ON DELETE CASCADE,
    key         TEXT NOT NULL UNIQUE,
    text        TEXT NOT NULL,
    model       TEXT,
    settles     TEXT,
    state       TEXT NOT NULL CHECK (state IN ('unsent', 'in_flight', 'sent', 'failed')),
    marked      INTEGER NOT NULL DEFAULT 0,
    platform_id TEXT,
    error       TEXT
);

CREATE INDEX outbox_by_entry ON outbox (entry_id);

-- Which accepted message a row of the history belongs to, so that a turn that runs again stores nothing twice.
ALTER TABLE messages ADD COLUMN ledger_id INTEGER;
CREATE INDEX messages_by_ledger ON messages (ledger_id) WHERE ledger_id IS NOT NULL;
