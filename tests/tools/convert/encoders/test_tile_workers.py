"""Laws of tile workers."""

from __future__ import annotations

import pytest
import torch

from ninfer_tools.convert.encoders.tile_workers import Scratch, TileWorkers


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 96, 40_000, 1_000_000])
def test_tiles_cover_all_values_in_order(threads, count):
    workers = TileWorkers(threads=threads)
    tiles = workers.run(count, 32, lambda tile, _: (tile.start, tile.stop), tile=70_000)
    assert [start for start, _ in tiles] == [0, *(stop for _, stop in tiles[:-1])]
    assert tiles[-1][1] == count
    assert all((stop - start) % 32 == 0 for start, stop in tiles[:-1])


def test_a_unit_larger_than_a_tile_is_a_tile():
    tiles = TileWorkers(threads=2).run(300_000, 100_000, lambda tile, _: tile.stop, tile=1000)
    assert tiles == [100_000, 200_000, 300_000]


def test_errors_of_a_tile_reach_the_caller():
    def fail(tile: slice, scratch: Scratch) -> None:
        raise ValueError(tile.start)

    with pytest.raises(ValueError):
        TileWorkers(threads=2).run(1_000_000, 1, fail)


def test_workers_run_torch_alone_and_leave_its_setting_to_the_caller():
    kept = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        counts = TileWorkers(threads=2).run(1_000_000, 1, lambda *_: torch.get_num_threads())
        assert set(counts) == {1}
        assert torch.get_num_threads() == 2
        with TileWorkers(threads=2).quiet_torch():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(kept)


def test_scratch_reuses_memory_by_name_and_type():
    scratch = Scratch(torch.device("cpu"))
    large = scratch.take("a", (4, 5), torch.float32)
    small = scratch.take("a", (3,), torch.float32)
    assert small.data_ptr() == large.data_ptr() and small.shape == (3,)
    assert scratch.take("b", (3,), torch.float32).data_ptr() != large.data_ptr()
    assert scratch.take("a", (3,), torch.int32).data_ptr() != large.data_ptr()
