"""Recorded conversations, in the layouts that logs and data sets have."""

from sims.recordings.conversations import Conversation, Conversations, Message, transcript
from sims.recordings.reading import FORMATS, nothing_to_use, read_conversations, stream_conversations

__all__ = [
    "FORMATS",
    "Conversation",
    "Conversations",
    "Message",
    "nothing_to_use",
    "read_conversations",
    "stream_conversations",
    "transcript",
]
