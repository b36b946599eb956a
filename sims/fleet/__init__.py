"""A fleet: several engines behind a router, in one virtual clock, that crash, drain and come back."""
