"""Nodes that learn from each other's rollouts (SAPO, arXiv:2509.08721)."""
