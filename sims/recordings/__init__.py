"""Recorded conversations, in the layouts that logs and data sets have."""

from sims.recordings.conversations import Conversation, Conversations, Message, transcript
from sims.recordings.reading import FORMATS, read_conversations

__all__ = ["FORMATS", "Conversation", "Conversations", "Message", "read_conversations", "transcript"]
