-- One row per call of a model. A row of outcome 'open' is a call that runs: what it holds counts as spent by whoever finds
-- it after the process has died. `day` is the local date when it began; money is in millionths of a US dollar, NULL
-- when no price is known; `estimated` says that the provider reported no usage. The conversation may be unknown.
CREATE TABLE usage (
    id              INTEGER PRIMARY KEY,
    at              TEXT NOT NULL,
    day             TEXT NOT NULL,
    purpose         TEXT NOT NULL,
    provider        TEXT NOT NULL,
    model           TEXT NOT NULL,
    channel         TEXT,
    chat_id         TEXT,
    thread_scope    TEXT,
    turn_id         TEXT NOT NULL,
    outcome         TEXT NOT NULL CHECK (outcome IN ('open', 'answered', 'failed', 'cancelled', 'lost')),
    input_tokens    INTEGER NOT NULL,
    cached_tokens   INTEGER,
    output_tokens   INTEGER NOT NULL,
    money           INTEGER,
    estimated       INTEGER NOT NULL,
    held_input      INTEGER NOT NULL,
    held_output     INTEGER NOT NULL,
    held_money      INTEGER
);

CREATE INDEX usage_by_day ON usage (day);
CREATE INDEX usage_open ON usage (id) WHERE outcome = 'open';
