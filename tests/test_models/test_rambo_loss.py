"""RaMBO's detection loss: the oracle, mmdet's convention, its memory."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

from mmrank.models.losses import RaMBOLoss
from mmrank.registry import MODELS

from ..oracles import pairwise_map

C = 4
QUIET = dict(margin=0., memory_batches=0)


def batch(n=40, classes=C, dtype=torch.float32, ties=False, foreground=True):
    scores = torch.randn(n, classes, dtype=dtype)
    if ties:
        scores = (scores * 2).round() / 2
    labels = torch.randint(0, classes + 1, (n, )) if foreground else \
        torch.full((n, ), classes)
    return scores.requires_grad_(), labels


def one_hot(labels, classes=C):
    return labels[:, None] == torch.arange(classes)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('ties', [False, True])
@pytest.mark.parametrize('widen', [False, True])
def test_loss_equals_the_oracle_with_a_growing_memory(dtype, ties, widen):
    loss = RaMBOLoss(lambda_val=5., memory_batches=2,
                     memory_in_cross_class=widen)
    seen = []
    for n in (30, 0, 17, 40, 25):
        scores, labels = batch(n, dtype=dtype, ties=ties)
        value = loss(scores, labels)
        value.backward()
        memory = tuple(torch.cat(part) for part in zip(*seen[-2:])) \
            if seen else None
        expected, gradient = pairwise_map(
            scores.detach(), one_hot(labels), .15, 5., memory=memory,
            memory_in_cross_class=widen)
        assert value.item() == pytest.approx(
            expected.item(), rel=1e-6 if dtype == torch.float32 else 1e-12)
        torch.testing.assert_close(
            scores.grad, gradient.to(dtype), rtol=1e-5, atol=1e-9)
        seen.append((scores.detach(), one_hot(labels)))


def test_batches_without_positives_are_zero_with_a_gradient_and_one_warning():
    loss = RaMBOLoss(memory_batches=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        for _ in range(120):
            scores, labels = batch(8, foreground=False)
            value = loss(scores, labels)
            value.backward()
            assert value == 0
            assert torch.equal(scores.grad, torch.zeros_like(scores))
    assert ['positive' in str(one.message) for one in caught] == [True]


@pytest.mark.parametrize('columns', [C, C + 1])
def test_no_rows_are_zero_and_keep_the_graph(columns):
    scores = torch.randn(0, columns, requires_grad=True)
    value = RaMBOLoss(num_classes=C)(scores, torch.zeros(0).long())
    value.backward()
    assert value == 0 and scores.grad.shape == (0, columns)


def test_one_class_is_finite_and_learns():
    scores, labels = batch(20, classes=1)
    value = RaMBOLoss(lambda_val=20.)(scores, labels)
    value.backward()
    assert 0 < value < 1 and scores.grad.any()


@pytest.mark.parametrize('columns', [3, 4])
def test_background_is_label_c_with_and_without_a_background_column(columns):
    scores = torch.randn(3, columns, requires_grad=True)
    loss = RaMBOLoss(num_classes=3, lambda_val=20., **QUIET)
    value = loss(scores, torch.tensor([0, 3, 2]))
    value.backward()
    expected, gradient = pairwise_map(
        scores.detach()[:, :3],
        torch.tensor([[1, 0, 0], [0, 0, 0], [0, 0, 1]]).bool(), 0., 20.)
    assert value.item() == pytest.approx(expected.item())
    torch.testing.assert_close(scores.grad[:, :3], gradient.float())
    # the background column is not ranked as a class
    assert not scores.grad[:, 3:].any()
    activated = loss.get_activation(scores)
    assert activated.shape == (3, 4)
    assert torch.equal(activated[:, :3], scores[:, :3].sigmoid())
    assert not activated[:, 3].any()


def test_softmax_convention_without_a_known_class_count_drops_the_last_column(
):
    scores, labels = batch(30, classes=5)
    assert RaMBOLoss(use_sigmoid=False, **QUIET)(scores, labels.clamp(
        max=4)) == RaMBOLoss(**QUIET)(scores[:, :4], labels.clamp(max=4))


def test_zero_weight_and_ignored_samples_take_no_part():
    scores, labels = batch(40)
    weight = torch.rand(40) + .1
    weight[:10] = 0
    labels[10:20] = -1
    value = RaMBOLoss()(scores, labels, weight)
    value.backward()
    assert value == RaMBOLoss()(scores[20:], labels[20:])
    assert not scores.grad[:20].any()


@pytest.mark.parametrize('avg_factor', [None, 1, 5., 1000])
@pytest.mark.parametrize('override', [None, 'mean'])
@pytest.mark.parametrize('weight', [None, torch.ones(40)])
def test_avg_factor_does_not_rescale_a_normalised_loss(avg_factor, override,
                                                       weight):
    scores, labels = batch()
    assert RaMBOLoss(reduction='mean')(
        scores, labels, weight, avg_factor=avg_factor,
        reduction_override=override) == RaMBOLoss()(scores, labels)


@pytest.mark.parametrize('reduction', ['sum', 'none'])
def test_other_reductions_are_refused_by_name(reduction):
    with pytest.raises(ValueError, match=reduction):
        RaMBOLoss()(*batch(), reduction_override=reduction)
    with pytest.raises(ValueError, match=reduction):
        RaMBOLoss(reduction=reduction)


def test_few_positives_never_scale_the_loss_above_one():
    scores, labels = batch(5000, foreground=False)
    labels[0] = 1
    assert 0 <= RaMBOLoss()(scores, labels) <= 1


@pytest.mark.parametrize('weight', [0.1, 3.])
def test_loss_weight_multiplies_and_leaves_lambda_alone(weight):
    scores, labels = batch()
    gradients = []
    for each in (1., weight):
        value = RaMBOLoss(loss_weight=each, lambda_val=20.)(scores, labels)
        gradients.append(torch.autograd.grad(value, scores)[0])
    assert gradients[0].any()
    torch.testing.assert_close(gradients[1], weight * gradients[0])


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_gradient_has_the_type_of_half_precision_logits(dtype):
    scores = torch.randn(30, C).to(dtype).requires_grad_()
    value = RaMBOLoss(lambda_val=20.)(scores, torch.randint(0, C + 1, (30, )))
    value.backward()
    assert value.dtype == torch.float32
    assert scores.grad.dtype == dtype and scores.grad.any()


def scaled_training(scale, autocast):
    torch.manual_seed(1)
    model = nn.Linear(6, C)
    loss = RaMBOLoss(lambda_val=20., memory_batches=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=.5)
    for _ in range(20):
        features, labels = torch.randn(30, 6), torch.randint(0, C + 1, (30, ))
        with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
            value = loss(model(features), labels)
        optimizer.zero_grad()
        (scale * value).backward()
        # what a gradient scaler does before the step
        for parameter in model.parameters():
            parameter.grad /= scale
        optimizer.step()
    return model.weight.detach()


@pytest.mark.parametrize('autocast', [False, True])
def test_twenty_steps_with_a_loss_scaler_equal_those_without(autocast):
    torch.testing.assert_close(
        scaled_training(65536., autocast), scaled_training(1., autocast),
        rtol=1e-5, atol=1e-6)


def test_twenty_autocast_steps_with_a_grad_scaler_equal_the_unscaled_run():
    if not hasattr(torch.amp, 'GradScaler'):
        pytest.skip('torch has no gradient scaler for CPU')
    weights = []
    for enabled in (False, True):
        torch.manual_seed(1)
        model = nn.Linear(6, C)
        loss = RaMBOLoss(lambda_val=20.)
        optimizer = torch.optim.SGD(model.parameters(), lr=.5)
        scaler = torch.amp.GradScaler('cpu', enabled=enabled)
        for _ in range(20):
            with torch.autocast('cpu', torch.bfloat16):
                value = loss(model(torch.randn(30, 6)),
                             torch.randint(0, C + 1, (30, )))
            optimizer.zero_grad()
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
        weights.append(model.weight.detach())
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-6)


def test_calls_repeat_exactly_and_the_margin_is_off_in_evaluation():
    scores, labels = batch()
    loss = RaMBOLoss(margin=1., memory_batches=0)
    assert loss(scores, labels) == loss(scores, labels)
    plain = RaMBOLoss(**QUIET)(scores, labels)
    assert loss(scores, labels) > plain
    assert loss.eval()(scores, labels) == plain
    with torch.no_grad():
        assert loss.train()(scores, labels) == plain


def test_random_margins_follow_the_seed():
    scores, labels = batch()
    loss = RaMBOLoss(margin=1., memory_batches=0, random_margin=True)
    values = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        values.append(loss(scores, labels).item())
    assert values[0] == values[1] != values[2]


def test_memory_is_not_touched_in_evaluation_or_without_gradients():
    loss = RaMBOLoss()
    loss(*batch())
    before = loss.memory.read()
    scores, labels = batch()
    with torch.no_grad():
        loss(scores, labels)
    loss.eval()(scores, labels)
    after = loss.memory.read()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_memory_of_size_zero_remembers_nothing():
    loss = RaMBOLoss(memory_batches=0)
    for _ in range(3):
        loss(*batch())
    assert len(loss.memory) == 0 and not [
        name for name in loss.state_dict() if 'memory' in name]


def test_memory_is_saved_restored_exactly_moved_and_reset():
    loss = RaMBOLoss(memory_batches=2)
    for n in (5, 9, 7):
        loss(*batch(n))
    resumed = RaMBOLoss(memory_batches=2)
    resumed.load_state_dict(copy.deepcopy(loss.state_dict()))
    scores, labels = batch()
    assert loss(scores, labels) == resumed(scores, labels)
    assert len(loss.memory) == 2
    loss.reset()
    assert loss(scores, labels) == RaMBOLoss()(scores, labels)


def test_another_class_count_empties_the_memory_with_a_warning():
    loss = RaMBOLoss()
    loss(*batch(classes=C))
    scores, labels = batch(classes=2)
    with pytest.warns(UserWarning, match='4 classes.* 2'):
        value = loss(scores, labels)
    assert value == RaMBOLoss()(scores, labels)


def test_nan_scores_give_nan_and_are_not_remembered():
    loss = RaMBOLoss()
    scores, labels = batch()
    assert loss(scores + math.nan, labels).isnan()
    assert len(loss.memory) == 0


def test_bounded_memory_keeps_positives_and_each_class_highest_negatives():
    loss = RaMBOLoss(memory_negatives=2)
    scores, labels = batch(60)
    labels[5:] = C
    loss(scores, labels)
    seen = loss.memory.read()
    assert len(seen['labels']) <= 5 + 2 * C
    kept = {tuple(row) for row in seen['scores'].tolist()}
    for c in range(C):
        negatives = scores.detach()[labels != c]
        for row in negatives[negatives[:, c].topk(2).indices].tolist():
            assert tuple(row) in kept
    assert all(tuple(row) in kept for row in scores[:5].tolist())


def test_unbounded_memory_is_exact_and_a_bound_beyond_the_batch_too():
    scores, labels = batch(20)
    for bound in (None, 20):
        loss = RaMBOLoss(memory_negatives=bound)
        loss(scores, labels)
        assert len(loss.memory.read()['labels']) == 20


def test_parts_are_logged_and_not_added_to_the_total_twice():
    scores = torch.tensor([[.9, .25], [.5, .3]], requires_grad=True)
    loss = RaMBOLoss(map_weight=.7, cross_class_weight=.3, **QUIET)
    value = loss(scores, torch.tensor([0, 1]))
    logged = loss.get_accuracy(scores, torch.tensor([0, 1]))
    assert value.item() == pytest.approx(.05)
    assert logged['per_class_term'] == 0
    assert logged['cross_class_term'].item() == pytest.approx(1 / 6)
    assert logged['acc_classes'] == 50
    assert not any('loss' in name for name in logged)
    assert not any(part.requires_grad for part in logged.values())


def test_logged_keys_are_the_same_with_and_without_positives_or_rows():
    keys = set()
    for n, foreground in ((30, True), (30, False), (0, True)):
        loss = RaMBOLoss()
        scores, labels = batch(n, foreground=foreground)
        loss(scores, labels)
        keys.add(tuple(loss.get_accuracy(scores, labels)))
    assert len(keys) == 1


def test_all_three_hooks_of_mmdets_heads_come_together():
    loss = RaMBOLoss()
    assert loss.custom_cls_channels and loss.custom_activation \
        and loss.custom_accuracy
    assert loss.get_cls_channels(20) == 20
    assert RaMBOLoss(use_sigmoid=False).get_cls_channels(20) == 21


def test_another_class_count_than_the_heads_is_refused_at_build():
    with pytest.raises(ValueError, match='num_classes=80.*num_classes=3'):
        RaMBOLoss(num_classes=80).get_cls_channels(3)


def test_a_prediction_keeps_the_order_of_the_logits():
    scores = torch.randn(50, C)
    activated = RaMBOLoss().get_activation(scores)[:, :C]
    assert torch.equal(activated.argsort(0), scores.argsort(0))
    assert ((activated > .05) == (scores > math.log(.05 / .95))).all()


@pytest.mark.parametrize(('labels', 'message'), [
    ((torch.zeros(5).long(), torch.rand(4)), 'quality'),
    ((torch.zeros(5).long(), ), 'tuple'),
    (torch.rand(5, C), 'soft'),
    (torch.rand(5), 'float'),
    (torch.zeros(4).long(), '4 labels'),
    (torch.full((5, ), C + 1), 'at most 4'),
])
def test_labels_that_cannot_be_ranked_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        RaMBOLoss()(torch.randn(5, C), labels)


@pytest.mark.parametrize('options', [
    dict(lambda_val=0), dict(lambda_val=math.inf), dict(margin=-.1),
    dict(memory_batches=-1), dict(memory_batches=1.5), dict(loss_weight=-1),
    dict(map_weight=-1), dict(num_classes=0), dict(memory_negatives=0),
    dict(map_weight=0, cross_class_weight=0), dict(distributed='both'),
])
def test_bad_options_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        RaMBOLoss(**options)


def test_columns_that_fit_no_convention_are_named():
    with pytest.raises(ValueError, match='4 columns.*got 7'):
        RaMBOLoss(num_classes=4)(torch.randn(2, 7), torch.zeros(2).long())


def test_it_is_built_by_its_scoped_name_from_any_default_scope():
    from mmengine.registry import DefaultScope
    for scope in ('mmrank', 'mmengine'):
        with DefaultScope.overwrite_default_scope(scope):
            assert isinstance(
                MODELS.build(dict(type='mmrank.RaMBOLoss')), RaMBOLoss)


@pytest.mark.parametrize('backend', ['eager', 'aot_eager'])
def test_a_compiled_model_with_the_loss_trains_the_same(backend):

    class Model(nn.Module):

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, C)
            self.loss = RaMBOLoss(lambda_val=20., memory_batches=2)

        def forward(self, features, labels):
            return self.loss(self.fc(features), labels)

    first = Model()
    second = copy.deepcopy(first)
    compiled = torch.compile(second, backend=backend)
    for _ in range(2):
        features, labels = torch.randn(30, 6), torch.randint(0, C + 1, (30, ))
        values = first(features, labels), compiled(features, labels)
        sum(values).backward()
        torch.testing.assert_close(*values)
        torch.testing.assert_close(
            first.fc.weight.grad, second.fc.weight.grad)
