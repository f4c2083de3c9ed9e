"""The ways of ordinary requests stay short enough to be read in one sitting."""

import pytest

from tests.tour import WAYS, size_of


@pytest.mark.parametrize("name", WAYS)
def test_the_way_of_a_request_passes_few_files_and_few_lines(name):
    stops, files_max, lines_max = WAYS[name]
    files, lines = size_of(stops)
    assert (files <= files_max, lines <= lines_max) == (True, True), (files, lines)
