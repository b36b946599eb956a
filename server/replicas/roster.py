"""The replicas that this process knows of; Ray Serve copies its router's class, so that nothing can be kept there."""

names: tuple[str, ...] = ()
