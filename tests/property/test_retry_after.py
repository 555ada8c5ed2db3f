"""Retry-After under any text."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as st

from streams.rules.retry_after import MAX_WAIT_MS, is_malformed, wait_ms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOWS = st.integers(min_value=0, max_value=4_102_444_800_000)
INSTANTS = st.integers(min_value=0, max_value=4_102_444_800).map(
    lambda seconds: EPOCH + timedelta(seconds=seconds)
)
LAYOUTS = st.sampled_from(
    [
        lambda at: format_datetime(at, usegmt=True),
        lambda at: at.strftime("%A, %d-%b-%y %H:%M:%S GMT"),
        lambda at: at.strftime("%a %b ") + f"{at.day:2d}" + at.strftime(" %H:%M:%S %Y"),
    ]
)
VALUES = st.lists(
    st.one_of(
        st.text(max_size=40),
        st.text(alphabet="0123456789.,+- ", max_size=30),
        st.integers(min_value=0).map(str),
        INSTANTS.map(lambda at: format_datetime(at, usegmt=True)),
        INSTANTS.map(lambda at: format_datetime(at)[:-6]),
    ),
    max_size=4,
).map(tuple)


@given(values=VALUES, now_ms=NOWS)
def test_any_field_gives_a_bounded_wait_or_none(values, now_ms):
    """D-018, A07: nothing raised, nothing negative, nothing past the clamp."""
    waited = wait_ms(values, now_ms)

    assert waited is None or 0 <= waited <= MAX_WAIT_MS
    assert is_malformed(values) in (True, False)


@given(seconds=st.integers(min_value=0, max_value=10**11), now_ms=NOWS)
def test_seconds_are_what_they_say(seconds, now_ms):
    """D-018: never earlier than asked."""
    assert seconds * 1_000 == wait_ms((str(seconds),), now_ms)


@given(at=INSTANTS, layout=LAYOUTS, now_ms=NOWS)
def test_a_date_waits_until_that_instant(at, layout, now_ms):
    """A02: in every layout; those with two digits within fifty years of it."""
    text = layout(at)
    instant_ms = int(at.timestamp()) * 1_000
    two_digits = "-" in text
    near = abs(instant_ms - now_ms) < 49 * 365 * 86_400_000

    waited = wait_ms((text,), now_ms)

    if near or not two_digits:
        assert max(instant_ms - now_ms, 0) == waited
    else:
        assert waited is not None


@given(values=VALUES, more=VALUES, now_ms=NOWS)
def test_a_further_value_never_shortens_the_wait(values, more, now_ms):
    """A11: whatever a proxy adds."""
    assert (wait_ms(values, now_ms) or 0) <= (wait_ms(values + more, now_ms) or 0)
