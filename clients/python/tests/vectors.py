"""The golden vectors, which the clients of all languages share."""

import json
from pathlib import Path

_VECTORS = Path(__file__).resolve().parents[2] / "vectors"


def cases(name):
    found = json.loads((_VECTORS / f"{name}.json").read_text("utf-8"))["cases"]
    assert found, name
    return found
