"""Detectors whose loss is that of the joined batch of two processes."""

from functools import partial
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

pytest.importorskip('mmdet')

from mmcv.ops import batched_nms
from mmdet.models.dense_heads import rpn_head
from mmengine.structures import InstanceData

from ..test_models.test_detector_swap import (
    DETECTORS,
    RAMBO,
    SMOOTH_AP,
    C,
    swapped,
)
from ..tiny_detectors import build, find, make_batch, step


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


def without_chance(name):
    """A detector that samples, drops and denoises nothing at random."""
    model = swapped('faster' if name == 'rpn' else name, loss=SMOOTH_AP)
    if name == 'rpn':
        model.rpn_head.update(
            type='mmrank.RankRPNHead', loss_cls=dict(SMOOTH_AP))
    for sampler in find(model, 'sampler'):
        sampler['num'] = 10_000  # all there are
    for noise in find(model, 'dn_cfg'):
        noise.update(label_noise_scale=1e-12, box_noise_scale=1e-12)
    torch.manual_seed(0)
    detector = build(model).double()
    for module in detector.modules():
        if isinstance(getattr(module, 'dropout', None), float):
            module.dropout = 0.
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.
        if type(module).__name__ == 'SinePositionalEncoding':
            module.register_forward_hook(lambda _, inputs, out: out.double())
        # the others encode boxes in the anchors' single precision
        if name in ('atss', 'yolof') and hasattr(module, 'prior_generator'):
            module.prior_generator.grid_priors = partial(
                in_double, module.prior_generator.grid_priors)
    detector.backbone.register_forward_pre_hook(
        lambda _, inputs: (inputs[0].double(), ))
    return detector


def in_double(grid_priors, *args, **kwargs):
    return [level.double() for level in grid_priors(*args, **kwargs)]


def double_nms(boxes, scores, *args):
    """mmcv's knows no double precision on a CPU."""
    _, keep = batched_nms(boxes.float(), scores.float(), *args)
    return torch.cat([boxes[keep], scores[keep, None]], 1), keep


def ranked(name, batch):
    """The logged losses of classification and the gradient of all of them."""
    with patch.object(rpn_head, 'batched_nms', double_nms):
        torch.set_default_dtype(torch.double)
        try:
            return ranked_in_double(name, batch)
        finally:
            torch.set_default_dtype(torch.float)


def ranked_in_double(name, batch):
    model = without_chance(name).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()  # no statistics of the own batch
    data = model.data_preprocessor(batch, True)
    for sample in data['data_samples']:
        sample.gt_instances.bboxes = sample.gt_instances.bboxes.double()
    losses = {key: value for key, value in model(**data, mode='loss').items()
              if key.endswith('_cls') and ('rpn' in key) == (name == 'rpn')}
    losses = {key: sum(value) if isinstance(value, list) else value
              for key, value in losses.items()}
    sum(losses.values()).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()
                          if p.grad is not None])
    return {key: value.item() for key, value in losses.items()}, gradient


def ranked_on_this_process(names):
    batch = batches([3, 3])[dist.get_rank()]
    return [ranked(name, batch) for name in names]


def test_every_detector_ranks_the_joined_batch(processes):
    """Two processes give the losses, and in the mean the gradients, of one."""
    names = [*DETECTORS, 'rpn']
    shares = processes(2).run(ranked_on_this_process, names)
    for name, (first, one), (second, other) in zip(names, *shares):
        alone, gradient = ranked(name, make_batch([3, 3], C, size=160))
        assert alone and gradient.abs().max() > 0, name
        assert first == pytest.approx(alone, abs=1e-6), name
        assert second == pytest.approx(alone, abs=1e-6), name
        torch.testing.assert_close(
            (one + other) / 2, gradient, atol=1e-6, rtol=1e-3, msg=name)


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
