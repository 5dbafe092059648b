"""Keys that differ in any way draw different numbers."""

from __future__ import annotations

from ninfer_tools.synthetic.seeds import name_key, seed_sequence


def test_trailing_zeros_of_a_key_matter():
    states = [seed_sequence(key).generate_state(2).tolist() for key in ((1,), (1, 0), (1, 0, 0))]
    assert states[0] != states[1] != states[2] != states[0]


def test_neighbouring_numbers_do_not_run_together():
    first, second = seed_sequence((1, 23)), seed_sequence((12, 3))
    assert first.generate_state(2).tolist() != second.generate_state(2).tolist()


def test_name_key_keeps_the_seed_and_hashes_the_name():
    # First eight bytes of SHA-256("abc"), little-endian.
    assert name_key(3, "abc") == (3, 0xEACF018FBF1678BA)
