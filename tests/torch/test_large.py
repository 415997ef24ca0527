"""All blocks together have more elements than the library counts in one call, 2^31 - 1, while each block has fewer.
The long form (HCCL_TEST_LARGE=1) moves such blocks; the short form moves 2^31 bytes less."""

import os

import pytest
import torch
import torch.distributed as dist
from conftest import on_ranks

RANKS = 4
MANY = 2**31 if "HCCL_TEST_LARGE" in os.environ else 0  # bytes of all blocks together
PART = MANY // RANKS + 4


@pytest.mark.parametrize("form", ["all_to_all", "all_to_all_single"])
def test_blocks_are_counted_in_elements_however_many_there_are(form):
    # The error names the counts. Nothing is moved, so the memory is never touched.
    part = 2**30 + 8

    def work(rank):
        whole = torch.empty(2 * part, dtype=torch.uint8)
        into = torch.empty(10, dtype=torch.uint8)
        with pytest.raises(dist.DistBackendError, match=f"sends to itself: 5 and {part}"):
            if form == "all_to_all":
                dist.all_to_all(list(into.split(5)), list(whole.split(part)))
            else:
                dist.all_to_all_single(into, whole, [5, 5], [part, part])
        dist.destroy_process_group()

    on_ranks(2, work)


def marked(value):
    """Returns a block of zeros, which takes no memory until it is written, and marks its ends."""
    part = torch.zeros(PART, dtype=torch.uint8)
    mark(part, value)
    return part


def mark(part, value):
    part[0] = part[-1] = value


def value_of(part):
    assert part.count_nonzero() == 2 and part[0] == part[-1]
    return part[0].item()


def test_gather():
    def work(rank):
        parts = list(torch.zeros(RANKS * PART, dtype=torch.uint8).split(PART))
        dist.gather(marked(10 + rank), parts if rank == 0 else None)
        return [value_of(part) for part in parts] if rank == 0 else None

    assert on_ranks(RANKS, work)[0] == [10, 11, 12, 13]


@pytest.mark.parametrize("form", ["scatter", "all_to_all", "all_to_all_single"])
def test_from_one_rank(form):
    def work(rank):
        whole = torch.zeros(RANKS * PART if rank == 0 else 0, dtype=torch.uint8)
        parts = list(whole.split(PART)) if rank == 0 else RANKS * [whole]
        for to, part in enumerate(parts if rank == 0 else []):
            mark(part, 10 + to)
        into = torch.zeros(PART, dtype=torch.uint8)
        sizes = [PART, 0, 0, 0]
        if form == "scatter":
            dist.scatter(into, parts if rank == 0 else None)
        elif form == "all_to_all":
            dist.all_to_all(list(into.split(sizes)), parts)
        else:
            dist.all_to_all_single(into, whole, sizes, [part.numel() for part in parts])
        return value_of(into)

    assert on_ranks(RANKS, work) == [10, 11, 12, 13]


def test_equal_parts():
    part = MANY // 2 + 4  # no whole number of doubles

    def work(rank):
        whole = torch.zeros(2 * part, dtype=torch.uint8)
        for to, each in enumerate(whole.split(part)):
            each[0] = each[-1] = 10 * rank + to + 1
        into = torch.zeros(2 * part, dtype=torch.uint8)
        dist.all_to_all_single(into, whole)
        return [(each[0].item(), each[-1].item()) for each in into.split(part)]

    assert on_ranks(2, work) == [[(1, 1), (11, 11)], [(2, 2), (12, 12)]]
