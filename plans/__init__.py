"""What speculation would gain on recorded traffic: replay, cost, answer."""
