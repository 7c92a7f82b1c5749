"""A resumed run draws what the uninterrupted one drew."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmrank.engine.hooks.seed_by_iteration_hook import SeedByIterationHook


def draw(runner, hook_method):
    hook_method(runner, 0) if 'iter' in hook_method.__name__ else \
        hook_method(runner)
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_the_state_follows_from_seed_iteration_and_process_alone():
    hook = SeedByIterationHook()
    first = draw(
        SimpleNamespace(seed=3, iter=7, rank=0), hook.before_train_iter)
    torch.rand(5)
    again = draw(
        SimpleNamespace(seed=3, iter=7, rank=0), hook.before_train_iter)
    assert first == again
    for change in ({'seed': 4}, {'iter': 8}, {'rank': 1}):
        runner = SimpleNamespace(**{**dict(seed=3, iter=7, rank=0), **change})
        assert draw(runner, hook.before_train_iter) != first


def test_loading_and_training_draw_apart():
    hook = SeedByIterationHook(seed=5)
    runner = SimpleNamespace(seed=3, iter=7, rank=0, train_loop=None)
    draws = {
        draw(runner, method)
        for method in (hook.before_train_epoch, hook.before_train_iter,
                       hook.after_train_iter)
    }
    assert len(draws) == 3


@pytest.mark.parametrize('seed', [-1, 2**31, 1.5, '3'])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match='seed'):
        SeedByIterationHook(seed)
