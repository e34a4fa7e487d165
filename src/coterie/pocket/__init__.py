"""The built-in base model: small enough to ship, so that nothing has to be downloaded.

`MODEL_DIR` is a folder in the standard transformers layout: `AutoModelForCausalLM.from_pretrained(MODEL_DIR)` and
`AutoTokenizer.from_pretrained(MODEL_DIR)` need no network. `model/README.md` is its model card; `pretrain.py` makes it again.
"""

from pathlib import Path

MODEL_DIR = Path(__file__).parent / "model"
MODELS = {"pocket": MODEL_DIR, "pocket-small": Path(__file__).parent / "small"}
