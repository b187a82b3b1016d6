-- The words of messages, by the number of the message. It keeps no text, knows no place of a word, and is filled from the
-- table in chunks; `search_progress` says which numbers are in: all from `low` to `high`. What stood before this
-- migration is below `low` and comes in bit by bit.
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    words, content = '', columnsize = 0, detail = none, tokenize = 'porter ascii'
);

CREATE TABLE search_progress (
    source TEXT PRIMARY KEY,
    low    INTEGER NOT NULL,
    high   INTEGER NOT NULL
);

INSERT INTO search_progress SELECT 'messages', COALESCE(MAX(id), 0) + 1, COALESCE(MAX(id), 0) FROM messages;
