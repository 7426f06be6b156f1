"""Speed, as ratios within one run. An entry is a small function under `@benchmark`."""
