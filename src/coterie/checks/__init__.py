"""Checks on a run: does its score mean what it seems to mean? Pure functions over what runs leave on disk."""

from coterie.checks.base import Check, Evidence, as_json, faults
from coterie.checks.chance import over_chance
from coterie.checks.folder import check_folder
from coterie.checks.registry import CHECKS, check_run

__all__ = ["CHECKS", "Check", "Evidence", "as_json", "check_folder", "check_run", "faults", "over_chance"]
