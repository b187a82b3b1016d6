-- What a list of conversations counts: the lines of a conversation that a person sees. Without it a list over a million
-- messages reads each of them.
CREATE INDEX messages_shown ON messages (agent_id, owner_id, channel, chat_id, thread_scope, session, id)
    WHERE kind = 'chat_message' AND role != 'tool' AND content != '';
