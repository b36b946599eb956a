"""Many engines behind one address, as deployments of Ray Serve."""
