"""The gate of a swarm node: what others send is verified here before anything is learned from it."""

from coterie.swarm.gate.gate import Gate
from coterie.swarm.gate.state import read_rows
from coterie.swarm.gate.words import Admitted, Dropped, Limits, Reason, Row

__all__ = ["Admitted", "Dropped", "Gate", "Limits", "Reason", "Row", "read_rows"]
