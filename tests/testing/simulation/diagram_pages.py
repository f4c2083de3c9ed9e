"""What a page of a diagram is made of, and the history that it holds."""

import base64
import gzip
import json
import re
from importlib.resources import files

from barnabas.testing.simulation.diagram.packing import PARTS

DIAGRAM = files("barnabas.testing.simulation.diagram")
SOURCES = {name: (DIAGRAM / name).read_text(encoding="utf-8") for name in PARTS}


def unpacked(html):
    """The history in a page, as its script reads it."""
    packed = re.search(r'id="history">([^<]*)</script>', html).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))
