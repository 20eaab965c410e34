"""The JSON shown on the accounting page is read as it stands."""

import json
import re
from pathlib import Path

import pytest

from privatekube_kfp.accounting import plan_from_json

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accounting.md"
SHOWN = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_page_shows_plans() -> None:
    assert len(SHOWN) >= 2


@pytest.mark.parametrize("text", SHOWN)
def test_every_plan_shown_can_be_read(text: str) -> None:
    plan = plan_from_json(json.loads(text))
    assert plan_from_json(plan.to_json()) == plan
