"""Other frameworks, each measured in an environment of its own."""
