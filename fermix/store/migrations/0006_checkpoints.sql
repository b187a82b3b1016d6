-- The newest summary of a conversation is looked for behind any number of rows.
CREATE INDEX messages_checkpoints ON messages (agent_id, owner_id, channel, chat_id, thread_scope, session, id)
    WHERE kind = 'checkpoint_summary';
