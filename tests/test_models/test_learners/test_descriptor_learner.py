import copy

import numpy as np
import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.runner import Runner
from torch import nn

from mmrank.datasets import PatchClassDataset
from mmrank.models import DescriptorLearner, PatchDataPreprocessor
from mmrank.models.learners.descriptor_learner import (
    evaluating,
    normalize_patches,
    turn_patches,
)

TINY = dict(type='mmrank.L2Net', widths=(2, 2, 2), out_channels=8)


def make(lambda_val=10., mode='online', **kwargs):
    torch.manual_seed(0)
    return DescriptorLearner(
        TINY, dict(type='mmrank.HingeTripletLoss'),
        dict(type='mmrank.AdaSample', lambda_val=lambda_val, mode=mode),
        **kwargs)


def class_batch(n=6, k=4, seed=0, same_class=False):
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randint(0, 256, (n, k, 1, 32, 32), dtype=torch.uint8,
                            generator=generator)
    valid = torch.ones(k, dtype=torch.bool)
    samples = [dict(class_index=i, class_id=0 if same_class else 68268 * i,
                    valid=valid) for i in range(n)]
    return dict(inputs=list(patches), data_samples=samples)


def loss_of(model, batch):
    return model(**model.data_preprocessor(batch, training=True), mode='loss')


# --------------------------------------------------------- the preprocessor
def test_a_patch_has_one_descriptor_whatever_batch_it_stands_in():
    model = make().eval()
    patches = torch.randint(0, 256, (64, 1, 32, 32), dtype=torch.uint8)
    together = model(list(patches[:, None]), [{}] * 64, mode='predict')
    alone = model([patches[5:6]], [{}], mode='predict')
    torch.testing.assert_close(alone[0]['descriptors'],
                               together[5]['descriptors'], atol=1e-5, rtol=0)


def test_gain_and_offset_of_a_patch_do_not_change_its_descriptor():
    model = make().eval()
    patches = torch.rand(4, 1, 32, 32) * 255
    for other in (patches * .5 + 30, patches / 255):
        torch.testing.assert_close(model.describe(patches),
                                   model.describe(other), atol=1e-5, rtol=0)


def test_normalisation_is_per_patch():
    patches = torch.randint(0, 256, (5, 1, 32, 32), dtype=torch.uint8)
    got = normalize_patches(patches)
    torch.testing.assert_close(got.mean((1, 2, 3)), torch.zeros(5), atol=1e-5,
                               rtol=0)
    torch.testing.assert_close(got.square().mean((1, 2, 3)), torch.ones(5))


@pytest.mark.parametrize('grey', [0, 37, 255])
def test_a_constant_patch_is_finite(grey):
    patch = torch.full((1, 1, 32, 32), grey, dtype=torch.uint8)
    assert (normalize_patches(patch) == 0).all()
    assert make().eval().describe(patch).isfinite().all()
    assert make().train().describe(patch.repeat(3, 1, 1, 1)).isfinite().all()


def test_patches_of_another_size_are_resized():
    patches = torch.arange(64.).reshape(1, 1, 8, 8)
    got = PatchDataPreprocessor(patch_size=4).normalize(patches)
    means = patches.reshape(4, 2, 4, 2).mean((1, 3))[None, None]
    torch.testing.assert_close(got, normalize_patches(means))


def test_turns_are_the_eight_symmetries_of_the_square():
    patch = torch.arange(9.).reshape(1, 1, 3, 3)
    got = turn_patches(patch.expand(8, -1, -1, -1), torch.arange(8))
    assert len({tuple(x.flatten().tolist()) for x in got}) == 8
    assert torch.equal(got[0], patch[0])
    assert torch.equal(got[1], torch.rot90(patch[0], 1, (1, 2)))
    assert torch.equal(got[4], patch[0].flip(2))
    assert turn_patches(patch[:0], torch.arange(0)).shape == (0, 1, 3, 3)


# ------------------------------------------------------------------ learning
@pytest.mark.parametrize('lambda_val', [0., 10., float('inf')])
def test_a_step_has_a_finite_loss_and_moves_every_parameter(lambda_val):
    model = make(lambda_val).train()
    out = loss_of(model, class_batch())
    out['loss'].backward()
    assert out['loss'].isfinite() and out['loss'].requires_grad
    assert [k for k in out if 'loss' in k] == ['loss']
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_selection_neither_updates_running_statistics_nor_carries_gradient():
    """The online pass over all patches leaves batch norm as it was."""
    online, uniform = make(10.).train(), make(0.).train()
    seen = []
    norm = online.backbone.layers[1]
    norm.register_forward_hook(lambda m, i, o: seen.append(
        (m.training, o.requires_grad, len(o))))
    loss_of(online, class_batch())
    assert seen == [(False, False, 24), (True, True, 12)]
    assert int(norm.num_batches_tracked) == 1
    loss_of(uniform, class_batch())
    assert int(uniform.backbone.layers[1].num_batches_tracked) == 1


def test_evaluating_restores_the_mode_of_each_part():
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
    net.train()[0].eval()
    with pytest.raises(RuntimeError), evaluating(net):
        assert not any(part.training for part in net.modules())
        raise RuntimeError
    assert [part.training for part in net.modules()] == [True, False, True]


def test_L_avg_follows_the_unweighted_loss():  # noqa: N802
    model = make().train()
    batch = class_batch()
    twin = copy.deepcopy(model)
    out = loss_of(model, batch)
    data = twin.data_preprocessor(batch, training=True)
    with evaluating(twin.backbone):
        rows = twin.sampler.descriptors(data['inputs'], None, twin.describe)
    chosen = twin.sampler(rows, torch.ones(6, 4, dtype=torch.bool))
    a, p = twin.describe(twin._pairs(data['inputs'], chosen)).chunk(2)
    losses = twin.triplet.losses(a, p)
    torch.testing.assert_close(model.sampler.L_avg, losses.mean().detach())
    torch.testing.assert_close(out['loss'], (losses * chosen.weights).mean())


def test_evaluation_neither_reads_nor_changes_the_sampler():
    model = make(mode='bank').eval()
    before = copy.deepcopy(model.state_dict())
    model([torch.rand(3, 1, 32, 32)], [{}], mode='predict')
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


def test_a_batch_of_one_class_has_loss_zero_and_a_gradient():
    model = make().train()
    out = loss_of(model, class_batch(same_class=True))
    out['loss'].backward()
    assert float(out['loss'].detach()) == 0
    assert all(p.grad is not None for p in model.parameters())


def test_prediction_gives_each_input_its_own_rows():
    model = make(chunk_size=4).eval()
    inputs = [torch.rand(n, 1, 32, 32) for n in (5, 1, 3)]
    out = model(inputs, dict(name=['a', 'b', 'c']), mode='predict')
    assert [(o['name'], len(o['descriptors'])) for o in out] == \
        [('a', 5), ('b', 1), ('c', 3)]
    torch.testing.assert_close(out[2]['descriptors'],
                               model.describe(inputs[2]))
    with pytest.raises(ValueError, match="mode must be.*'train'"):
        model(inputs, mode='train')


# ----------------------------------------------------------- with the runner
def noisy_classes(classes=16, slots=4):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 200, (classes, 1, 32, 32))
    patches = (base + rng.integers(0, 56, (classes, slots, 32, 32)))
    ids = np.repeat(np.arange(classes) * 1000 + 3, slots)
    return PatchClassDataset(patches.reshape(-1, 32, 32).astype(np.uint8), ids)


def runner(work_dir, name, epochs, mode='online', resume=False,
           by_epoch=True):
    length = 'max_epochs' if by_epoch else 'max_iters'
    return Runner(
        make(mode=mode),
        str(work_dir),
        experiment_name=name,
        default_scope='mmrank',
        train_dataloader=dict(
            dataset=noisy_classes(), batch_size=8, num_workers=0,
            drop_last=True,
            sampler=dict(type='mmrank.DistinctClassSampler', batch_size=8,
                         num_samples=16 if by_epoch else 64)),
        train_cfg={'by_epoch': by_epoch, length: epochs},
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=.1, momentum=.5)),
        default_hooks=dict(
            logger=dict(type='LoggerHook', interval=1),
            checkpoint=dict(
                type='CheckpointHook', interval=1, by_epoch=by_epoch)),
        custom_hooks=[dict(type='mmrank.DescriptorBankHook')],
        randomness=dict(seed=3),
        log_level='ERROR',
        resume=resume)


@pytest.mark.parametrize('mode, by_epoch', [
    ('online', True), ('bank', True), ('bank', False)])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path, mode, by_epoch):
    name, options = f'{mode}{by_epoch}', dict(mode=mode, by_epoch=by_epoch)
    straight = runner(tmp_path / 'a', f'a{name}', 4, **options)
    straight.train()
    runner(tmp_path / 'b', f'b{name}', 2, **options).train()
    resumed = runner(tmp_path / 'b', f'c{name}', 4, resume=True, **options)
    resumed.train()
    state = resumed.model.state_dict()
    for key, value in straight.model.state_dict().items():
        assert torch.equal(value, state[key]), key
    assert int(state['sampler.step']) == (8 if by_epoch else 4)


def test_the_bank_holds_every_slot_as_the_network_describes_it():
    run_model = make(mode='bank').train()
    from mmrank.engine.hooks.descriptor_bank_hook import describe_classes
    dataset = noisy_classes()
    bank = describe_classes(run_model, dataset, classes_per_pass=5)
    assert bank.shape == (16, 4, 8) and run_model.backbone.training
    run_model.eval()
    torch.testing.assert_close(
        bank[7], run_model.describe(dataset[7]['inputs']).detach())


def test_works_with_mmengines_evaluator():
    from mmrank.evaluation import PatchVerificationMetric
    model = make().eval()
    inputs = [torch.randint(0, 256, (2, 1, 32, 32), dtype=torch.uint8)
              for _ in range(8)]
    for pair in inputs[:4]:
        pair[1] = pair[0]
    samples = dict(match=[True] * 4 + [False] * 4)
    evaluator = Evaluator(PatchVerificationMetric())
    evaluator.process(model(inputs, samples, mode='predict'))
    assert evaluator.evaluate(8) == {'pairs/FPR95': 0.0}
