"""EmbeddingQueue: a ring that is exact, also where it wraps around."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.model import ExponentialMovingAverage, StochasticWeightAverage
from mmengine.runner.checkpoint import get_state_dict, load_state_dict
from torch import nn

from mmrank.state import EmbeddingQueue


def fill(queue: EmbeddingQueue, *labels: int) -> None:
    queue.enqueue(
        torch.tensor(labels, dtype=torch.float32).unsqueeze(1),
        torch.tensor(labels, dtype=torch.int64))


def contents(queue: EmbeddingQueue) -> list[int]:
    embeddings, labels = queue.read()
    assert embeddings[:, 0].tolist() == labels.tolist()
    return labels.tolist()


def test_batches_that_wrap_around_or_exceed_the_capacity_stay_exact():
    queue = EmbeddingQueue(5, 1)
    fill(queue, 11, 12)
    fill(queue, 21, 22)
    fill(queue, 31, 32)
    assert contents(queue) == [12, 21, 22, 31, 32]
    fill(queue, 41)
    assert contents(queue) == [21, 22, 31, 32, 41]
    fill(queue, *range(51, 58))
    assert contents(queue) == [53, 54, 55, 56, 57]


@given(st.integers(1, 6), st.lists(st.integers(0, 9), max_size=12))
@settings(max_examples=40, deadline=None)
def test_equals_a_list_that_is_cut(size, lengths):
    queue, plain, start = EmbeddingQueue(size, 1), [], 0
    for length in lengths:
        batch = list(range(start, start + length))
        start += length
        fill(queue, *batch)
        plain = (plain + batch)[-size:]
        assert contents(queue) == plain
        assert len(queue) == len(plain)


def test_a_last_label_of_zero_does_not_make_a_full_queue_look_empty():
    queue = EmbeddingQueue(3, 1)
    fill(queue, 1, 2, 0)
    assert len(queue) == 3
    assert contents(queue) == [1, 2, 0]


def test_an_unused_slot_has_no_class():
    queue = EmbeddingQueue(3, 1)
    fill(queue, 0)
    assert queue.labels.tolist() == [0, -1, -1]


def test_reset_empties():
    queue = EmbeddingQueue(3, 1)
    fill(queue, 1, 2)
    queue.reset()
    assert contents(queue) == []
    fill(queue, 5)
    assert contents(queue) == [5]


def test_entries_are_copies_without_gradient():
    queue = EmbeddingQueue(3, 1)
    batch = torch.ones(2, 1, requires_grad=True)
    queue.enqueue(batch, torch.tensor([1, 1]))
    with torch.no_grad():
        batch.fill_(7)
    assert not queue.embeddings.requires_grad
    assert queue.read()[0].tolist() == [[1.], [1.]]


@pytest.mark.parametrize('size', [0, -1, 1.5, '7', None])
def test_a_size_that_is_no_count_is_refused(size):
    with pytest.raises(ValueError, match='memory_size'):
        EmbeddingQueue(size, 2)


def model_with_queue(size: int = 3, width: int = 1) -> nn.Module:
    model = nn.Sequential(nn.Linear(1, 1))
    model.add_module('queue', EmbeddingQueue(size, width))
    return model


@pytest.mark.parametrize('save', [nn.Module.state_dict, get_state_dict])
@pytest.mark.parametrize('load', [nn.Module.load_state_dict, load_state_dict])
def test_survives_a_checkpoint_of_torch_and_of_mmengine(save, load, tmp_path):
    model = model_with_queue()
    fill(model.queue, 1, 2, 3, 4)
    torch.save(save(model), tmp_path / 'model.pth')
    other = model_with_queue()
    load(other, torch.load(tmp_path / 'model.pth', weights_only=True))
    fill(other.queue, 5)
    fill(model.queue, 5)
    assert contents(other.queue) == contents(model.queue) == [3, 4, 5]


@pytest.mark.parametrize('size, expected', [(2, [3, 4]), (5, [2, 3, 4])])
def test_a_checkpoint_of_another_memory_size_keeps_the_newest(size, expected):
    model, other = model_with_queue(3), model_with_queue(size)
    fill(model.queue, 1, 2, 3, 4)
    with pytest.warns(UserWarning, match='memory_size=3'):
        load_state_dict(other, model.state_dict())
    assert contents(other.queue) == expected


def test_a_checkpoint_of_another_width_is_refused():
    with pytest.raises(ValueError, match='width 1'):
        model_with_queue(width=2).load_state_dict(
            model_with_queue().state_dict())


def test_a_checkpoint_without_the_queue_is_reported():
    model = model_with_queue()
    state = {k: v for k, v in model.state_dict().items() if 'queue' not in k}
    missing, _ = model.load_state_dict(state, strict=False)
    assert len(missing) == 4


@pytest.mark.parametrize('update_buffers', [False, True])
@pytest.mark.parametrize(
    'average', [ExponentialMovingAverage, StochasticWeightAverage])
def test_an_averaged_model_leaves_the_queue_alone(average, update_buffers):
    model = model_with_queue()
    averaged = average(model, update_buffers=update_buffers)
    for label in (1, 2, 3, 4):
        fill(model.queue, label)
        averaged.update_parameters(model)
    assert contents(model.queue) == [2, 3, 4]


def test_a_deep_copy_is_apart():
    queue = EmbeddingQueue(3, 1)
    fill(queue, 1)
    copy = deepcopy(queue)
    fill(copy, 2)
    assert contents(queue) == [1]
    assert contents(copy) == [1, 2]


def test_half_precision_of_the_model_does_not_round_the_queue():
    queue = EmbeddingQueue(1, 1)
    queue.enqueue(torch.tensor([[1.0001]]), torch.tensor([1]))
    queue.half()
    assert queue.read()[0].item() == pytest.approx(1.0001, abs=1e-7)


@given(st.integers(1, 6), st.lists(st.integers(0, 9), max_size=12))
@settings(max_examples=40, deadline=None)
def test_class_means_are_those_of_what_is_remembered(size, lengths):
    queue = EmbeddingQueue(size, 2, num_classes=3)
    for length in lengths:
        labels = torch.randint(0, 3, (length, ))
        queue.enqueue(torch.randn(length, 2), labels)
        means, members = queue.class_means(torch.tensor([2, 0, 1, 2]))
        embeddings, kept = queue.read()
        for c, mean, n in zip((2, 0, 1, 2), means, members):
            assert n == (kept == c).sum()
            if n:
                torch.testing.assert_close(mean, embeddings[kept == c].mean(0))
            else:
                assert not mean.any()


def test_class_means_do_not_depend_on_the_history():
    """Not even in the last bit: sums that drift apart would make processes,
    or a resumed run, decide differently."""
    one = EmbeddingQueue(50, 8, num_classes=3)
    for _ in range(40):
        one.enqueue(torch.randn(7, 8), torch.randint(0, 3, (7, )))
        one.class_means(torch.arange(3))
    other = EmbeddingQueue(50, 8, num_classes=3)
    other.load_state_dict(one.state_dict())
    for found, expected in zip(other.class_means(torch.arange(3)),
                               one.class_means(torch.arange(3))):
        assert torch.equal(found, expected)


def test_class_means_follow_a_reset_a_load_and_a_copy():
    queue = EmbeddingQueue(3, 1, num_classes=9)
    fill(queue, 4, 4)
    assert queue.class_means(torch.tensor([4]))[1].item() == 2
    copy = deepcopy(queue)
    empty = EmbeddingQueue(3, 1, num_classes=9).state_dict()
    queue.reset()
    assert queue.class_means(torch.tensor([4]))[1].item() == 0
    fill(copy, 4)
    assert copy.class_means(torch.tensor([4]))[1].item() == 3
    copy.load_state_dict(empty)
    assert copy.class_means(torch.tensor([4]))[1].item() == 0
