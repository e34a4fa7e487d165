import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # learn_builders is shared with a worker script that runs in its own process
