"""A recipe small enough for rounds of a tenth of a second: the pocket model, two tasks a round, four short answers."""

from pathlib import Path

RECIPE = """
title = "A small swarm"
question = "Does it play?"
baseline = "alone"
seeds = [1]
profile = "pocket"

[settings]
protocol = { kind = "solo", final_tokens = 40 }
draw = { kind = "fixed", episodes = 4 }
tasks = { kind = "pocket_specialties", train = 1024, held_out = 4, seed = 1, specialties = ["sums", "differences"] }
model = { path = "pocket", device = "cpu", adapter = { kind = "lora", rank = 2, alpha = 4.0 } }
train = { steps = 3, tasks_per_step = 2, checkpoint_every = 2, optimizer = { lr = 2e-3 } }
swarm = { name = "small", external = { kind = "fixed", groups = 0 } }

[profiles.pocket]
about = "the built-in model"

[arms.alone]
change = "learns from its own answers only"

[arms.shared]
change = "up to one of two groups comes from others"
settings = { swarm = { external = { groups = 1 } } }
"""


def write_recipe(folder: Path) -> Path:
    path = folder / "small.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path
