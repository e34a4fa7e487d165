"""Recipe files: a question, its arms (each a stated change to the baseline), profiles, seeds; and how they become run configs.

Layers, later ones win: the recipe's `[settings]`, the profile's, the arm's, the command line's. A layer that names another `kind`
for a table replaces that table, because settings of one kind mean nothing to another (`layers.merge`). What the arms differ in may
not be set from the command line: it would make the comparison a lie (`arms`). Relative paths in a recipe file, those of its plugins
included, are counted from the folder that it lies in.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from coterie.config import Config, RunConfig
from coterie.config.learn import BUILT_IN
from coterie.config_errors import describe, locate, meant
from coterie.kinds import load_plugins, run_config
from coterie.layers import Settings, beside, leaves, merge, parse_overrides
from coterie.types import CoterieError

__all__ = [
    "Recipe",
    "RecipeFile",
    "Settings",
    "choose_arms",
    "choose_profile",
    "leaves",
    "load_recipe",
    "merge",
    "parse_overrides",
    "recipe_names",
    "recipes_folder",
    "resolve",
]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
"""Arms and profiles name files, so they hold letters, digits and _ . + - only."""


Metric = Annotated[str, Field(pattern=r"^(score|cross_play|also\..+|swarm\.(training_)?reward)$")]


class ArmFile(Config):
    change: str
    """The one change to the baseline, in a sentence."""
    why_several: str | None = None
    """Why the arm differs from the baseline in several settings, where it must (`arms.check_one_change`)."""
    settings: Settings = Field(default_factory=dict)


class ProfileFile(Config):
    about: str
    """What this profile is for."""
    seeds: tuple[int, ...] | None = None
    settings: Settings = Field(default_factory=dict)


class OtherModels(Config):
    """Which profile is taken when --model names another model and --profile is not given."""

    cpu: str
    cuda: str


class RecipeFile(Config):
    title: str
    question: str
    baseline: str
    seeds: tuple[int, ...] = Field(min_length=1)
    profile: str
    """The profile when none is named."""
    other_models: OtherModels | None = None
    plugins: tuple[str, ...] = ()
    """Files that register kinds of their own (`coterie.kinds`), beside the recipe."""
    settings: Settings = Field(default_factory=dict)
    arms: dict[Name, ArmFile] = Field(min_length=1)
    profiles: dict[Name, ProfileFile] = Field(min_length=1)
    metrics: tuple[Metric, ...] = Field(default=("score",), min_length=1)
    """What arms are compared by: "score", "cross_play" (with strangers in the other seats), "also.NAME" (another protocol),
    "swarm.reward" (of own fresh questions, over all rounds), "swarm.training_reward" (of all that was learned from)."""
    also_against: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    """Further comparisons: by an arm that is not the baseline, the arms that are held against it too."""
    min_effect: float = 0.05
    """The smallest difference in score that the question is about."""


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    path: Path
    file: RecipeFile
    plugins: tuple[dict[str, str], ...] = ()
    """What was imported for it, as `plugins` of a run's configuration."""


def recipes_folder() -> Path:
    """The recipes that come with coterie: inside an installed package, or beside the source tree."""
    inside = Path(__file__).parent / "recipes"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "recipes"


def recipe_names() -> list[str]:
    return sorted(path.parent.name for path in recipes_folder().glob("*/recipe.toml"))


def load_recipe(name: str, plugins: Sequence[Path] = ()) -> Recipe:
    """A recipe by the name of a built-in one, or the path of a TOML file or of a folder that holds recipe.toml. `plugins`, and
    those that the recipe names, are imported first."""
    from coterie.arms import check_one_change  # which resolves recipes

    path = recipes_folder() / name / "recipe.toml"
    if not path.is_file():
        given = Path(name)
        path = given / "recipe.toml" if given.is_dir() else given
    if not path.is_file():
        raise CoterieError(
            f"no recipe is named {name}; `coterie recipes` lists them, and the path of a recipe.toml works too"
            f"{meant(name, recipe_names())}"
        )
    data = read_toml(path)
    try:
        file = RecipeFile.model_validate(data)
    except ValidationError as error:
        raise CoterieError(f"{path}: {describe(error, RecipeFile)}") from None
    name = path.parent.name if path.name == "recipe.toml" else path.stem
    recipe = Recipe(name, path, file, tuple(load_plugins([*(path.parent / plugin for plugin in file.plugins), *plugins])))
    _check_names(recipe)
    check_one_change(recipe)
    return recipe


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CoterieError(f"{path}: not valid TOML ({error})") from None
    except OSError as error:
        raise CoterieError(f"{path}: cannot be read ({error.strerror})") from None


def _check_names(recipe: Recipe) -> None:
    file = recipe.file
    if file.baseline not in file.arms:
        raise CoterieError(f"{recipe.path}: baseline = {file.baseline} is not an arm{meant(file.baseline, file.arms)}")
    for arm in (name for pair in file.also_against.items() for name in (pair[0], *pair[1])):
        if arm not in file.arms:
            raise CoterieError(f"{recipe.path}: also_against names {arm}, which is not an arm{meant(arm, file.arms)}")
    named = [file.profile, *((file.other_models.cpu, file.other_models.cuda) if file.other_models else ())]
    for profile in named:
        if profile not in file.profiles:
            raise CoterieError(f"{recipe.path}: {profile} is not a profile{meant(profile, file.profiles)}")


def choose_profile(recipe: Recipe, profile: str | None, model: str | None, cuda: bool) -> str:
    """The profile that was named; else the one for other models when --model names one; else the recipe's default."""
    file = recipe.file
    if profile is not None:
        if profile not in file.profiles:
            raise CoterieError(
                f"recipe {recipe.name} has no profile {profile}; it has {', '.join(file.profiles)}{meant(profile, file.profiles)}"
            )
        return profile
    if model in (None, *BUILT_IN) or file.other_models is None:
        return file.profile
    return file.other_models.cuda if cuda else file.other_models.cpu


def choose_arms(recipe: Recipe, arms: Iterable[str]) -> list[str]:
    chosen = list(dict.fromkeys(arms)) or list(recipe.file.arms)
    for arm in chosen:
        if arm not in recipe.file.arms:
            raise CoterieError(
                f"recipe {recipe.name} has no arm {arm}; it has {', '.join(recipe.file.arms)}{meant(arm, recipe.file.arms)}"
            )
    return chosen


def resolve(recipe: Recipe, *, profile: str, arm: str, seed: int, overrides: Settings) -> RunConfig:
    """One arm and seed, all layers merged and checked."""
    file, folder = recipe.file, recipe.path.parent
    for path in leaves(overrides):
        if any(path == other or path.startswith(other + ".") for a in file.arms.values() for other in leaves(a.settings)):
            raise CoterieError(f"{path} is what the arms of {recipe.name} differ in, so it cannot be set; choose an arm with --arm")
    layers = [
        ("the command line", overrides),
        (f"{recipe.path} [arms.{arm}.settings]", beside(file.arms[arm].settings, folder)),
        (f"{recipe.path} [profiles.{profile}.settings]", beside(file.profiles[profile].settings, folder)),
        (f"{recipe.path} [settings]", beside(file.settings, folder)),
    ]
    merged: Settings = {}
    for _, layer in reversed(layers):
        merged = merge(merged, layer)
    merged = merge(merged, {"recipe": recipe.name, "profile": profile, "arm": arm, "seed": seed, "plugins": list(recipe.plugins)})
    try:
        return _absolute(run_config().model_validate(merged))
    except ValidationError as error:
        raise CoterieError(f"{_source(error, layers)}: {describe(error, run_config())}") from None


def _absolute(config: RunConfig) -> RunConfig:
    """Folders and files by absolute path, so that a run can be resumed from another working directory."""

    def place(given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(place(one) for one in given)
        here = Path(given).expanduser()
        return str(here.resolve()) if given not in (*BUILT_IN, "base") and here.exists() else given

    def fix(part: Any, *names: str) -> Any:
        return part.model_copy(update={n: place(v) for n in names if (v := getattr(part, n, None))})

    return config.model_copy(
        update={
            "model": fix(config.model, "path", "chat_template"),
            "tasks": fix(config.tasks, "path", "held_out_path"),
            "cast": fix(config.cast, "partner", "partners"),
            "evaluate": fix(config.evaluate, "partners"),
            "swarm": fix(config.swarm, "models") if config.swarm else None,
        }
    )


def _source(error: ValidationError, layers: list[tuple[str, Settings]]) -> str:
    """The layer that the first error's key comes from."""
    keys = locate(error, run_config())[0]
    for name, layer in layers:
        table: Any = layer
        for key in keys:
            if not isinstance(table, Mapping) or key not in table:
                break
            table = table[key]
        else:
            return name
    return next((name for name, layer in layers if keys and keys[0] in layer), layers[-1][0])
