"""Statistics over training seeds, in numpy and scipy only; docs/statistics.md says why each was chosen, with its simulation.

`compare` (one comparison and its verdict), `holm` (several), `comparison` (figures, words), `intervals`, `signflip`,
`equivalence`, `power` and `plan` (how many seeds), `variance` (seeds, tasks, sampling), `passk`, `published` (others' scores,
judged the same way).
"""
