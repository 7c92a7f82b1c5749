"""Detectors whose loss is that of the joined batch of two processes."""

import pytest
import torch
import torch.distributed as dist

pytest.importorskip('mmdet')

from mmengine.structures import InstanceData

from ..test_models.test_detector_swap import RAMBO, SMOOTH_AP, C, swapped
from ..tiny_detectors import build, make_batch, step


def detector(name, loss=RAMBO):
    torch.manual_seed(0)
    model = swapped(name, loss=loss)
    model.backbone.norm_eval = True  # no statistics of the own batch
    return build(model)


def batches(boxes):
    """One image for each number of boxes, the same ones every time."""
    joined = make_batch(boxes, C, size=160)
    return [{key: value[i:i + 1] for key, value in joined.items()}
            for i in range(len(boxes))]


def exact_detector(name, loss):
    """In double precision: untrained scores are so near each other that the
    rounding of a convolution, which depends on the size of the batch and on
    the processor, would change their order."""
    model = detector(name, loss).double()
    model.backbone.register_forward_pre_hook(
        lambda _, inputs: (inputs[0].double(), ))
    return model


def logged_on_this_process(name, loss, boxes):
    model = exact_detector(name, loss)
    logged = step(model, batches(boxes)[dist.get_rank()])
    gradient = torch.cat([
        p.grad.flatten() for n, p in model.named_parameters()
        if 'bbox_head' in n and 'cls' in n and p.grad is not None])
    return logged, gradient


@pytest.mark.parametrize('name', ['retina', 'fcos'])
@pytest.mark.parametrize('loss', [RAMBO, SMOOTH_AP],
                         ids=lambda loss: loss['type'])
def test_a_dense_head_ranks_the_anchors_of_all_processes(
        name, loss, processes):
    (first, one), (second, other) = processes(2).run(
        logged_on_this_process, name, loss, [3, 0])
    model = exact_detector(name, loss)
    alone = step(model, make_batch([3, 0], C, size=160))
    assert first['loss_cls'] == second['loss_cls']
    assert first['loss_cls'] == pytest.approx(alone['loss_cls'], abs=1e-5)
    # DDP takes the mean of the gradients, and the loss makes up for it
    gradient = torch.cat([
        p.grad.flatten() for n, p in model.named_parameters()
        if 'bbox_head' in n and 'cls' in n and p.grad is not None])
    torch.testing.assert_close((one + other) / 2, gradient,
                               atol=1e-6, rtol=1e-3)


def keys_without_objects_on_one_process(name, loss):
    logged = step(detector(name, loss), batches([3, 0])[dist.get_rank()])
    return sorted(logged)


@pytest.mark.parametrize('name', ['dino', 'deformable_detr', 'faster_ours',
                                  'cascade_ours'])
@pytest.mark.parametrize('loss', [RAMBO, SMOOTH_AP],
                         ids=lambda loss: loss['type'])
def test_a_process_without_objects_takes_part_and_logs_the_same_keys(
        name, loss, processes):
    first, second = processes(2).run(
        keys_without_objects_on_one_process, name, loss)
    assert first == second


def keys_without_proposals_on_one_process(name):
    model = detector(name).train()
    index = dist.get_rank()
    data = model.data_preprocessor(batches([3, 0])[index], True)
    boxes = torch.tensor([[4., 4., 40., 40.]] * (1 - index)).view(-1, 4)
    losses = model.roi_head.loss(
        model.extract_feat(data['inputs']), [InstanceData(bboxes=boxes)],
        data['data_samples'])
    sum(value for key, value in losses.items() if 'loss' in key).backward()
    return sorted(losses)


@pytest.mark.parametrize('name', ['faster_ours', 'cascade_ours'])
def test_a_process_without_proposals_takes_part_and_logs_the_same_keys(
        name, processes):
    first, second = processes(2).run(
        keys_without_proposals_on_one_process, name)
    assert first == second
