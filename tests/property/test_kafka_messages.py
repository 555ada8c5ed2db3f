"""Messages that are written and read quickly are aiokafka's own, to the byte and the attribute."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import pytest
from aiokafka.protocol.api import RequestHeader_v1, ResponseHeader_v0
from aiokafka.protocol.fetch import (
    FetchRequest,
    FetchRequest_v10,
    FetchRequest_v11,
    FetchResponse_v10,
    FetchResponse_v11,
)
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v7, ProduceResponse_v7
from aiokafka.protocol.struct import Struct
from hypothesis import given
from hypothesis import strategies as st

from streams.edge.kafka_messages import speak_quickly

QUICK = (
    RequestHeader_v1,
    ResponseHeader_v0,
    FetchRequest_v11,
    FetchResponse_v11,
    ProduceRequest_v7,
    ProduceResponse_v7,
)
ALL_VERSIONS = {0: (0, 99), 1: (0, 99)}
"""Of produces and fetches: a broker that speaks every one."""

byte, short, number, long = (
    st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)
)
names = st.text(max_size=20)
records = st.binary(max_size=50)


def some(*of: st.SearchStrategy[object]) -> st.SearchStrategy[list[tuple[object, ...]]]:
    return st.lists(st.tuples(*of), max_size=3)


fetches = st.builds(
    FetchRequest, number, number, number, byte, some(names, some(number, long, number)), names
)
produces = st.builds(
    ProduceRequest,
    st.none() | names,
    short,
    number,
    some(names, some(number, records | records.map(bytearray))),
)
fetched = st.builds(
    FetchResponse_v11,
    number,
    short,
    number,
    some(
        names,
        some(
            number,
            st.just(0) | short,
            long,
            long,
            long,
            st.none() | some(long, long),
            st.just(-1) | number,
            st.just(b"") | st.none() | records,
        ),
    ),
)
produced = st.builds(ProduceResponse_v7, some(names, some(number, short, long, long, long)), number)
answers = fetched | produced | st.builds(ResponseHeader_v0, number)


@pytest.fixture(autouse=True, scope="module")
def quickly() -> Iterator[None]:
    """What is aiokafka's own way is put back."""
    own = {message: dict(vars(message)) for message in QUICK}
    speak_quickly()
    yield
    for message, was in own.items():
        for name in vars(message).keys() - was.keys():
            delattr(message, name)
    RequestHeader_v1.__init__ = own[RequestHeader_v1]["__init__"]


@given(asked=fetches | produces, correlation_id=number, client_id=names | st.none())
def test_a_request_is_the_same_to_the_byte(asked, correlation_id, client_id):
    """A broker that cannot read a request closes the connection, and the worker ends."""
    request = asked.prepare(ALL_VERSIONS)
    head = request.build_request_header(correlation_id, client_id)

    assert type(request) in QUICK
    assert Struct.encode(request) == request.encode()
    assert (request.API_KEY, request.API_VERSION, correlation_id, client_id) == tuple(
        vars(head).values()
    )
    assert Struct.encode(head) == head.encode()


@given(answer=answers, before=st.binary(max_size=4))
def test_an_answer_says_the_same(answer, before):
    """Behind its header, as aiokafka hands it over, and with all that follows from an empty list."""
    raw = Struct.encode(answer)
    rest = BytesIO(before + raw)
    rest.seek(len(before))

    read = type(answer).decode(rest)

    assert type(answer) is type(read)
    assert telling(Struct.decode.__func__(type(answer), BytesIO(raw))) == vars(read)


def telling(answer: Struct) -> dict[str, object]:
    """Without the partitions of a fetch of which there is nothing new."""
    told = dict(vars(answer))
    if isinstance(answer, FetchResponse_v11):
        told["topics"] = [
            (topic, [part for part in parts if not is_quiet(*part)])
            for topic, parts in told["topics"]
        ]
    return told


def is_quiet(_partition, code, _high, _stable, _start, aborted, replica, records) -> bool:
    return (code, aborted or None, records) == (0, None, b"") and replica < 0


@given(answer=answers, data=st.data())
def test_an_answer_that_is_cut_off_is_an_error(answer, data):
    """aiokafka closes a connection whose answer it cannot read; half of one must not pass for all."""
    raw = Struct.encode(answer)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]

    with pytest.raises(ValueError, match=r"ends before a whole|can't decode"):
        type(answer).decode(BytesIO(cut))


def test_other_versions_are_aiokafkas_own():
    """Their fields are others."""
    assert "encode" not in vars(FetchRequest_v10)
    assert "decode" not in vars(FetchResponse_v10)
