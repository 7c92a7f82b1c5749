"""BatchMemory: first in first out, in the checkpoint, out of the way."""

from copy import deepcopy

import pytest
import torch
from mmengine.model import ExponentialMovingAverage
from mmengine.runner.checkpoint import get_state_dict, load_state_dict
from torch import nn

from mmrank.state import BatchMemory


def remember(memory: BatchMemory, *starts: int) -> None:
    for start in starts:
        scores = torch.arange(start, start + start % 3 + 1.).unsqueeze(1)
        memory.remember(scores=scores, labels=scores[:, 0].long())


def model_with_memory() -> nn.Module:
    model = nn.Sequential(nn.Linear(1, 1))
    model.add_module('memory', BatchMemory(2, ('scores', 'labels')))
    return model


def test_keeps_the_last_batches_oldest_first():
    memory = BatchMemory(2, ('scores', 'labels'))
    assert memory.read() is None
    remember(memory, 10, 21, 33)
    assert len(memory) == 2
    assert memory.read()['labels'].tolist() == [21, 33]


def test_size_zero_remembers_nothing():
    memory = BatchMemory(0, ('scores', 'labels'))
    remember(memory, 10, 20)
    assert memory.read() is None


@pytest.mark.parametrize('size', [-1, 1.5, '7', None])
def test_a_size_that_is_no_count_is_refused(size):
    with pytest.raises(ValueError, match='memory_batches'):
        BatchMemory(size, ('scores', ))


@pytest.mark.parametrize('save', [nn.Module.state_dict, get_state_dict])
@pytest.mark.parametrize('load', [nn.Module.load_state_dict, load_state_dict])
def test_survives_a_checkpoint_of_torch_and_of_mmengine(save, load, tmp_path):
    model = model_with_memory()
    remember(model.memory, 10, 21, 32)
    torch.save(save(model), tmp_path / 'model.pth')
    other = model_with_memory()
    remember(other.memory, 50)
    load(other, torch.load(tmp_path / 'model.pth', weights_only=True))
    for name, tensor in model.memory.read().items():
        assert torch.equal(other.memory.read()[name], tensor)
    remember(other.memory, 11)
    assert other.memory.read()['labels'].tolist() == [32, 33, 34, 11, 12, 13]


def test_a_checkpoint_without_memory_empties_it():
    model = model_with_memory()
    state = model.state_dict()
    remember(model.memory, 10)
    model.load_state_dict(state)
    assert len(model.memory) == 0


def test_half_a_memory_in_a_checkpoint_is_refused():
    model = model_with_memory()
    remember(model.memory, 10)
    state = model.state_dict()
    del state['memory.lengths']
    with pytest.raises(ValueError, match='memory.lengths'):
        model.load_state_dict(state)


@pytest.mark.parametrize('update_buffers', [False, True])
def test_an_averaged_model_leaves_the_memory_alone(update_buffers):
    model = model_with_memory()
    average = ExponentialMovingAverage(model, update_buffers=update_buffers)
    for start in (10, 21, 32):
        remember(model.memory, start)
        average.update_parameters(model)
    assert model.memory.read()['labels'].tolist() == [21, 32, 33, 34]
    assert len(average.module.memory) == 0
    assert not any('memory' in key for key in average.state_dict())


def test_a_deep_copy_starts_empty_and_apart():
    memory = BatchMemory(2, ('scores', 'labels'))
    remember(memory, 10)
    copy = deepcopy(memory)
    remember(copy, 20)
    assert memory.read()['labels'].tolist() == [10, 11]
    assert copy.read()['labels'].tolist() == [20, 21, 22]


def test_half_precision_of_the_model_does_not_round_the_memory():
    memory = BatchMemory(1, ('scores', 'labels'))
    memory.remember(
        scores=torch.tensor([[1.0001]]), labels=torch.tensor([1]))
    memory.half()
    assert memory.read()['scores'].item() == pytest.approx(1.0001, abs=1e-7)
