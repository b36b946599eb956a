"""Known mistakes, each planted in a copy of the code to see which tests catch it."""
