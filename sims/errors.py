"""What a simulation refuses."""


class SimError(ValueError):
    """An option, or a file, that no simulation can be made of; names it and says what is allowed."""
