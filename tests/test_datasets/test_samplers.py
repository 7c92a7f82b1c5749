import copy
import itertools
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.dataset import (
    BaseDataset,
    ClassBalancedDataset,
    ConcatDataset,
    DefaultSampler,
    InfiniteSampler,
    RepeatDataset,
)
from mmengine.model import BaseModel
from mmengine.registry import DATASETS
from mmengine.runner import Runner
from torch.utils.data import Subset

from mmrank.datasets.samplers import (
    ClassBalancedBatchSampler,
    SuperLabelBatchSampler,
    labels_of,
)
from mmrank.datasets.samplers import batch_samplers as module


@DATASETS.register_module()
class ToyLabels(BaseDataset):
    """Item i has a label, and class c the super-label c % num_super."""

    def __init__(self, sizes, num_super=2, **kwargs):
        self.sizes, self.num_super = sizes, num_super
        # to serialise collects garbage, which takes long in a test session
        super().__init__(serialize_data=False, **kwargs)

    def load_data_list(self):
        labels = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return [dict(gt_label=int(c), super_label=int(c) % self.num_super)
                for c in labels]

    def get_cat_ids(self, idx):
        return [self.get_data_info(idx)['gt_label']]


def build(sizes, batch_size, k, kind=ClassBalancedBatchSampler, seed=0,
          num_super=2, inner=DefaultSampler, **kwargs):
    data = ToyLabels(sizes, num_super)
    return kind(inner(data, seed=seed), batch_size, k, **kwargs)


def label_counts(sampler, batch):
    if not hasattr(sampler, 'known_labels'):
        sampler.known_labels = labels_of(sampler.sampler.dataset)
    return Counter(sampler.known_labels[batch].tolist())


@pytest.mark.parametrize('small_classes', ['repeat', 'exclude'])
def test_every_batch_has_exactly_p_classes_with_k_items(small_classes):
    sampler = build([5, 3, 1, 2], 4, 2, small_classes=small_classes,
                    num_batches=200)
    batches = list(sampler)
    assert len(batches) == 200
    seen = set()
    for batch in batches:
        assert list(label_counts(sampler, batch).values()) == [2, 2]
        seen |= set(batch)
        repeated = [i for i, n in Counter(batch).items() if n > 1]
        assert set(repeated) <= {8}  # the class of one image
    assert (8 in seen) is (small_classes == 'repeat')


def test_coverage_mode_yields_each_image_once_an_epoch():
    sampler = build([4] * 6, 4, 2, coverage=True)
    for epoch in range(5):
        sampler.sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler) == 6
        assert sorted(sum(batches, [])) == list(range(24))
        for batch in batches:
            assert sorted(label_counts(sampler, batch).values()) == [2, 2]


@pytest.mark.parametrize('coverage', [True, False])
def test_classes_are_seen_evenly_over_any_number_of_batches(coverage):
    sampler = build([8] * 7, 6, 2, coverage=coverage)
    seen = Counter()
    for number, batch in enumerate(sampler, 1):
        seen.update(label_counts(sampler, batch).keys())
        exact = number * 3 / 7
        for c in range(7):
            assert np.floor(exact) <= seen[c] <= np.ceil(exact)


@pytest.mark.parametrize('kind', [ClassBalancedBatchSampler,
                                  SuperLabelBatchSampler])
def test_no_batch_has_a_single_class_also_at_the_border_of_a_round(kind):
    for seed in range(100):
        sampler = build([4] * 3, 4, 2, kind, seed=seed, num_batches=6)
        for epoch in range(10):
            sampler.sampler.set_epoch(epoch)
            for batch in sampler:
                counts = label_counts(sampler, batch)
                assert len(counts) >= 2 and min(counts.values()) >= 2


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=8),
    k=st.integers(1, 3),
    coverage=st.booleans(),
    drop_last=st.booleans())
def test_the_length_is_the_number_of_batches_yielded(sizes, k, coverage,
                                                     drop_last):
    try:
        sampler = build(sizes, 2 * k, k, coverage=coverage,
                        drop_last=drop_last)
    except ValueError as error:
        assert 'drop_last' in str(error)
        return
    batches = list(sampler)
    assert len(sampler) == len(batches) >= 1
    for batch in batches:
        assert list(label_counts(sampler, batch).values()) == [k, k]
    if coverage and not drop_last:
        assert set(sum(batches, [])) == set(range(sum(sizes)))


def as_process(monkeypatch, index, size):
    monkeypatch.setattr(module, 'get_dist_info', lambda: (index, size))


@pytest.mark.parametrize('kind, k', [(ClassBalancedBatchSampler, 2),
                                     (SuperLabelBatchSampler, 2)])
def test_processes_share_one_global_batch_and_have_equal_lengths(
        monkeypatch, kind, k):
    per_process = []
    for index in range(3):
        as_process(monkeypatch, index, 3)
        sampler = build([6] * 20, 4, k, kind)
        per_process.append(list(sampler))
        assert len(sampler) == len(per_process[-1]) == 10
    for pieces in zip(*per_process):
        joined = sum(pieces, [])
        assert len(set(joined)) == 12  # no overlap within a step
        assert list(label_counts(sampler, joined).values()) == [2] * 6


@pytest.mark.parametrize('drop_last, steps', [(True, 3), (False, 4)])
def test_ten_batches_are_shared_by_three_processes_without_a_rest(
        monkeypatch, drop_last, steps):
    per_process = []
    for index in range(3):
        as_process(monkeypatch, index, 3)
        sampler = build([4] * 10, 4, 2, drop_last=drop_last)
        loader = torch.utils.data.DataLoader(
            range(40), batch_sampler=sampler)
        per_process.append(list(loader))
        assert len(loader) == len(per_process[-1]) == steps
    for pieces in zip(*per_process):
        assert len(set(torch.cat(pieces).tolist())) == 12


def test_the_global_random_generators_play_no_part():
    first = list(build([6] * 8, 8, 2))
    np.random.seed(1)
    torch.manual_seed(1)
    state = np.random.get_state()[1].copy()
    assert list(build([6] * 8, 8, 2)) == first
    assert (np.random.get_state()[1] == state).all()


def test_p_and_k_hold_for_the_global_batch_not_for_each_process(monkeypatch):
    as_process(monkeypatch, 1, 2)
    # two classes of three: 1.5 classes a process
    sampler = build([6] * 4, 3, 3)
    assert sampler.classes_per_batch == 2


def test_an_epoch_depends_on_seed_and_epoch_alone():
    first, again, other = (build([6] * 8, 8, 2, seed=s) for s in (3, 3, 4))
    epochs = []
    for epoch in (0, 1):
        for sampler in (first, again, other):
            sampler.sampler.set_epoch(epoch)
        epochs.append(list(first))
        assert epochs[-1] == list(first) == list(again) != list(other)
    assert epochs[0] != epochs[1]


def test_an_infinite_inner_sampler_makes_the_batches_endless():
    sampler = build([6] * 8, 8, 2, inner=InfiniteSampler)
    endless = iter(sampler)
    batches = [next(endless) for _ in range(3 * len(sampler))]
    finite = build([6] * 8, 8, 2)
    finite.sampler.set_epoch(2)
    assert batches[2 * len(sampler):] == list(finite)


def test_super_label_batches_come_in_runs_of_one_pair_half_from_each():
    sampler = build([6] * 24, 8, 2, SuperLabelBatchSampler, num_super=4,
                    batches_per_pair=3, num_batches=12)
    pairs = []
    for batch in sampler:
        counts = label_counts(sampler, batch)
        assert list(counts.values()) == [2] * 4
        pair = Counter(c % 4 for c in counts)
        assert sorted(pair.values()) == [2, 2]
        pairs.append(frozenset(pair))
    runs = [set(pairs[i:i + 3]) for i in range(0, 12, 3)]
    assert all(len(run) == 1 for run in runs)
    # all super-labels have their turn before one comes again
    assert pairs[0] | pairs[3] == {0, 1, 2, 3}


def test_super_label_batches_are_full_where_a_super_label_has_few_classes():
    # super-label 0 has one class, super-label 1 many
    data = ToyLabels([4] * 9)
    data.full_init()
    for info in range(len(data)):
        assert data.get_data_info(info)['super_label'] in (0, 1)
    data.load_data_list = lambda: [
        dict(gt_label=c, super_label=min(c, 1))
        for c in range(9) for _ in range(4)]
    data._fully_initialized = False
    data.full_init()
    sampler = SuperLabelBatchSampler(
        DefaultSampler(data, seed=0), 8, 2, num_batches=20)
    for batch in sampler:
        assert len(batch) == 8
        assert len(label_counts(sampler, batch)) >= 2
        assert label_counts(sampler, batch)[0] == 4


def test_a_thousand_super_labels_do_not_make_all_their_pairs():
    sampler = build([2] * 2000, 8, 2, SuperLabelBatchSampler, num_super=1000,
                    num_batches=50, batches_per_pair=1)
    assert len(sampler.members) == 1000
    assert all(len(batch) == 8 for batch in sampler)


def test_labels_are_found_through_every_wrapper():
    plain = ToyLabels([2, 1])
    expected = [0, 0, 1]
    wrapped = {
        'repeat': (RepeatDataset(plain, 2), expected * 2),
        'concat': (ConcatDataset([plain, copy.deepcopy(plain)]),
                   expected * 2),
        'nested': (RepeatDataset(dict(type='ConcatDataset', datasets=[
            dict(type='ToyLabels', sizes=[2, 1])] * 2), 2), expected * 4),
        'subset': (Subset(plain, [2, 0]), [1, 0]),
    }
    for data, labels in wrapped.values():
        assert labels_of(data).tolist() == labels
    balanced = ClassBalancedDataset(plain, oversample_thr=.9)
    assert labels_of(balanced).tolist() == [
        plain.get_cat_ids(i)[0] for i in balanced.repeat_indices]
    assert labels_of(RepeatDataset(plain, 2), 'super_label').tolist() == \
        expected * 2


@pytest.mark.parametrize('change, word', [
    (dict(k=3), 'whole number'), (dict(k=4), 'at least 2'),
    (dict(k=0), 'samples_per_class'), (dict(small_classes='drop'), 'repeat'),
    (dict(sizes=[9]), 'classes'), (dict(num_batches=0), 'num_batches'),
    (dict(kind=SuperLabelBatchSampler, num_super=1), 'super-labels'),
    (dict(coverage=True, num_batches=3), 'coverage'),
    (dict(sizes=[1, 1, 1], small_classes='exclude'), 'offers 0')])
def test_settings_that_cannot_hold_are_named(change, word):
    good = dict(sizes=[4] * 4, batch_size=4, k=2)
    with pytest.raises(ValueError, match=word):
        build(**{**good, **change})


def test_a_data_set_without_labels_is_named():
    class Silent(torch.utils.data.Dataset):

        def __len__(self):
            return 3

    with pytest.raises(ValueError, match='Silent does not tell'):
        labels_of(Silent())
    with pytest.raises(ValueError, match='inner sampler'):
        ClassBalancedBatchSampler(SimpleNamespace(), 4, 2)


RUNS = itertools.count()


class Recorder(BaseModel):
    """Remembers which items it was given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, sample_idx, mode='loss', **kwargs):
        self.seen.append([int(i) for i in sample_idx])
        return dict(loss=self.weight.sum())


def train(tmp_path, workers=0, train_cfg=None, infinite=False, resume=False,
          seed=5, persistent=True, **loader):
    model = Recorder()
    runner = Runner(
        model=model,
        work_dir=str(tmp_path),
        resume=resume,
        train_dataloader=dict(
            dataset=dict(type='ToyLabels', sizes=[4] * 6),
            batch_size=4,
            num_workers=workers,
            persistent_workers=workers > 0 and persistent,
            sampler=dict(type='InfiniteSampler' if infinite else
                         'DefaultSampler', shuffle=True),
            batch_sampler=dict(
                type='mmrank.ClassBalancedBatchSampler',
                samples_per_class=2),
            **loader),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=.1)),
        train_cfg=train_cfg or dict(by_epoch=True, max_epochs=3),
        default_hooks=dict(logger=None, checkpoint=dict(
            type='CheckpointHook', interval=1,
            by_epoch=(train_cfg or {}).get('by_epoch', True))),
        randomness=dict(seed=seed),
        experiment_name=f'sampler{next(RUNS)}',
        log_level='ERROR')
    runner.train()
    return model.seen


@pytest.mark.parametrize('workers, persistent', [
    (0, False), (1, True), (1, False)])
def test_the_epoch_reaches_the_batch_sampler_through_mmengine(
        tmp_path, workers, persistent):
    seen = train(tmp_path / 'a', workers, persistent=persistent)
    epochs = [seen[i:i + 6] for i in range(0, 18, 6)]
    assert len(seen) == 18
    assert epochs[0] != epochs[1] != epochs[2]
    assert seen == train(tmp_path / 'b', 0)
    assert seen != train(tmp_path / 'c', 0, seed=6)


def test_a_resumed_training_meets_the_batches_of_a_straight_one(tmp_path):
    straight = train(tmp_path / 'a')
    train(tmp_path / 'b', train_cfg=dict(by_epoch=True, max_epochs=1))
    rest = train(tmp_path / 'b', resume=True)
    assert rest == straight[6:]


@pytest.mark.parametrize('infinite', [True, False])
def test_a_resumed_iteration_based_training_goes_on_where_it_stopped(
        tmp_path, infinite):
    def run(folder, iterations, resume=False):
        return train(tmp_path / folder, infinite=infinite, resume=resume,
                     train_cfg=dict(by_epoch=False, max_iters=iterations))

    straight = run('a', 10)
    run('b', 5)
    assert run('b', 10, resume=True) == straight[5:]


@pytest.mark.parametrize('infinite', [True, False])
def test_iteration_based_training_goes_on_past_an_epoch(tmp_path, infinite):
    seen = train(tmp_path, infinite=infinite,
                 train_cfg=dict(by_epoch=False, max_iters=14))
    assert len(seen) == 14
    assert seen[:6] != seen[6:12]
    if infinite:
        assert seen[:6] == train(tmp_path / 'b', train_cfg=dict(
            by_epoch=True, max_epochs=1))


def test_num_batch_per_epoch_bounds_the_epoch_and_not_the_images(tmp_path):
    seen = train(tmp_path, num_batch_per_epoch=2)
    assert len(seen) == 6
    assert {i for batch in seen for i in batch} - set(range(8))


def test_resuming_at_iteration_30000_takes_seconds(tmp_path):
    short = dict(by_epoch=False, max_iters=1)
    train(tmp_path, infinite=True, train_cfg=short)
    path = tmp_path / 'iter_1.pth'
    checkpoint = torch.load(path, weights_only=False)
    checkpoint['meta']['iter'] = 30_000
    torch.save(checkpoint, path)
    start = time.monotonic()
    seen = train(tmp_path, infinite=True, resume=True,
                 train_cfg=dict(by_epoch=False, max_iters=30_002))
    assert time.monotonic() - start < 60
    inner = InfiniteSampler(ToyLabels([4] * 6), seed=5)
    straight = ClassBalancedBatchSampler(inner, 4, 2)
    assert seen == list(itertools.islice(straight, 30_000, 30_002))
