"""Metric-learning losses and hooks on several processes.

The loss of two processes is that of one process on the joined batch, in
value, in the gradient of backbone and proxies, and in what is remembered.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from mmengine.dist import all_reduce_params
from mmengine.logging import MMLogger
from mmengine.model import MMDistributedDataParallel
from mmengine.optim import OptimWrapper
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.engine.hooks import HeadWarmupHook
from mmrank.models.losses import (
    ProxyAnchorLoss,
    ProxyISALoss,
    PytorchMetricLearningLoss,
    RaMBORecallLoss,
)
from mmrank.registry import MODELS

from ..test_models.metric_learning import NoisyColours, learner

COSINES = torch.tensor([[.5, .1, -.2], [.3, 0, .4], [.2, .6, .1],
                        [0, .5, -.1]])
LABELS = torch.tensor([0, 0, 1, 1])


def known_batch():
    """Embeddings with the cosines above to the first three unit vectors."""
    rest = (1 - COSINES.square().sum(1, keepdim=True)).sqrt()
    return torch.cat([COSINES, rest], 1), torch.eye(4)[:3]


def value_of_the_known_batch(distributed):
    embeddings, proxies = known_batch()
    mine = slice(2 * dist.get_rank(), 2 * dist.get_rank() + 2)
    return ProxyAnchorLoss(distributed=distributed)(
        embeddings[mine], LABELS[mine], proxies=proxies).item()


def test_the_global_mode_has_the_global_batchs_loss_on_every_process(
        processes):
    found = processes(2).run(value_of_the_known_batch, 'global')
    assert found == pytest.approx([10.681948] * 2, abs=2e-6)


def test_the_local_mode_has_each_processs_own_loss(processes):
    found = processes(2).run(value_of_the_known_batch, 'local')
    assert found == pytest.approx([7.482179, 5.335018], abs=2e-6)


class Model(nn.Module):
    """A backbone and proxies; the loss remembers where it is Proxy-ISA."""

    def __init__(self, name, distributed):
        super().__init__()
        torch.manual_seed(3)
        self.backbone = nn.Linear(5, 4)
        self.proxies = nn.Parameter(torch.randn(3, 4))
        if name == 'ProxyAnchor':
            self.loss = ProxyAnchorLoss(distributed=distributed)
        elif name == 'ProxyISA':
            self.loss = ProxyISALoss(
                3, 4, V=10., memory_size=7, by_epoch=False, queue_start=0,
                weighting_start=1, distributed=distributed)
        else:
            self.loss = PytorchMetricLearningLoss(
                name, num_classes=3, embedding_size=4,
                distributed=distributed)

    def forward(self, inputs, labels):
        # the loss of the library ignores our proxies: attach them for DDP
        return 0 * self.proxies.sum() + self.loss(
            self.backbone(inputs), labels, proxies=self.proxies)


def batches(sizes, steps):
    """For every step, one batch a process."""
    generator = torch.Generator().manual_seed(5)
    return [[
        (torch.randn(size, 5, generator=generator),
         torch.randint(0, 3, (size, ), generator=generator))
        for size in sizes
    ] for _ in range(steps)]


def outcome(model):
    return ({name: p.grad.clone() for name, p in model.named_parameters()},
            {name: t.clone() for name, t in model.named_buffers()})


def steps_under_ddp(name, distributed, sizes, steps):
    model = Model(name, distributed)
    wrapped = DistributedDataParallel(model, broadcast_buffers=False)
    for step in batches(sizes, steps):
        wrapped.zero_grad()
        value = wrapped(*step[dist.get_rank()])
        value.backward()
    return value.item(), *outcome(model)


def steps_alone(name, distributed, sizes, steps):
    """One process: the joined batch, or the mean of the local losses."""
    model = Model(name, 'global')
    for step in batches(sizes, steps):
        model.zero_grad()
        if distributed == 'global':
            value = model(*map(torch.cat, zip(*step)))
        else:
            value = sum(model(*batch) for batch in step) / len(sizes)
        value.backward()
    return value.item(), *outcome(model)


@pytest.mark.parametrize('distributed', ['global', 'local'])
@pytest.mark.parametrize('name', ['ProxyAnchor', 'TripletMarginLoss',
                                  'ProxyNCALoss'])
@pytest.mark.parametrize('sizes', [(6, 6), (7, 3)])
def test_gradients_of_backbone_and_proxies_are_those_of_one_process(
        processes, name, distributed, sizes):
    """Ratio 1 for both, with the batches joined or not; a printed loss that
    is not multiplied by the number of processes."""
    value, gradients, _ = steps_alone(name, distributed, sizes, 1)
    found = processes(2).run(steps_under_ddp, name, distributed, sizes, 1)
    for _, one_gradients, _ in found:
        for key, gradient in gradients.items():
            torch.testing.assert_close(
                one_gradients[key], gradient, rtol=1e-4, atol=1e-6)
    values = [one[0] for one in found]
    if distributed == 'global':
        assert values == pytest.approx([value] * 2, rel=1e-5)
    assert sum(values) / 2 == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize('sizes', [(4, 4), (5, 2), (6, 0)])
def test_proxy_isa_remembers_the_same_on_every_process(processes, sizes):
    """Process order, a queue shorter than what is enqueued, filtering: all
    as on one process with the joined batch."""
    value, gradients, state = steps_alone('ProxyISA', 'global', sizes, 6)
    for found in processes(2).run(steps_under_ddp, 'ProxyISA', 'global',
                                  sizes, 6):
        assert found[0] == pytest.approx(value, rel=1e-4)
        for key, gradient in gradients.items():
            torch.testing.assert_close(
                found[1][key], gradient, rtol=1e-3, atol=1e-5)
        for key, tensor in state.items():
            torch.testing.assert_close(found[2][key], tensor)
    assert state['loss.counts'].sum() < 6 * sum(sizes), 'nothing was filtered'


def test_local_losses_still_share_one_memory(processes):
    one, two = processes(2).run(
        steps_under_ddp, 'ProxyISA', 'local', (4, 3), 5)
    assert one[0] != two[0]
    for key, tensor in one[2].items():
        assert torch.equal(tensor, two[2][key]), key
    assert one[2]['loss.queue.count'] == 7


def state_after_buffer_synchronisation():
    model = Model('ProxyISA', 'global')
    for step in batches((4, 4), 5):
        model(*step[dist.get_rank()])
    before = [buffer.clone() for buffer in model.buffers()]
    # what MMEngine's SyncBuffersHook does after every epoch
    all_reduce_params(model.buffers(), op='mean')
    return all(map(torch.equal, before, model.buffers()))


def test_averaging_all_buffers_over_processes_leaves_the_memory(processes):
    assert processes(2).run(state_after_buffer_synchronisation) == [True] * 2


def warm_up_under_ddp(epochs):
    torch.manual_seed(0)
    model = MODELS.build(learner())
    wrapped = MMDistributedDataParallel(
        module=model, broadcast_buffers=False, find_unused_parameters=False)
    wrapper = OptimWrapper(
        torch.optim.AdamW(wrapped.parameters(), lr=.01, weight_decay=.1))
    runner = SimpleNamespace(
        model=wrapped, optim_wrapper=wrapper, epoch=0, iter=0,
        logger=MMLogger.get_instance('warm_up', log_level='ERROR'))
    hook = HeadWarmupHook(1)
    hook.before_train(runner)
    items = [NoisyColours()[2 * i + dist.get_rank()] for i in range(4)]
    data = {key: [item[key] for item in items] for key in items[0]}
    history = []
    for epoch in range(epochs):
        for _ in range(2):
            hook.before_train_iter(runner, runner.iter, data)
            wrapped.train_step(data, wrapper)
            hook.after_train_iter(runner, runner.iter, data)
            runner.iter += 1
        runner.epoch = epoch + 1
        history.append({
            name: p.detach().clone() for name, p in model.named_parameters()
        })
    hook.after_train(runner)
    return history


def test_the_warm_up_is_right_under_ddp_without_unused_parameters(processes):
    """In the warm epoch the backbone rests; in the next it learns, equally on
    both processes."""
    one, two = processes(2).run(warm_up_under_ddp, 2)
    torch.manual_seed(0)
    start = dict(MODELS.build(learner()).named_parameters())
    for name, tensor in one[0].items():
        rests = torch.equal(tensor, start[name])
        assert rests == name.startswith('backbone'), name
    for name, tensor in one[1].items():
        assert not torch.equal(tensor, one[0][name]), name
        assert torch.equal(tensor, two[1][name]), name


class TwoMemories(nn.Module):
    """Proxy-ISA's queue and RaMBO's memory beside each other."""

    def __init__(self):
        super().__init__()
        self.isa = Model('ProxyISA', 'global')
        self.recall = RaMBORecallLoss(memory_batches=2)

    def forward(self, inputs, labels, scale=1.):
        embeddings = self.isa.backbone(inputs)
        return scale * (
            self.recall(embeddings, labels)
            + self.isa.loss(embeddings, labels, proxies=self.isa.proxies))


def two_memories(under_ddp):
    model = TwoMemories()
    forward = DistributedDataParallel(model, broadcast_buffers=False) \
        if under_ddp else model
    for step in batches((4, 3), 5):
        model.zero_grad()
        mine = step[dist.get_rank()] if under_ddp else \
            tuple(map(torch.cat, zip(*step)))
        value = forward(*mine, scale=2.)
        value.backward()
    return value.item(), model.state_dict(), [
        p.grad.clone() for p in model.parameters()]


def test_two_losses_with_memories_and_extra_keywords_run_under_ddp(processes):
    value, state, gradients = two_memories(under_ddp=False)
    for found in processes(2).run(two_memories, True):
        assert found[0] == pytest.approx(value, rel=1e-4)
        torch.testing.assert_close(found[1], state)
        torch.testing.assert_close(
            found[2], gradients, rtol=1e-3, atol=1e-5)
