"""What is generated is up to date."""

import pytest

from tests.generated import GENERATED, with_block
from tests.rooms import ROOT


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_up_to_date(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text == GENERATED[name](text), f"{name} is out of date: run make generated"


def test_a_document_without_the_place_for_a_block_is_an_error():
    with pytest.raises(ValueError, match="no <!-- apis -->"):
        with_block("# A document", "apis", "")
