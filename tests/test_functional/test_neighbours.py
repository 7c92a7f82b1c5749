import math

import torch

from mmrank.functional import nearest_neighbours, neighbours


def test_the_grouped_search_finds_what_a_full_search_finds():
    x = torch.randn(3000, 6)
    x[100:200] = x[:100]
    similarity = torch.nn.functional.normalize(x)
    similarity = similarity @ similarity.T
    similarity.fill_diagonal_(-math.inf)
    values, indices = nearest_neighbours(x, k=4, chunk_size=700)
    assert torch.allclose(values, similarity.topk(4).values, atol=1e-6)
    assert torch.allclose(similarity.gather(1, indices), values, atol=1e-6)
    assert nearest_neighbours(x[:2], k=9)[1].shape == (2, 1)


def test_a_block_of_the_largest_benchmark_is_bounded_in_memory():
    for depth in (12, 60502):
        rows = neighbours.queries_at_once(60502, depth, 4)
        # similarities, and neighbours as values and as indices
        assert 1 <= rows * (60502 * 4 + depth * 12) <= 2**28
