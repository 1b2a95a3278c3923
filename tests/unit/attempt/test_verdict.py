"""What a report that is shown may say."""

import msgspec

from firstlight.attempt.verdict import without_secrets
from firstlight.core.vocabulary import Outcome
from firstlight.diagnose import reported
from firstlight.testing.bundles import bundle, rank


def test_a_report_is_shown_without_secrets_and_is_the_same_otherwise() -> None:
    made = reported(bundle(rank(0)), outcome=Outcome.STALLED)
    assert without_secrets(made) == made
    told = msgspec.structs.replace(made, headline="waits for /run/api_key=verysecretkey")
    assert without_secrets(told).headline == "waits for /run/api_key=***"
