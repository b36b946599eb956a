"""The HTTP front door: an OpenAI-compatible server over the engine."""
