"""What Outrider promises, checked."""
