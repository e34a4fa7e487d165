"""Statistics over training seeds: `compare` (the verdict), `intervals`, `power`, `signflip`. Pure numpy and scipy."""
