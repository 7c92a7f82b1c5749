"""Collectives: process order, ragged lengths, gradients, counted bytes."""

import pytest
import torch
import torch.distributed as dist

from mmrank.state import Collectives


def test_alone_nothing_is_sent_and_everything_is_returned():
    comm = Collectives()
    tensor = torch.randn(3, 2, requires_grad=True)
    assert (comm.size, comm.index) == (1, 0)
    assert torch.equal(comm.gather(tensor)[0], tensor)
    assert comm.gather_with_gradient(tensor) is tensor
    assert torch.equal(comm.sum(tensor), tensor)
    assert comm.received_bytes == 0


def ragged(lengths, dtype):
    comm = Collectives()
    mine = torch.full((lengths[comm.index], 2), comm.index).to(dtype)
    return [piece.tolist() for piece in comm.gather(mine)]


@pytest.mark.parametrize('dtype', [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize('lengths', [(2, 1, 0), (0, 0, 0), (1, 1, 1)])
def test_gather_keeps_process_order_and_own_lengths(processes, lengths,
                                                    dtype):
    expected = [
        torch.full((length, 2), index).to(dtype).tolist()
        for index, length in enumerate(lengths)
    ]
    assert processes(3).run(ragged, lengths, dtype) == [expected] * 3


def bytes_of_a_sum(length):
    comm = Collectives()
    total = comm.sum(torch.ones(length))
    return total.tolist(), comm.received_bytes


def test_sum_counts_the_payload_of_the_others(processes):
    for total, received in processes(3).run(bytes_of_a_sum, 5):
        assert total == [3.] * 5
        assert received == 2 * 5 * 4


def gradients(sizes):
    """Gradients of mean((x w)^2) over the joined batch, as DDP averages."""
    comm = Collectives()
    batch = torch.linspace(-1, 2, sum(sizes)).split(sizes)[comm.index]
    backbone = torch.tensor(1.5, requires_grad=True)
    proxy = torch.tensor(0.7, requires_grad=True)
    joined = comm.gather_with_gradient(backbone * batch)
    (joined * proxy).square().mean().backward()
    averaged = []
    for parameter in (backbone, proxy):
        dist.all_reduce(parameter.grad)
        averaged.append(parameter.grad.item() / comm.size)
    return averaged


@pytest.mark.parametrize('sizes', [(3, 3), (4, 1), (5, 0)])
def test_backbone_and_proxy_gradients_are_those_of_one_process(
        processes, sizes):
    batch = torch.linspace(-1, 2, sum(sizes))
    backbone = torch.tensor(1.5, requires_grad=True)
    proxy = torch.tensor(0.7, requires_grad=True)
    (backbone * batch * proxy).square().mean().backward()
    expected = [backbone.grad.item(), proxy.grad.item()]
    for found in processes(2).run(gradients, sizes):
        assert found == pytest.approx(expected, rel=1e-6)


def test_a_stand_in_for_the_processes_is_everybodys(monkeypatch):
    from mmrank.state import collectives, current
    seen = []
    monkeypatch.setattr(collectives, 'Collectives', lambda: seen.append(1))
    current()
    assert seen == [1]
