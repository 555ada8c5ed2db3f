"""The schedule under any policy and any target's wish."""

from hypothesis import given
from hypothesis import strategies as st

from streams.model.policy import Policy
from streams.rules.backoff import GiveUp, Retry, delay_ms, schedule
from streams.rules.retry_after import wait_ms

T0 = 1_767_225_600_000
HINTS = st.one_of(
    st.just(()),
    st.integers(min_value=0, max_value=10**6).map(lambda s: (str(s),)),
    st.text(max_size=12).map(lambda text: (text,)),
)
SHARES = st.floats(min_value=0, max_value=1)


@st.composite
def policies(draw):
    first = draw(st.integers(1, 100_000))
    return Policy(
        name="custom",
        max_attempts=draw(st.integers(1, 40)),
        first_delay_ms=first,
        max_delay_ms=draw(st.integers(first, 10_000_000)),
        max_elapsed_ms=draw(st.integers(1, 100_000_000)),
        timeout_ms=1_000,
        lease_ms=10_000,
        max_age_ms=draw(st.integers(10_000, 200_000_000)),
        jitter_ms=draw(st.integers(0, 5_000)),
    )


@given(
    policy=policies(),
    attempts=st.integers(0, 60),
    claimed_ago=st.integers(0, 10**8),
    age=st.integers(0, 10**8),
    jitter=SHARES,
    hint=HINTS,
)
def test_a_retry_is_never_early_and_never_past_a_bound(
    policy, attempts, claimed_ago, age, jitter, hint
):
    """D-018, D-019, C-06, C-17, O-040: total, and within every limit at once."""
    first_claim_ms, admitted_ms = T0 - claimed_ago, T0 - max(age, claimed_ago)

    when = schedule(
        policy,
        attempts=attempts,
        first_claim_ms=first_claim_ms,
        admitted_ms=admitted_ms,
        now_ms=T0,
        jitter=jitter,
        retry_after=hint,
    )

    if isinstance(when, GiveUp):
        return
    wanted = max(delay_ms(policy, attempts), wait_ms(hint, T0) or 0)
    assert attempts < policy.max_attempts
    assert T0 + wanted <= when.due_ms <= T0 + wanted + policy.jitter_ms
    assert when.due_ms <= first_claim_ms + policy.max_elapsed_ms
    assert when.due_ms <= admitted_ms + policy.max_age_ms


@given(policy=policies(), attempts=st.integers(0, 10**6))
def test_the_delay_grows_with_the_count_and_stays_under_its_ceiling(policy, attempts):
    """C-02: monotone and bounded."""
    delay, following = delay_ms(policy, attempts), delay_ms(policy, attempts + 1)

    assert policy.first_delay_ms <= delay <= following <= policy.max_delay_ms


@given(
    policy=policies(), shorter=st.integers(0, 10**5), longer=st.integers(0, 10**5), jitter=SHARES
)
def test_a_longer_wish_never_brings_an_earlier_call(policy, shorter, longer, jitter):
    """D-018, C-06: and one that was refused for its length is refused longer, too."""
    shorter, longer = sorted((shorter, longer))

    dues = [
        schedule(
            policy,
            attempts=1,
            first_claim_ms=T0,
            admitted_ms=T0,
            now_ms=T0,
            jitter=jitter,
            retry_after=(str(wish),),
        )
        for wish in (shorter, longer)
    ]

    match dues:
        case [Retry(due_ms=early), Retry(due_ms=late)]:
            assert early <= late
        case [GiveUp(), _]:
            assert isinstance(dues[1], GiveUp)


@given(policy=policies(), hints=st.lists(HINTS, min_size=1, max_size=5), jitter=SHARES)
def test_the_calls_of_one_budget_are_finite(policy, hints, jitter):
    """O-001, O-016, C-06: at most `max_attempts`, all started within the elapsed limit."""
    starts = [T0]
    for attempts in range(1, policy.max_attempts + 2):
        when = schedule(
            policy,
            attempts=attempts,
            first_claim_ms=T0,
            admitted_ms=T0,
            now_ms=starts[-1],
            jitter=jitter,
            retry_after=hints[attempts % len(hints)],
        )
        if isinstance(when, GiveUp):
            break
        starts.append(when.due_ms)

    assert len(starts) <= policy.max_attempts
    assert starts == sorted(starts)
    assert starts[-1] - T0 <= policy.max_elapsed_ms
