"""What the tests share: toy models, hand-carried messages, real processes, fault runs."""
