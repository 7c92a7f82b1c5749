"""Two processes learn descriptors as one does on the joined batch."""

import pytest
import torch
import torch.distributed as dist
from mmengine.dist import all_reduce_params
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.datasets import DistinctClassSampler
from mmrank.engine.hooks.descriptor_bank_hook import describe_classes
from mmrank.models import DescriptorLearner, HingeTripletLoss
from mmrank.registry import MODELS

CLASSES, SLOTS = 8, 5


@MODELS.register_module(force=True)
class LinearDescriptor(nn.Module):
    """No batch norm: its statistics would be each process's own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Linear(16, 6)

    def forward(self, patches):
        return nn.functional.normalize(self.weight(patches.flatten(1)), dim=1)


def make(lambda_val, mode='online', distributed='global'):
    torch.manual_seed(0)
    return DescriptorLearner(
        dict(type='mmrank.LinearDescriptor'),
        dict(type='mmrank.HingeTripletLoss', distributed=distributed),
        dict(type='mmrank.AdaSample', lambda_val=lambda_val, mode=mode),
        symmetries=True,
        data_preprocessor=dict(type='mmrank.PatchDataPreprocessor',
                               patch_size=4))


def batch(part, step=0):
    generator = torch.Generator().manual_seed(step)
    patches = torch.rand(CLASSES, SLOTS, 1, 4, 4, generator=generator)
    valid = torch.ones(SLOTS, dtype=torch.bool)
    # two classes are one point: no negatives of each other, also across
    samples = [dict(class_index=i, class_id=i % 7, valid=valid)
               for i in range(CLASSES)]
    return dict(inputs=list(patches[part]), data_samples=samples[part])


def train(model, part, steps=3):
    ddp = DistributedDataParallel(model) if dist.is_initialized() and \
        dist.get_world_size() > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), .3)
    losses = []
    for step in range(steps):
        data = model.data_preprocessor(batch(part, step), training=True)
        optimizer.zero_grad()
        out = ddp(**data, mode='loss')
        out['loss'].backward()
        losses.append([out['loss'].item(), out['L_avg'].item()])
        optimizer.step()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    gradients = [p.grad.clone() for p in model.parameters()]
    return losses, state, gradients


def one_share(lambda_val, cut):
    rank = dist.get_rank()
    return train(make(lambda_val), slice(0, cut) if rank == 0 else
                 slice(cut, None))


@pytest.mark.parametrize('lambda_val, cut', [
    (0., 4), (10., 4), (10., 3), (float('inf'), 4)])
def test_two_processes_equal_one_on_the_joined_batch(processes, lambda_val,
                                                     cut):
    losses, state, gradients = train(make(lambda_val), slice(None))
    for found in processes(2).run(one_share, lambda_val, cut):
        torch.testing.assert_close(torch.tensor(found[0]),
                                   torch.tensor(losses))
        for key, value in state.items():
            torch.testing.assert_close(found[1][key], value, msg=key)
        for mine, want in zip(found[2], gradients):
            torch.testing.assert_close(mine, want, atol=1e-6, rtol=1e-4)


def one_local_share(cut):
    rank = dist.get_rank()
    return train(make(10., distributed='local'),
                 slice(0, cut) if rank == 0 else slice(cut, None))


@pytest.mark.parametrize('cut', [4, 6])
def test_losses_of_own_batches_share_one_moving_average(processes, cut):
    """The state is one, in the checkpoint of whichever process writes it."""
    (one, state, _), (two, other, _) = processes(2).run(one_local_share, cut)
    assert one[0][0] != two[0][0]
    for key, value in state.items():
        torch.testing.assert_close(other[key], value, msg=key)
    assert [step[1] for step in one] == [step[1] for step in two]


def loss_of_a_share(rows, weights, labels):
    rank = dist.get_rank()
    part = slice(0, 2) if rank == 0 else slice(2, None)
    ends = [row[part].clone().requires_grad_() for row in rows]
    loss = HingeTripletLoss()(*ends, weights[part], labels[part])
    loss.backward()
    return loss.item(), [end.grad for end in ends]


def test_negatives_are_those_of_the_global_batch(processes):
    rows = [torch.randn(5, 4) for _ in range(2)]
    weights, labels = torch.tensor([.5, 1, 1, 2, .5]), torch.arange(5)
    ends = [row.clone().requires_grad_() for row in rows]
    loss = HingeTripletLoss()(*ends, weights, labels)
    loss.backward()
    found = processes(2).run(loss_of_a_share, rows, weights, labels)
    for value, _ in found:
        assert value == pytest.approx(loss.item())
    for side in range(2):
        joined = torch.cat([gradients[side] for _, gradients in found])
        # gradients of a gather sum over processes, DDP then averages
        torch.testing.assert_close(joined / 2, ends[side].grad)


class Classes:

    def __len__(self):
        return CLASSES - 1

    def __getitem__(self, index):
        return dict(inputs=batch(slice(None))['inputs'][index])


def bank_of_all():
    return describe_classes(make(10., 'bank'), Classes(), 2)


def test_the_bank_is_the_same_on_every_process(processes):
    want = bank_of_all()
    assert want.shape == (CLASSES - 1, SLOTS, 6)
    for bank in processes(2).run(bank_of_all):
        torch.testing.assert_close(bank, want)


def indices_of_a_process():
    sampler = DistinctClassSampler(range(11), 2, 20, seed=0)
    return list(sampler)


def test_processes_share_a_batch_of_distinct_classes(processes):
    parts = processes(2).run(indices_of_a_process)
    assert [len(part) for part in parts] == [10, 10]
    for start in range(0, 10, 2):
        joined = [i for part in parts for i in part[start:start + 2]]
        assert len(set(joined)) == 4


def test_nobody_draws_what_another_process_draws():
    # one stream for the global batch: shares differ
    sampler = make(0.).sampler
    chosen = sampler(None, torch.ones(64, SLOTS, dtype=torch.bool))
    halves = chosen.anchor.chunk(2)
    assert not torch.equal(*halves)


def buffers_after_averaging():
    model = make(10.)
    train(model, slice(None), steps=2)
    before = {k: v.clone() for k, v in model.sampler.named_buffers()}
    all_reduce_params(model.buffers(), op='mean')
    return before, dict(model.sampler.named_buffers())


def test_averaging_buffers_over_processes_leaves_the_state_as_it_is(processes):
    """What MMEngine's SyncBuffersHook does after each epoch."""
    for before, after in processes(2).run(buffers_after_averaging):
        assert int(after['step']) == 2
        for key in ('L_avg', 'step'):
            torch.testing.assert_close(after[key], before[key])
