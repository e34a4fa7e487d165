"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

Several = Parameter(consume_multiple=True, negative=(), show_default=False)
Flag = Parameter(negative=(), show_default=False)
Plugins = Annotated[tuple[Path, ...], Parameter(name="--plugin", consume_multiple=True, negative=(), show_default=False)]
