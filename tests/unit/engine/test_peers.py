"""What the processes that serve one queue know of each other, from the log in which they publish their interest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.engine.handover.peers import (
    NEXT,
    TARGETED,
    WINDOWS,
    PeerEvent,
    Peers,
    PeerState,
    read_interest,
    write_interest,
)
from kjms.mapping.internal import MalformedError


def interest(engine: str, **values: Any) -> dict[str, Any]:
    return {"engine": engine, "lease": 10, "partition": -1, "partitions": [], **values}


def test_an_interest_is_read_as_it_was_written() -> None:
    """What was written comes back, with its engine."""
    assert read_interest(write_interest("they", {"credit": 3})) == {"engine": "they", "credit": 3}


@pytest.mark.parametrize(
    "data",
    [
        *(
            None,
            b"",
            b"{",
            b"[]",
            b'{"version":2,"engine":"x"}',
            b'{"version":1}',
            b'{"version":1,"engine":7}',
            b"\xff",
        ),
        *(b"[" * 2_000, b'{"version":1,"engine":"x","selectors":' + b"[" * 2_000, b'{"version":1,"engine":"\\udc00"}'),
    ],
)
def test_a_record_that_is_no_interest_is_refused(data: bytes | None) -> None:
    """Records of others, and of later versions, say nothing."""
    with pytest.raises(MalformedError):
        read_interest(data)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("lease", 10**400),
        ("lease", -1),
        ("lease", 86_400),
        ("lease", 1.5),
        ("lease", True),
        ("partition", -2),
        ("partition", 1 << 31),
        ("partitions", [0, -1]),
        ("partitions", 3),
        ("position", 1 << 63),
        ("credit", "8"),
        ("selectors", [[]]),
        ("selectors", "TRUE"),
        ("added", [7]),
        ("removed", [{}]),
        ("idle", 1),
        ("published_at", -5),
    ],
)
def test_an_interest_with_an_impossible_member_is_refused(member: str, value: Any) -> None:
    """No member is taken for something else, and the error names the one that is wrong."""
    with pytest.raises(MalformedError, match=f"its member '{member}' is not |a number of 401 digits"):
        read_interest(write_interest("they", {"credit": 3, member: value}))


def test_all_agree_on_the_next_holder_of_a_partition() -> None:
    """The next holder is the first that claimed the partition in the log, also where the last holder expires later."""
    soon, late = Peers("soon"), Peers("late")
    log = [interest("gone", partitions=[1]), interest("soon", partitions=[1]), interest("late", partitions=[1])]
    soon.apply(log[0], 0.0)
    late.apply(log[0], 3.0)  # it began to read later
    soon.expire(11.0)
    for each in log[1:2]:
        soon.apply(each, 11.0)
        late.apply(each, 11.0)
    late.expire(14.0)
    assert late.free(2) == [0]
    for peers in (soon, late):
        peers.apply(log[2], 14.0)
        assert peers.holder(1) == "soon"
    assert (soon.own, late.own) == ({1}, set())


def test_the_first_claim_to_a_partition_counts() -> None:
    """A partition belongs to the first claim, until it is withdrawn, its process leaves, or its lease is over."""
    peers = Peers("we")
    first, _ = peers.apply(interest("first", partition=1, partitions=[1]), 0.0)
    second, _ = peers.apply(interest("second", partition=1, partitions=[1, 2]), 1.0)
    assert (first.transfer_partition, second.transfer_partition, peers.held_by(second)) == (1, -1, {2})
    peers.apply(interest("first"), 2.0)
    peers.apply(interest("second", partition=1, partitions=[1, 2]), 3.0)
    assert second.transfer_partition == 1
    peers.apply({"engine": "second", "leaving": True}, 4.0)
    assert peers.free(4) == [0, 1, 2, 3]
    peers.apply(interest("third", partition=3, partitions=[3]), 5.0)
    peers.expire(15.0)
    assert peers.holder(3) == "third"
    peers.expire(15.1)
    assert peers.holder(3) is None


def test_our_own_claims_count_and_we_are_no_peer() -> None:
    """This process's own interest is in the log, too."""
    peers = Peers("we")
    peers.apply(interest("we", partition=0, partitions=[0]), 0.0)
    peers.apply(interest("they", partition=0, partitions=[0]), 0.0)
    assert peers.holder(0) == "we"
    assert [peer.engine for peer in peers] == ["they"]


def test_selectors_come_and_go() -> None:
    """Wants are complete, or change what was there; those that cannot be read are left out."""
    peers = Peers("we")
    box = {"partition": 0, "partitions": [0]}
    peer, new = peers.apply(interest("they", **box, selectors=[None, "a = 1", "nonsense ("]), 0.0)
    assert new == [None, "a = 1"]
    _, new = peers.apply(interest("they", **box, added=["b = 2", "a = 1"], removed=[None]), 0.0)
    assert new == ["b = 2"]
    assert set(peer.wants) == {"a = 1", "b = 2"}
    _, new = peers.apply(interest("they", **box, selectors=["b = 2"]), 0.0)
    assert (new, set(peer.wants)) == ([], {"b = 2"})


def test_with_a_partition_all_is_wanted_anew() -> None:
    """What a peer wanted while it had no partition is offered when it has one."""
    peers = Peers("we")
    peers.apply(interest("first", partition=1, partitions=[1]), 0.0)
    peer, _ = peers.apply(interest("they", partition=1, partitions=[1], selectors=["a = 1"]), 0.0)
    assert peer.transfer_partition == -1
    _, new = peers.apply(interest("they", partition=2, partitions=[2]), 1.0)
    assert (peer.transfer_partition, new) == (2, ["a = 1"])


def test_a_peer_that_was_forgotten_is_not_known() -> None:
    """A peer that comes back after its lease has to publish again what is wanted there."""
    peers = Peers("we")
    peer, _ = peers.apply(interest("they", partition=1, partitions=[1], selectors=["a = 1"]), 0.0)
    assert peer.is_known
    peers.expire(11.0)
    again, _ = peers.apply(interest("they", partition=1, partitions=[1], added=["b = 1"]), 12.0)
    assert not again.is_known
    peers.apply(interest("they", partition=1, partitions=[1], selectors=["b = 1"]), 13.0)
    assert again.is_known


def test_what_we_gave_up_is_ours_when_the_log_says_so_again() -> None:
    """A process that was silent for long gives up its partitions: others may have claimed them meanwhile."""
    peers = Peers("we")
    peers.apply(interest("we", partition=1, partitions=[1, 2]), 0.0)
    assert peers.own == {1, 2}
    peers.give_up()
    assert peers.own == frozenset()
    peers.apply(interest("they", partition=1, partitions=[1]), 1.0)
    peers.apply(interest("we", partition=1, partitions=[1, 2]), 2.0)
    assert peers.own == {2}
    peers.give_up()
    peers.give_up()
    assert peers.free(3) == [0, 2]


def test_room_is_what_was_given_less_what_is_on_its_way() -> None:
    """A peer gets as many messages as its window allows; the window opens again when it reports what it has read."""
    peer, _ = Peers("we").apply(interest("they", partition=0, partitions=[0], credit=4), 0.0)
    for _ in range(3):
        peer.sent()
    assert (peer.room(is_targeted=False), peer.room(is_targeted=True)) == (1, TARGETED - 3)
    for offset in (10, 11):
        peer.written((0, offset))
    peer.written(None)
    assert peer.room(is_targeted=False) == 2
    peer.apply(
        interest("they", credit=4, position=11, undispatched=1)
    )  # it has read one of them, and not handed it out
    assert peer.room(is_targeted=False) == 2
    peer.apply(interest("they", credit=4, position=12, undispatched=0))
    assert peer.room(is_targeted=False) == 4


def test_a_peer_that_requests_much_gets_batches_in_advance() -> None:
    """What only a quick peer wants goes to it in several batches at a time, as large as its requests are."""
    peer, _ = Peers("we").apply(interest("they", partition=0, partitions=[0], credit=1_000), 0.0)
    assert (peer.room(is_targeted=False), peer.room(is_targeted=True)) == (1_000, 1_000 * WINDOWS)
    for _ in range(1_500):
        peer.sent()
    assert (peer.room(is_targeted=False), peer.room(is_targeted=True)) == (0, 1_000 * WINDOWS - 1_500)
    peer.apply(interest("they", credit=2))
    assert peer.room(is_targeted=True) == 0


def test_a_slow_peer_gets_nothing_in_advance() -> None:
    """A peer whose consumers take long gets what it has room for, also of what only it wants."""
    peer, _ = Peers("we").apply(interest("they", partition=0, partitions=[0], credit=2, fast=False), 0.0)
    assert (peer.free, peer.room(is_targeted=False), peer.room(is_targeted=True)) == (2, 2, 2)
    peer.sent()
    assert (peer.free, peer.room(is_targeted=True)) == (1, 1)
    peer.apply(interest("they", credit=0, fast=True))
    assert (peer.free, peer.room(is_targeted=True)) == (0, TARGETED - 1)


def test_another_partition_is_empty() -> None:
    """What was written to a partition that a peer has left is not on its way to it any more."""
    peers = Peers("we")
    peer, _ = peers.apply(interest("they", partition=0, partitions=[0], credit=4), 0.0)
    peer.sent()
    peer.sent()
    peer.written((0, 100))
    assert peer.room(is_targeted=False) == 2
    peers.apply(interest("they", partition=1, partitions=[1], credit=4), 1.0)
    assert peer.room(is_targeted=False) == 3
    peer.written((0, 101))
    assert peer.room(is_targeted=False) == 4


def test_a_silent_or_idle_peer_is_asked_first() -> None:
    """A peer that published nothing for a while, or need not for long, gets nothing, and is to be asked."""
    peers = Peers("we")
    peer, _ = peers.apply(interest("they", partition=0, partitions=[0], credit=4, selectors=[None]), 0.0)
    assert peer.room(is_targeted=False) == 4
    peers.expire(3.0, 4.0)
    assert peer.room(is_targeted=False) == 4
    peers.expire(5.0, 4.0)
    assert peer.state is PeerState.SUSPECT
    assert peer.room(is_targeted=False) == 0
    assert peer.state is PeerState.REQUIRED
    peers.apply(interest("they", partition=0, partitions=[0], credit=4), 6.0)
    assert peer.room(is_targeted=True) == TARGETED
    peers.apply(interest("they", partition=0, partitions=[0], credit=4, idle=True), 7.0)
    assert peer.room(is_targeted=True) == 0


@pytest.mark.parametrize("event", PeerEvent)
@pytest.mark.parametrize("state", PeerState)
def test_the_life_of_a_peer(state: PeerState, event: PeerEvent) -> None:
    """Only an active peer gets messages without being asked, and a peer that is gone stays so."""
    after = NEXT.get((state, event))
    if state is PeerState.GONE:
        assert after is None
    elif event is PeerEvent.INTEREST:
        assert after is PeerState.ACTIVE
    elif event is PeerEvent.LEFT:
        assert after is PeerState.GONE
    elif after is PeerState.ACTIVE:
        assert state is PeerState.ACTIVE
        assert event in {PeerEvent.MESSAGE, PeerEvent.ASKED}
    elif after is PeerState.REQUIRED:
        assert event is PeerEvent.MESSAGE or state is PeerState.REQUIRED
    else:
        assert after is PeerState.SUSPECT


ENGINES = st.sampled_from(["we", "a", "b", "c"])
INTERESTS = st.one_of(
    st.fixed_dictionaries(
        {"engine": ENGINES, "lease": st.integers(0, 5)},
        optional={
            "partition": st.integers(-1, 3),
            "partitions": st.lists(st.integers(0, 3)),
            "selectors": st.lists(st.none()),
        },
    ),
    st.fixed_dictionaries({"engine": ENGINES, "leaving": st.just(True)}),
)


@given(st.lists(st.tuples(INTERESTS, st.integers(0, 3)), max_size=40))
def test_a_partition_has_one_holder(steps: list[tuple[dict[str, Any], int]]) -> None:
    """Whatever is published, and whenever: no two peers hold the same partition, and each holder knows it."""
    peers = Peers("we")
    now = 0.0
    for said, passed in steps:
        now += passed
        peers.expire(now)
        peers.apply(said, now)
        everybody = peers.members
        held = [box for peer in everybody for box in peers.held_by(peer)]
        assert len(held) == len(set(held))
        assert sorted(held) == [box for box in range(4) if peers.holder(box) is not None]
        assert not set(held) & set(peers.free(4))
        assert all(peer.transfer_partition in {-1, *peer.claimed} for peer in everybody)
