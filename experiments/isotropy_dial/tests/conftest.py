"""A made-up study of six seeds, for the tests of the dose-response study."""

import pytest
from dial_study import Study


@pytest.fixture
def study(tmp_path):
    return Study(tmp_path)
