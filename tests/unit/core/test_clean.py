"""Text from outside is fit to be written, and records are written whatever they hold."""

import json
import os

import pytest

from firstlight.core.clean import clean_text
from firstlight.core.gap import Gap
from firstlight.core.record import to_json
from firstlight.core.vocabulary import GapReason


@pytest.mark.parametrize("s", ["", "plain", "naïve 漢字 🦊", "\x1b[31m\u202e\0"])
def test_what_can_be_written_stays_as_it_is(s: str) -> None:
    assert clean_text(s) == s


@pytest.mark.parametrize(
    ("s", "clean"),
    [(os.fsdecode(b"caf\xe9"), "caf�"), (json.loads(r'"a\ud800z"'), "a�z"), ("\udfff\ud800", "��")],
)
def test_lone_surrogates_are_replaced(s: str, clean: str) -> None:
    assert clean_text(s) == clean


def test_a_record_is_written_whatever_its_texts_hold() -> None:
    gap = Gap(what="\ud800", reason=GapReason.FAILED, detail="fine")
    assert json.loads(to_json(gap)) == {"gap": "gap", "what": "�", "reason": "failed", "detail": "fine", "pid": 0}
