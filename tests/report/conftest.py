import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("report_sample", Path(__file__).with_name("sample.py"))
sample = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sample)


@pytest.fixture
def results():
    return sample.results()
