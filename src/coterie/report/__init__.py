"""What was found, for people: `terminal` (rich) and `plots` (matplotlib), both from a `results.json` that `results` reads."""
