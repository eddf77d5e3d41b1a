"""What the processes that serve one queue know of each other, from the log in which they speak."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.engine.handover.peers import TARGETED, Peers, read_notice, written_notice


def notice(engine: str, **values: Any) -> dict[str, Any]:
    return {"e": engine, "lease": 10, "box": -1, "boxes": [], **values}


def test_a_notice_is_read_as_it_was_written() -> None:
    """What was written comes back, with who said it."""
    assert read_notice(written_notice("they", {"room": 3})) == {"v": 1, "e": "they", "room": 3}


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b'{"v":2,"e":"x"}', b'{"v":1}', b'{"v":1,"e":7}', b"\xff"])
def test_what_is_no_notice_is_passed_over(data: bytes | None) -> None:
    """Records of others, and of later versions, say nothing."""
    assert read_notice(data) is None


def test_all_agree_on_the_next_holder_of_a_box() -> None:
    """The next holder is the first that claimed the box in the log, also where the last holder expires later."""
    soon, late = Peers("soon"), Peers("late")
    log = [notice("gone", boxes=[1]), notice("soon", boxes=[1]), notice("late", boxes=[1])]
    soon.apply(log[0], 0.0)
    late.apply(log[0], 3.0)  # it began to read later
    soon.expire(11.0)
    for each in log[1:2]:
        soon.apply(each, 11.0)
        late.apply(each, 11.0)
    late.expire(14.0)
    assert late.free(2) == [0]
    for partners in (soon, late):
        partners.apply(log[2], 14.0)
        assert partners.holder(1) == "soon"
    assert (soon.own, late.own) == ({1}, set())


def test_the_first_claim_to_a_box_counts() -> None:
    """A box is whose claim came first, until he gives it up, says goodbye, or is not heard in time."""
    partners = Peers("we")
    first, _ = partners.apply(notice("first", box=1, boxes=[1]), 0.0)
    second, _ = partners.apply(notice("second", box=1, boxes=[1, 2]), 1.0)
    assert (first.box, second.box, partners.boxes(second)) == (1, -1, {2})
    partners.apply(notice("first"), 2.0)
    partners.apply(notice("second", box=1, boxes=[1, 2]), 3.0)
    assert second.box == 1
    partners.apply({"e": "second", "bye": True}, 4.0)
    assert partners.free(4) == [0, 1, 2, 3]
    partners.apply(notice("third", box=3, boxes=[3]), 5.0)
    partners.expire(15.0)
    assert partners.holder(3) == "third"
    partners.expire(15.1)
    assert partners.holder(3) is None


def test_our_own_claims_count_and_we_are_no_partner() -> None:
    """What we said ourselves is in the log, too."""
    partners = Peers("we")
    partners.apply(notice("we", box=0, boxes=[0]), 0.0)
    partners.apply(notice("they", box=0, boxes=[0]), 0.0)
    assert partners.holder(0) == "we"
    assert [partner.engine for partner in partners] == ["they"]


def test_selectors_come_and_go() -> None:
    """Wants are complete, or change what was there; those that cannot be read are left out."""
    partners = Peers("we")
    box = {"box": 0, "boxes": [0]}
    partner, new = partners.apply(notice("they", **box, wants=[None, "a = 1", "nonsense ("]), 0.0)
    assert new == [None, "a = 1"]
    _, new = partners.apply(notice("they", **box, more=["b = 2", "a = 1"], less=[None]), 0.0)
    assert new == ["b = 2"]
    assert set(partner.wants) == {"a = 1", "b = 2"}
    _, new = partners.apply(notice("they", **box, wants=["b = 2"]), 0.0)
    assert (new, set(partner.wants)) == ([], {"b = 2"})


def test_with_a_box_all_is_wanted_anew() -> None:
    """What somebody wanted while there was no place for it is offered when there is one."""
    partners = Peers("we")
    partners.apply(notice("first", box=1, boxes=[1]), 0.0)
    partner, _ = partners.apply(notice("they", box=1, boxes=[1], wants=["a = 1"]), 0.0)
    assert partner.box == -1
    _, new = partners.apply(notice("they", box=2, boxes=[2]), 1.0)
    assert (partner.box, new) == (2, ["a = 1"])


def test_who_was_forgotten_is_not_known() -> None:
    """Who comes back after having been taken for gone has to say again what is wanted there."""
    partners = Peers("we")
    partner, _ = partners.apply(notice("they", box=1, boxes=[1], wants=["a = 1"]), 0.0)
    assert partner.is_known
    partners.expire(11.0)
    again, _ = partners.apply(notice("they", box=1, boxes=[1], more=["b = 1"]), 12.0)
    assert not again.is_known
    partners.apply(notice("they", box=1, boxes=[1], wants=["b = 1"]), 13.0)
    assert again.is_known


def test_what_we_gave_up_is_ours_when_the_log_says_so_again() -> None:
    """Who was silent for long does not count on its own boxes: somebody else may have claimed them meanwhile."""
    partners = Peers("we")
    partners.apply(notice("we", box=1, boxes=[1, 2]), 0.0)
    assert partners.own == {1, 2}
    partners.give_up()
    assert partners.own == frozenset()
    partners.apply(notice("they", box=1, boxes=[1]), 1.0)
    partners.apply(notice("we", box=1, boxes=[1, 2]), 2.0)
    assert partners.own == {2}
    partners.give_up()
    partners.give_up()
    assert partners.free(3) == [0, 2]


def test_room_is_what_was_given_less_what_is_on_its_way() -> None:
    """A partner gets as many messages as it has room for; those that it has read make room again when it says so."""
    partner, _ = Peers("we").apply(notice("they", box=0, boxes=[0], room=4), 0.0)
    for _ in range(3):
        partner.sent()
    assert (partner.room(is_targeted=False), partner.room(is_targeted=True)) == (1, TARGETED - 3)
    for offset in (10, 11):
        partner.written((0, offset))
    partner.written(None)
    assert partner.room(is_targeted=False) == 2
    partner.apply(notice("they", room=4, read=11, held=1))  # it has read one of them, and not handed it out
    assert partner.room(is_targeted=False) == 2
    partner.apply(notice("they", room=4, read=12, held=0))
    assert partner.room(is_targeted=False) == 4


def test_who_is_slow_gets_nothing_in_advance() -> None:
    """A partner whose consumers take long gets what it has room for, also of what only it wants."""
    partner, _ = Peers("we").apply(notice("they", box=0, boxes=[0], room=2, quick=False), 0.0)
    assert (partner.free, partner.room(is_targeted=False), partner.room(is_targeted=True)) == (2, 2, 2)
    partner.sent()
    assert (partner.free, partner.room(is_targeted=True)) == (1, 1)
    partner.apply(notice("they", room=0, quick=True))
    assert (partner.free, partner.room(is_targeted=True)) == (0, TARGETED - 1)


def test_another_box_is_empty() -> None:
    """What was written to a box that a partner has left is not on its way to it any more."""
    partners = Peers("we")
    partner, _ = partners.apply(notice("they", box=0, boxes=[0], room=4), 0.0)
    partner.sent()
    partner.sent()
    partner.written((0, 100))
    assert partner.room(is_targeted=False) == 2
    partners.apply(notice("they", box=1, boxes=[1], room=4), 1.0)
    assert partner.room(is_targeted=False) == 3
    partner.written((0, 101))
    assert partner.room(is_targeted=False) == 4


def test_who_is_silent_or_idle_is_asked_first() -> None:
    """Who was not heard for a while, or need not be heard for long, gets nothing, and is to be asked."""
    partners = Peers("we")
    partner, _ = partners.apply(notice("they", box=0, boxes=[0], room=4, wants=[None]), 0.0)
    assert partner.room(is_targeted=False) == 4
    partners.expire(3.0, 4.0)
    assert partner.room(is_targeted=False) == 4
    partners.expire(5.0, 4.0)
    assert not partner.is_called
    assert partner.room(is_targeted=False) == 0
    assert partner.is_called
    partners.apply(notice("they", box=0, boxes=[0], room=4), 6.0)
    assert partner.room(is_targeted=True) == TARGETED
    partners.apply(notice("they", box=0, boxes=[0], room=4, idle=True), 7.0)
    assert partner.room(is_targeted=True) == 0


ENGINES = st.sampled_from(["we", "a", "b", "c"])
NOTICES = st.one_of(
    st.fixed_dictionaries(
        {"e": ENGINES, "lease": st.integers(0, 5)},
        optional={"box": st.integers(-1, 3), "boxes": st.lists(st.integers(0, 3)), "wants": st.lists(st.none())},
    ),
    st.fixed_dictionaries({"e": ENGINES, "bye": st.just(True)}),
)


@given(st.lists(st.tuples(NOTICES, st.integers(0, 3)), max_size=40))
def test_a_box_has_one_holder(steps: list[tuple[dict[str, Any], int]]) -> None:
    """Whatever is said, and whenever: no two hold the same box, and whoever holds one knows it."""
    partners = Peers("we")
    now = 0.0
    for said, passed in steps:
        now += passed
        partners.expire(now)
        partners.apply(said, now)
        everybody = partners.members
        held = [box for partner in everybody for box in partners.boxes(partner)]
        assert len(held) == len(set(held))
        assert sorted(held) == [box for box in range(4) if partners.holder(box) is not None]
        assert not set(held) & set(partners.free(4))
        assert all(partner.box in {-1, *partner.claimed} for partner in everybody)
