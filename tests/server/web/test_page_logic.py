"""What the page's scripts make of a stream and of numbers."""

from __future__ import annotations

import itertools
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# The engine is the same for all examples and keeps nothing of them.
FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
READ = "((reader) => pieces.flatMap((piece) => reader.push(piece)))(new EventReader())"
GROW = "((answer) => (chunks.forEach((chunk) => answer.add(chunk)), answer))(new Answer())"


def chunk(**delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def call_piece(arguments, index=0, **head):
    name = {"name": head["name"]} if head else {}
    found = {"index": index, "function": {**name, "arguments": arguments}}
    return {**found, "id": head["id"], "type": "function"} if head else found


@FEW
@given(texts=st.lists(st.text(max_size=12), max_size=5), cuts=st.lists(st.integers(0, 400)))
def test_events_do_not_depend_on_where_the_stream_is_cut(evaluate, texts, cuts):
    wanted = [json.dumps({"content": text}, ensure_ascii=False) for text in texts] + ["[DONE]"]
    # Only halves of pairs cannot be handed over as JSON; a text decoder never gives them.
    stream = "".join(f"data: {data}\n\n: keep-alive\n\n" for data in wanted)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert evaluate(READ, pieces=pieces) == wanted


def test_only_data_of_whole_events_counts(evaluate):
    pieces = [": hello\r\n\r\nevent: x\r\nid: 1\r\ndata:a\r", "\ndata: b\r\n\r\n", "data: half\n"]
    assert evaluate(READ, pieces=pieces) == ["a\nb"]


def test_an_answer_is_the_sum_of_its_chunks(evaluate):
    chunks = [
        chunk(role="assistant", content=""), chunk(reasoning_content="I "),
        chunk(reasoning_content="think."), chunk(content="Yes, "), chunk(content="so."),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "timings": {"a": 1}},
        {"choices": [], "usage": {"total_tokens": 9}},
    ]  # fmt: skip
    found = evaluate(GROW, chunks=chunks)
    assert (found["reasoning"], found["content"]) == ("I think.", "Yes, so.")
    assert (found["finish"], found["timings"]) == ("stop", {"a": 1})
    message = evaluate(f"{GROW}.message()", chunks=chunks)
    assert message == {
        "role": "assistant", "content": "Yes, so.", "reasoning_content": "I think.",
    }  # fmt: skip


def test_calls_grow_side_by_side_and_go_into_the_next_request(evaluate):
    pieces = [
        [call_piece("", id="c0", name="look")], [call_piece('{"at"')], [call_piece(':"x"}')],
        [call_piece("{}", index=1, id="c1", name="wait")],
    ]  # fmt: skip
    chunks = [chunk(tool_calls=piece) for piece in pieces]
    message = evaluate(f"{GROW}.message()", chunks=chunks)
    calls = [(c["id"], c["type"], c["function"]) for c in message["tool_calls"]]
    assert calls == [
        ("c0", "function", {"name": "look", "arguments": '{"at":"x"}'}),
        ("c1", "function", {"name": "wait", "arguments": "{}"}),
    ]


def test_a_call_that_was_cut_is_not_sent_back(evaluate):
    chunks = [chunk(tool_calls=[call_piece('{"at": "x', id="c0", name="look")])]
    assert "tool_calls" not in evaluate(f"{GROW}.message()", chunks=chunks)


def test_what_the_server_reports_in_a_stream_is_an_error(evaluate):
    caught = "(() => { try { new Answer().add(chunk) } catch (error) { return error.message } })()"
    assert evaluate(caught, chunk={"error": {"message": "the engine has failed"}}) == (
        "the engine has failed"
    )


def test_arguments_are_laid_out_when_they_are_whole(evaluate):
    assert evaluate("layArguments(text)", text='{"a":[1,"<b>"]}') == (
        '{\n  "a": [\n    1,\n    "<b>"\n  ]\n}'
    )
    assert evaluate("layArguments(text)", text='{"a":') == '{"a":'


def test_metrics_without_labels_are_read(evaluate):
    text = '# HELP a b\nninfer:lanes 2.0\nx{le="1"} 3\nllamacpp:prompt_tokens_total 1.5e3\n'
    found = evaluate("[...readMetrics(text)]", text=text)
    assert found == [["ninfer:lanes", 2], ["llamacpp:prompt_tokens_total", 1500]]


def lane(id, tokens=None):
    return {"id": id, "is_processing": tokens is not None, "predicted_tokens": tokens}


def test_the_rate_counts_lanes_that_went_on(evaluate):
    before = {"time": 10, "slots": [lane(0, 100), lane(1, 50), lane(2), lane(3, 7)]}
    # Lane 1 has another answer by now, lane 2 a new one, lane 3 is done.
    now = {"time": 12, "slots": [lane(0, 160), lane(1, 3), lane(2, 9), lane(3)]}
    assert evaluate("measureRate(before, now)", before=before, now=now) == 30
    assert evaluate("measureRate(before, now)", before=now, now=now) is None


def test_figures_are_written_for_people(evaluate):
    assert evaluate("[showBytes(n), showBytes(0)]", n=11312128) == ["10.8 MiB", "0 B"]
    assert evaluate("[showRate(71.44), showRate(812.6), showRate(null)]") == [
        "71.4 tok/s", "813 tok/s", "-",
    ]  # fmt: skip
    timings = {
        "cache_n": 1000, "prompt_n": 500, "prompt_ms": 250, "predicted_n": 42,
        "predicted_per_second": 81.25, "draft_n": 40, "draft_n_accepted": 30,
    }  # fmt: skip
    assert evaluate("describeTimings(timings)", timings=timings) == (
        "42 tokens · 81.3 tok/s · prompt 1,500 (1,000 reused) · first token after 0.25 s · "
        "drafts accepted 75% of 40"
    )


def test_a_lane_is_described_by_what_it_does(evaluate):
    reading = {"is_processing": True, "processed_tokens": 1024, "prompt_tokens": 5000}
    writing = {"is_processing": True, "predicted_tokens": 12, "max_tokens": 2000}
    found = evaluate("slots.map(describeLane)", slots=[lane(0), reading, writing])
    assert found == ["idle", "prompt 1,024 of 5,000", "answer 12 of at most 2,000"]
