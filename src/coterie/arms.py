"""What the arms of a recipe differ in: found by resolving them, not by reading what the file says.

An experiment with arms that differ in two things cannot say which of them made the difference. So an arm changes one setting of the
baseline, or the kind of one table (whose settings then belong to the change), or the recipe says why it must be several
(`why_several`). Settings from the command line may change every arm alike, and nothing that the arms differ in.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from coterie.config_errors import differences
from coterie.layers import Settings
from coterie.recipe import Recipe, resolve
from coterie.types import CoterieError


@dataclass(frozen=True, slots=True)
class Change:
    """One setting in which an arm differs from the baseline; a value is None where that arm has no such setting, or none given."""

    key: str
    baseline: Any
    arm: Any

    @property
    def table(self) -> str:
        return self.key.partition(".")[0]


def changes(recipe: Recipe, profile: str, overrides: Settings | None = None) -> dict[str, list[Change]]:
    """By arm, every setting whose resolved value is not the baseline's; the `kind` of a table comes before its other settings."""
    of = {
        arm: resolve(recipe, profile=profile, arm=arm, seed=0, overrides=overrides or {}).model_dump(
            mode="json", exclude={"recipe", "profile", "arm", "seed"}
        )
        for arm in recipe.file.arms
    }
    baseline = of[recipe.file.baseline]
    found = {}
    for arm, one in of.items():
        keys = sorted(differences(baseline, one), key=lambda key: (key.rpartition(".")[0], not key.endswith(".kind"), key))
        found[arm] = [Change(key, _at(baseline, key), _at(one, key)) for key in keys]
    return found


def _at(settings: Any, key: str) -> Any:
    for part in key.split("."):
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings


def is_one(found: Collection[Change]) -> bool:
    """Whether these are one change: a single setting, or all in one table that is of another kind."""
    kinds = {change.key.removesuffix("kind") for change in found if change.key.endswith(".kind")}
    return len(found) <= 1 or any(all(change.key.startswith(table) for change in found) for table in kinds)


def check_one_change(recipe: Recipe) -> None:
    """Refuse a recipe with an arm that differs from the baseline in nothing, or in several things without saying why."""
    file = recipe.file
    for profile in file.profiles:
        for arm, found in changes(recipe, profile).items():
            if arm != file.baseline and not found:
                raise CoterieError(
                    f"{recipe.path} [arms.{arm}]: does not differ from the baseline {file.baseline} in profile {profile}; "
                    "change a setting, or remove the arm"
                )
            if not is_one(found) and file.arms[arm].why_several is None:
                keys = ", ".join(change.key for change in found)
                raise CoterieError(
                    f"{recipe.path} [arms.{arm}]: differs from the baseline {file.baseline} in more than one setting ({keys}) in "
                    f'profile {profile}; make it one change, or say why it takes several with why_several = "…"'
                )


def check_arms(recipe: Recipe, profile: str, overrides: Settings, arms: Collection[str]) -> None:
    """Make sure that settings from the command line leave `arms`, those that are to be compared, differing in what the recipe says,
    and in nothing else. A single arm is compared with nothing."""
    if len(arms) < 2:
        return
    declared, found = ({arm: [c.key for c in of] for arm, of in changes(recipe, profile, sets).items()} for sets in ({}, overrides))
    for arm in arms:
        if declared[arm] != found[arm]:
            keys = ", ".join(sorted({*declared[arm]} ^ {*found[arm]}))
            raise CoterieError(
                f"the command line changes what the arms of {recipe.name} differ in ({keys} of {arm}); "
                "play a single arm with --arm, or copy the recipe to ask another question"
            )


def declared(recipe: Recipe) -> list[str]:
    """The settings in which any two of the recipe's arms differ, in any profile."""
    found = {change.key for profile in recipe.file.profiles for of in changes(recipe, profile).values() for change in of}
    return sorted(found)
