-- One row per stored message, appended and never changed. A conversation is (channel, chat_id, thread_scope);
-- its current history are the rows of its highest session. A row of kind 'fence' opens a session and holds no text.
CREATE TABLE messages (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id      TEXT NOT NULL,
    owner_id      TEXT NOT NULL,
    channel       TEXT NOT NULL,
    chat_id       TEXT NOT NULL,
    thread_scope  TEXT NOT NULL DEFAULT 'root',
    session       INTEGER NOT NULL DEFAULT 0,
    sender        TEXT NOT NULL,
    role          TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
    kind          TEXT NOT NULL CHECK (kind IN ('chat_message', 'note', 'checkpoint_summary', 'fence')),
    content       TEXT NOT NULL,
    metadata_json TEXT NOT NULL DEFAULT '{}',
    created_at    TEXT NOT NULL
);

CREATE INDEX messages_by_conversation ON messages (agent_id, owner_id, channel, chat_id, thread_scope, session, id);
