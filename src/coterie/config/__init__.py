"""What a run is configured by: pydantic models, discriminated on `kind` where there is a choice.

A recipe file, a profile, an arm and the command line are merged (`recipe.py`) into one dict that is parsed here into a frozen
`RunConfig`. Unknown keys are refused, never ignored, and combinations that would train on biased data do not parse. Every field
carries its meaning and unit as a docstring under it. The resolved config is written into each run folder.
"""

from coterie.config.base import Config
from coterie.config.learn import FullWeightsConfig, LoraConfig, LossConfig, ModelConfig, OptimizerConfig, TrainConfig
from coterie.config.run import RunConfig

__all__ = ["Config", "FullWeightsConfig", "LoraConfig", "LossConfig", "ModelConfig", "OptimizerConfig", "RunConfig", "TrainConfig"]
