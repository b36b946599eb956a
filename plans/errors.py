"""What the planner raises."""


class PlanError(ValueError):
    """A log, a cost or an option that cannot be planned with; says what it holds and what is allowed."""
