"""Laws of counting drafts: a run and the recorded one are counted alike."""

from __future__ import annotations

import pytest

from ninfer_tools.demo.acceptance import Acceptance, Reply, replay
from ninfer_tools.demo.evaluation import (
    describe_sets,
    read_acceptance,
    read_chat,
    read_code,
    read_scores,
)
from ninfer_tools.demo.manifest import read_manifest

END = 9


def test_recorded_rounds_start_after_the_tokens_of_the_last():
    """Reach of a reply of eight tokens; a round adds one token more than drafts stood."""
    assert list(replay("30021010", 3)) == [3, 1, 1]
    assert list(replay("30021010", 1)) == [1, 0, 1, 0, 1]
    assert list(replay("5", 3)) == []


def test_shares_count_rounds_in_which_more_drafts_stood():
    acceptance = Acceptance(3)
    for accepted in (3, 1, 0, 2):
        acceptance.add(accepted)
    assert acceptance.shares == [0.75, 0.5, 0.25]


def test_the_first_round_of_a_reply_has_no_drafts():
    reply = Reply(8, (END,))
    assert not reply.extend([1])
    assert not reply.extend([2, 3, 4])
    assert reply.tokens == [1, 2, 3, 4] and reply.accepted == [2]


@pytest.mark.parametrize(
    ("new", "kept", "accepted"),
    [
        ([2, END, 5, 6], [2, END], 2),  # the end was a draft, what follows is past it
        ([2, END], [2, END], 1),  # the end was drawn after the one draft that stood
        ([END], [END], 0),
        ([2, 3, 4, 5], [2, 3], 2),  # no room for more
        ([2, 3], [2, 3], 1),
    ],
)
def test_drafts_past_the_end_do_not_count(new, kept, accepted):
    reply = Reply(3, (END,))
    reply.extend([1])
    assert reply.extend(new)
    assert reply.tokens == [1, *kept] and reply.accepted == [accepted]


def test_the_record_is_of_the_shipped_items_and_checkpoint():
    record, sets = read_acceptance(), describe_sets()["sets"]
    assert record["checkpoint"] == read_manifest().digest
    for name, items in (("chat", read_chat()), ("code", read_code())):
        assert record["sets"][name] == sets[name]["sha256"]
        assert record[name].keys() <= {item.id for item in items}
        for reach in record[name].values():
            # The last token has nothing after it, the one before it the last alone.
            assert reach[-1] == "0"
            assert all(int(digit) <= len(reach) - 1 - i for i, digit in enumerate(reach))


def test_the_record_agrees_with_that_of_the_graphics_processor():
    """`scores.json` has the mean of drafts that stood in a round, on the same items."""
    record, scores = read_acceptance(), read_scores()["runs"]["float32"]
    for name in ("chat", "code"):
        theirs = scores[name]["mtp_acceptance"]
        assert len(record[name]) == theirs["replies"]
        for drafts in (3, 7):
            rounds = [n for reach in record[name].values() for n in replay(reach, drafts)]
            mean = theirs[f"k={drafts}"]["accepted_per_round"]
            assert sum(rounds) / len(rounds) == pytest.approx(mean, abs=0.01 * drafts)
