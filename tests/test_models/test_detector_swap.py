"""RaMBO in place of the classification loss of mmdet's detectors."""

import copy
import warnings

import pytest
import torch

pytest.importorskip('mmdet')

from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.runner.checkpoint import load_state_dict

from ..smooth_ap import ThirtyLineSmoothAP
from ..tiny_detectors import build, make_batch, predict, step, tiny

C = 5
SMOOTH_AP = dict(type='mmrank.ThirtyLineSmoothAP', use_sigmoid=True)
RAMBO = dict(type='mmrank.RaMBOLoss', use_sigmoid=True, memory_batches=2,
             margin=0.15, lambda_val=0.5)
# detector: mmdet's config, our head's type (None: mmdet's own head)
DETECTORS = {
    'faster': ('faster_rcnn/faster-rcnn_r50_fpn_1x_coco', None),
    'faster_ours': ('faster_rcnn/faster-rcnn_r50_fpn_1x_coco',
                    'RankShared2FCBBoxHead'),
    'cascade': ('cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco', None),
    'cascade_ours': ('cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco',
                     'RankShared2FCBBoxHead'),
    'mask': ('mask_rcnn/mask-rcnn_r50_fpn_1x_coco', None),
    'libra': ('libra_rcnn/libra-faster-rcnn_r50_fpn_1x_coco', None),
    'double': ('double_heads/dh-faster-rcnn_r50_fpn_1x_coco', None),
    'double_ours': ('double_heads/dh-faster-rcnn_r50_fpn_1x_coco',
                    'RankDoubleConvFCBBoxHead'),
    'retina': ('retinanet/retinanet_r50_fpn_1x_coco', 'RankRetinaHead'),
    'atss': ('atss/atss_r50_fpn_1x_coco', 'RankATSSHead'),
    'fcos': ('fcos/fcos_r50-caffe_fpn_gn-head_1x_coco', None),
    'fcos_ours': ('fcos/fcos_r50-caffe_fpn_gn-head_1x_coco', 'RankFCOSHead'),
    'foveabox': ('foveabox/fovea_r50_fpn_4xb4-1x_coco', None),
    'yolof': ('yolof/yolof_r50-c5_8xb8-1x_coco', None),
    'detr': ('detr/detr_r50_8xb2-150e_coco', 'RankDETRHead'),
    'conditional_detr': (
        'conditional_detr/conditional-detr_r50_8xb2-50e_coco',
        'RankConditionalDETRHead'),
    'dab_detr': ('dab_detr/dab-detr_r50_8xb2-50e_coco', 'RankDABDETRHead'),
    'deformable_detr': (
        'deformable_detr/deformable-detr_r50_16xb2-50e_coco',
        'RankDeformableDETRHead'),
    'deformable_detr_two_stage': (
        'deformable_detr/deformable-detr-refine-twostage_r50_16xb2-50e_coco',
        'RankDeformableDETRHead'),
    'dino': ('dino/dino-4scale_r50_8xb2-12e_coco', 'RankDINOHead'),
}
QUERY = ('detr', 'conditional_detr', 'dab_detr', 'deformable_detr',
         'deformable_detr_two_stage', 'dino')
SILENT = ('foveabox', 'yolof')
_cache = {}


def model_config(path, num_classes=C):
    register_all_modules(init_default_scope=True)
    if path not in _cache:
        _cache[path] = Config.fromfile(_mmdet_config(path)).model
    # these build their positional encodings for a width of 256
    fixed = path.startswith('conditional') or 'twostage' in path \
        or path.startswith('dino')
    return tiny(copy.deepcopy(_cache[path]), num_classes,
                256 if fixed else 32)


def _mmdet_config(path):
    import os

    import mmdet
    return os.path.join(
        os.path.dirname(mmdet.__file__), '.mim', 'configs', f'{path}.py')


def heads_of(model):
    """The config dicts of the classification heads."""
    if 'roi_head' not in model:
        return [model['bbox_head']]
    heads = model['roi_head']['bbox_head']
    return heads if isinstance(heads, list) else [heads]


def swapped(name, num_classes=C, loss=RAMBO, **changes):
    path, type_ = DETECTORS[name]
    model = model_config(path, num_classes)
    for head in heads_of(model):
        head['loss_cls'] = dict(loss)
        if type_ is not None:
            head['type'] = f'mmrank.{type_}'
        if type_ in ('RankDETRHead', 'RankConditionalDETRHead',
                     'RankDABDETRHead'):
            head['num_decoder_layers'] = 2
        head.update(changes)
    # mmdet's own dense heads start all scores at 0.01, below its threshold
    if type_ is None and 'roi_head' not in model:
        model.test_cfg.score_thr = 0.
    return model


def losses_of(detector):
    return [module for module in detector.modules()
            if getattr(module, 'is_ranking_loss', False)]


@pytest.mark.parametrize('name', DETECTORS)
def test_every_detector_takes_two_steps_and_predicts(name):
    detector = build(swapped(name))
    optimizer = torch.optim.SGD(detector.parameters(), lr=1e-3)
    for seed in range(2):
        logged = step(detector, make_batch([3, 2], C, ignored=1, seed=seed),
                      optimizer)
        assert all(torch.tensor(list(logged.values())).isfinite()), logged
        # the parts are logged, and counted once: under names without "loss"
        total = sum(value for key, value in logged.items()
                    if 'loss' in key and key != 'loss')
        assert logged['loss'] == pytest.approx(total, rel=1e-4)
        # these heads of mmdet ask no loss what to log
        parts = [key for key in logged if key.endswith('cross_class_term')]
        assert parts or name in SILENT, logged
    for sample in predict(detector, make_batch([3, 2], C)):
        result = sample.pred_instances
        assert ((result.scores >= 0) & (result.scores <= 1)).all()
        assert ((result.labels >= 0) & (result.labels < C)).all()
        assert len(result) > 0


@pytest.mark.parametrize('name', [*DETECTORS, 'rpn'])
def test_a_loss_of_thirty_lines_trains_every_detector_under_autocast(name):
    if name == 'rpn':
        model = swapped('faster', loss=SMOOTH_AP)
        model.rpn_head.update(
            type='mmrank.RankRPNHead', loss_cls=dict(SMOOTH_AP))
    else:
        model = swapped(name, loss=SMOOTH_AP)
    detector = build(model)
    for module in detector.modules():
        # mmcv's NMS and RoIAlign have no bfloat16 on a CPU
        if type(module).__name__.endswith('RPNHead'):
            module.register_forward_hook(lambda head, inputs, outputs: tuple(
                [level.float() for level in part] for part in outputs))
        elif 'RoIExtractor' in type(module).__name__:
            module.register_forward_pre_hook(lambda _, inputs: (
                [level.float() for level in inputs[0]],
                inputs[1].float(), *inputs[2:]))
    losses = losses_of(detector)
    assert losses and all(type(loss) is ThirtyLineSmoothAP for loss in losses)
    optimizer = torch.optim.SGD(detector.parameters(), lr=1e-3)
    for autocast in (False, True):
        with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
            logged = step(detector, make_batch([3, 2], C), optimizer)
        assert all(torch.tensor(list(logged.values())).isfinite()), logged
        assert name in SILENT or any(
            key.endswith('ranked_classes') for key in logged)
        assert logged['loss_rpn_cls' if name == 'rpn' else [
            key for key in logged if key.endswith('loss_cls')][-1]] > 0
    for sample in predict(detector, make_batch([3, 2], C)):
        scores = sample.pred_instances.scores
        assert len(scores) and ((scores >= 0) & (scores <= 1)).all()


class Pretender(torch.nn.Module):
    """Says that it ranks, and derives from nothing that knows how."""

    is_ranking_loss = True
    use_sigmoid = custom_cls_channels = False
    memory_batches = 0

    def __init__(self, **options):
        super().__init__()


@pytest.mark.parametrize('name', ['faster', 'faster_ours', 'retina', 'fcos',
                                  'detr', 'dino'])
def test_a_flagged_loss_that_is_no_ranking_loss_is_refused_at_build(name):
    from mmrank.registry import MODELS
    MODELS.register_module(module=Pretender, force=True)
    try:
        with pytest.raises(ValueError, match='Pretender.*RankingLoss'):
            build(swapped(name, loss=dict(
                type='mmrank.Pretender', use_sigmoid=True)))
    finally:
        MODELS.module_dict.pop('Pretender')


@pytest.mark.parametrize('name', DETECTORS)
def test_images_without_objects_give_a_finite_loss_and_the_same_keys(name):
    detector = build(swapped(name))
    with_boxes = step(detector, make_batch([3, 2], C))
    detector = build(swapped(name))
    without = step(detector, make_batch([0, 0], C))
    assert set(with_boxes) == set(without)
    ranked = [value for key, value in without.items()
              if 'loss_cls' in key or 'loss_rpn' in key]
    assert ranked and all(torch.tensor(ranked).isfinite())
    # the loss of an empty batch is 0, never a number over a tiny count
    assert without[[k for k in without if k.endswith('loss_cls')][-1]] == 0


@pytest.mark.parametrize('name', ['faster', 'double', 'cascade', 'retina',
                                  'atss', 'fcos', 'detr', 'deformable_detr',
                                  'dino'])
def test_one_class_is_enough(name):
    detector = build(swapped(name, num_classes=1))
    optimizer = torch.optim.SGD(detector.parameters(), lr=1e-3)
    for seed in range(2):
        logged = step(detector, make_batch([3, 0], 1, seed=seed), optimizer)
        assert torch.tensor(logged['loss']).isfinite()
    for sample in predict(detector, make_batch([3, 0], 1)):
        assert (sample.pred_instances.labels == 0).all()


@pytest.mark.parametrize('name', ['faster', 'cascade', 'retina', 'fcos',
                                  'atss'])
def test_twenty_classes_need_no_setting_but_the_heads(name):
    detector = build(swapped(name, num_classes=20))
    assert torch.tensor(
        step(detector, make_batch([3, 2], 20))['loss']).isfinite()
    for sample in predict(detector, make_batch([3, 2], 20)):
        labels = sample.pred_instances.labels
        assert len(labels) and ((labels >= 0) & (labels < 20)).all()


@pytest.mark.parametrize('switch', ['custom_cls_channels',
                                    'custom_activation', 'custom_accuracy'])
def test_a_switch_of_mmdets_box_heads_works_without_the_others(
        switch, monkeypatch):
    from mmrank.models import RaMBOLoss
    for each in ('custom_cls_channels', 'custom_activation',
                 'custom_accuracy'):
        monkeypatch.setattr(RaMBOLoss, each, each == switch)
    detector = build(swapped('faster', num_classes=20,
                             loss=dict(RAMBO, num_classes=20)))
    classifier = detector.roi_head.bbox_head.fc_cls
    assert classifier.out_features == (
        20 if switch == 'custom_cls_channels' else 21)
    logged = step(detector, make_batch([3, 2], 20))
    assert 0 <= logged['loss_cls'] <= 1
    # with mmdet's own channels: the background column is not ranked
    assert not classifier.weight.grad[20:].any()
    for sample in predict(detector, make_batch([3, 2], 20)):
        assert (sample.pred_instances.labels < 20).all()


@pytest.mark.parametrize('scope', ['mmdet', 'mmrank', 'mmengine'])
def test_our_loss_and_mmdets_coder_are_built_from_every_scope(scope):
    from mmengine.registry import MODELS, TASK_UTILS, DefaultScope
    register_all_modules(init_default_scope=False)
    DefaultScope.get_instance(f'coder-{scope}', scope_name=scope)
    with DefaultScope.overwrite_default_scope(scope):
        loss = MODELS.build(dict(type='mmrank.RaMBOLoss'))
        coder = TASK_UTILS.build(dict(type='mmdet.DeltaXYWHBBoxCoder'))
    assert type(loss).__module__.startswith('mmrank.')
    assert type(coder).__module__.startswith('mmdet.')


def test_a_plain_name_in_mmdets_scope_is_named_in_the_error():
    head = build(swapped('faster')).roi_head.bbox_head
    assert type(head.loss_cls).__module__.startswith('mmrank.')
    assert type(head.bbox_coder).__module__.startswith('mmdet.')
    with pytest.raises(KeyError, match='RaMBOLoss is not in the mmdet'):
        build(swapped('faster', loss=dict(RAMBO, type='RaMBOLoss')))


@pytest.mark.parametrize('agnostic', [True, False])
def test_box_heads_may_be_class_agnostic(agnostic):
    detector = build(swapped('faster', reg_class_agnostic=agnostic))
    assert torch.tensor(step(detector, make_batch([2, 1], C))['loss']) > 0
    assert len(predict(detector, make_batch([2, 1], C))[0].pred_instances)


# -- one ranking over all levels ------------------------------------------

def test_ap_within_each_level_is_not_ap():
    from mmrank.models import RaMBOLoss
    from mmrank.models.heads.detection.dense import LevelJoiner
    loss = RaMBOLoss(margin=0., memory_batches=0)
    levels = [(torch.tensor([[.3], [.2]]), torch.tensor([0, 1])),
              (torch.tensor([[.9]]), torch.tensor([1]))]
    assert [float(loss(*level)) for level in levels] == [0, 0]
    joiner = LevelJoiner(loss, 2)
    assert float(sum(joiner(*level) for level in levels)) == 0.5


class Spy(torch.nn.Module):
    """Remembers what it is given, and passes it on."""

    def __init__(self, loss):
        super().__init__()
        self.loss, self.calls = loss, []
        self.use_sigmoid = loss.use_sigmoid
        self.calibration = loss.calibration
        self.get_accuracy = loss.get_accuracy

    def forward(self, *args, **kwargs):
        self.calls.append(args)
        return self.loss(*args, **kwargs)


@pytest.mark.parametrize('name', ['retina', 'atss', 'fcos'])
def test_a_dense_head_ranks_all_anchors_of_the_batch_in_one_call(name):
    detector = build(swapped(name))
    head = detector.bbox_head
    spy = Spy(head.loss_cls)
    head._modules['loss_cls'] = spy
    logged = step(detector, make_batch([3, 2], C))
    (call,) = spy.calls
    per_image = sum(
        (64 // stride)**2 if stride <= 64 else 1
        for stride in (8, 16, 32, 64, 128))
    anchors = head.num_base_priors
    assert len(call[0]) == 2 * anchors * per_image
    # the memory is empty in the first step, so the call can be repeated
    head.loss_cls.loss.memory.reset()
    assert logged['loss_cls'] == pytest.approx(
        head.loss_cls.loss(*call).item(), abs=1e-6)


def test_ignored_objects_take_no_part_in_a_dense_ranking():
    model = swapped('retina')
    model.train_cfg.assigner.ignore_iof_thr = 0.5
    detector = build(model)
    spy = Spy(detector.bbox_head.loss_cls)
    detector.bbox_head._modules['loss_cls'] = spy
    step(detector, make_batch([2, 2], C, ignored=3))
    scores, labels, weights = (value.detach() for value in spy.calls[0])
    ignored = weights == 0
    assert ignored.any()
    spy.loss.eval()  # without the memory
    value = float(spy.loss(scores, labels, weights))
    assert value == float(spy.loss(
        scores.masked_fill(ignored[:, None], 99.), labels, weights))


def test_objectness_of_proposals_can_be_ranked():
    model = swapped('faster')
    model.rpn_head.update(type='mmrank.RankRPNHead', loss_cls=dict(RAMBO))
    detector = build(model)
    logged = step(detector, make_batch([2, 0], C))
    assert 0 < logged['loss_rpn_cls'] <= 1
    assert {'rpn_cross_class_term', 'cross_class_term'} <= set(logged)
    # the initial objectness is not below the usual thresholds
    assert (predict(detector, make_batch([2, 0], C))[0]
            .pred_instances.scores > 0.05).all()


# -- decoder layers ---------------------------------------------------------

@pytest.mark.parametrize('name', QUERY)
def test_decoder_layers_do_not_share_a_memory(name):
    detector = build(swapped(name))
    step(detector, make_batch([3, 2], C))
    head = detector.bbox_head
    layers = [head.loss_cls, *head.auxiliary_losses.values()]
    assert len(layers) == 2 + ('two_stage' in name or name == 'dino')
    memories = [layer.memory.read() for layer in layers]
    assert all(len(layer.memory) == 1 for layer in layers)
    first, last = memories[1]['scores'], memories[0]['scores']
    assert first.shape == last.shape and not torch.equal(first, last)


def test_denoising_queries_are_ranked_alone_and_not_remembered():
    detector = build(swapped('dino'))
    head = detector.bbox_head
    spy = Spy(head.denoising_loss)
    head._modules['denoising_loss'] = spy
    logged = step(detector, make_batch([3, 2], C))
    assert {'dn_loss_cls', 'd0.dn_loss_cls'} <= set(logged)
    assert len(spy.calls) == 2  # decoder layers
    assert len(spy.loss.memory) == 0
    # two images, groups of a positive and a negative query a box
    assert len(spy.calls[0][0]) % (2 * 3 * 2) == 0


def test_a_decoder_of_another_depth_than_stated_is_an_error():
    model = swapped('detr')
    model.bbox_head.num_decoder_layers = 6
    with pytest.raises(ValueError, match='num_decoder_layers=6.*2 layers'):
        step(build(model), make_batch([1, 1], C))


# -- no proposals -----------------------------------------------------------

@pytest.mark.parametrize('name', ['faster_ours', 'cascade_ours',
                                  'double_ours'])
def test_without_any_proposal_the_keys_stay_and_the_loss_is_zero(name):
    from mmengine.structures import InstanceData
    detector = build(swapped(name))
    logged = step(detector, make_batch([3, 2], C))
    for loss in losses_of(detector):
        loss.reset()  # remembered positives are ranked without proposals too
    data = detector.data_preprocessor(make_batch([0, 0], C), True)
    proposals = [InstanceData(bboxes=torch.zeros(0, 4)) for _ in range(2)]
    losses = detector.roi_head.loss(
        detector.extract_feat(data['inputs']), proposals,
        data['data_samples'])
    assert {key for key in logged if 'rpn' not in key} == {*losses, 'loss'}
    total = sum(value for key, value in losses.items() if 'loss' in key)
    assert float(total) == 0
    total.backward()


def test_an_image_without_proposals_predicts_nothing():
    from mmengine.structures import InstanceData
    detector = build(swapped('faster')).eval()
    data = detector.data_preprocessor(make_batch([0], C), False)
    proposals = [InstanceData(bboxes=torch.zeros(0, 4))]
    (result,) = detector.roi_head.predict(
        detector.extract_feat(data['inputs']), proposals,
        data['data_samples'], rescale=False)
    assert len(result) == 0


# -- what a head cannot honour is refused when it is built ----------------

REFUSED = {
    'a loss a level': ('retinanet/retinanet_r50_fpn_1x_coco',
                       'RankRetinaHead'),
    'a loss a level, ATSS': ('atss/atss_r50_fpn_1x_coco', 'RankATSSHead'),
    'one memory for all layers': ('detr/detr_r50_8xb2-150e_coco',
                                  'RankDETRHead'),
    'soft targets, GFL': ('gfl/gfl_r50_fpn_1x_coco', 'quality targets'),
    'soft targets, VFNet': ('vfnet/vfnet_r50_fpn_1x_coco',
                            'quality targets'),
    'soft targets, TOOD': ('tood/tood_r50_fpn_1x_coco', 'quality targets'),
    'a loss a sample, PAA': ('paa/paa_r50_fpn_1x_coco', 'each sample'),
    'its own loss, FreeAnchor': (
        'free_anchor/freeanchor_r50_fpn_1x_coco', 'itself'),
    'softmax, SABL': ('sabl/sabl-faster-rcnn_r50_fpn_1x_coco', 'softmax'),
}


@pytest.mark.parametrize('case', REFUSED)
def test_a_head_that_cannot_honour_the_loss_is_refused_at_build(case):
    path, message = REFUSED[case]
    model = model_config(path)
    for head in heads_of(model):
        head['loss_cls'] = dict(RAMBO)
    with pytest.raises(ValueError, match=f'cannot be trained.*{message}'):
        build(model)


def test_ssd_has_no_place_for_a_loss_and_says_so_at_build():
    model = model_config('ssd/ssd300_coco')
    model.bbox_head.loss_cls = dict(RAMBO)
    with pytest.raises(TypeError, match="argument 'loss_cls'"):
        build(model)


def test_layers_may_share_a_loss_that_remembers_nothing():
    model = model_config('detr/detr_r50_8xb2-150e_coco')
    model.bbox_head.loss_cls = dict(RAMBO, memory_batches=0)
    step(build(model), make_batch([1, 2], C))


def test_a_class_count_other_than_the_head_s_is_refused_at_build():
    model = swapped('fcos', loss=dict(RAMBO, num_classes=C + 1))
    with pytest.raises(ValueError, match='num_classes=6.*num_classes=5'):
        build(model)


def test_a_dense_head_that_misses_use_sigmoid_is_refused_at_build():
    loss = {key: value for key, value in RAMBO.items()
            if key != 'use_sigmoid'}
    with pytest.raises(ValueError, match='write use_sigmoid=True'):
        build(swapped('fcos', loss=loss))
    build(swapped('fcos_ours', loss=loss))  # writes it itself


# -- channels and activations ----------------------------------------------

@pytest.mark.parametrize('name', ['faster', 'cascade', 'retina', 'fcos',
                                  'atss', 'double'])
def test_classifier_and_activation_agree_in_every_kind_of_head(name):
    detector = build(swapped(name))
    head = detector.roi_head.bbox_head if hasattr(detector, 'roi_head') \
        else detector.bbox_head
    head = head[0] if isinstance(head, torch.nn.ModuleList) else head
    loss = head.loss_cls
    if hasattr(detector, 'roi_head'):
        # mmdet reads its three switches in different places: all or none
        assert loss.custom_cls_channels and loss.custom_activation \
            and loss.custom_accuracy
        columns = head.fc_cls.out_features
        assert columns == (C + 1 if name == 'double' else C)
        scores = loss.get_activation(torch.randn(4, columns))
        # a background column for mmdet's NMS, whatever the classifier has
        assert scores.shape == (4, C + 1)
    else:
        assert head.use_sigmoid_cls and head.cls_out_channels == C
        assert not loss.custom_cls_channels


# -- checkpoints of cross-entropy ------------------------------------------

@pytest.mark.parametrize('name', ['faster', 'faster_ours', 'cascade'])
def test_a_cross_entropy_checkpoint_loads_by_name(name):
    path, _ = DETECTORS[name]
    ce = build(model_config(path))
    rambo = build(swapped(name))
    state = ce.state_dict()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        load_state_dict(rambo, state)
    assert any('background row' in str(w.message) for w in caught)
    heads = [ce.roi_head.bbox_head, rambo.roi_head.bbox_head]
    theirs, ours = (
        head[0] if isinstance(head, torch.nn.ModuleList) else head
        for head in heads)
    features = torch.randn(3, theirs.fc_cls.in_features)
    logits = theirs.fc_cls(features)
    torch.testing.assert_close(
        ours.fc_cls(features), logits[:, :-1] - logits[:, -1:])
    loaded = rambo.state_dict()
    for key, value in state.items():
        if 'fc_cls' not in key:
            assert torch.equal(loaded[key], value), key
    # and again: its own checkpoint is left as it is
    again = build(swapped(name))
    load_state_dict(again, loaded)
    assert torch.equal(again.state_dict()[
        [k for k in loaded if k.endswith('fc_cls.weight')][0]],
        loaded[[k for k in loaded if k.endswith('fc_cls.weight')][0]])


@pytest.mark.parametrize('name', ['retina', 'atss', 'fcos_ours', 'detr',
                                  'deformable_detr', 'dino'])
def test_a_focal_loss_checkpoint_loads_by_name(name):
    path, _ = DETECTORS[name]
    usual = build(model_config(path))
    rambo = build(swapped(name))
    theirs, ours = usual.state_dict(), rambo.state_dict()
    assert all('loss' in key for key in set(ours) - set(theirs))
    for key, value in theirs.items():
        if name == 'detr' and 'fc_cls' in key:
            value = value[:-1] - value[-1:]  # the background row
        assert ours[key].shape == value.shape, key
        theirs[key] = value
    load_state_dict(rambo, usual.state_dict())
    loaded = rambo.state_dict()
    assert all(torch.equal(loaded[key], theirs[key]) for key in theirs)


# -- the scale of the scores -------------------------------------------------

@pytest.mark.parametrize('name', ['faster', 'cascade', 'retina', 'atss',
                                  'fcos_ours', 'detr', 'deformable_detr'])
def test_calibration_changes_scores_and_leaves_the_ranking(name):
    model = swapped(name)
    thresholds = model.test_cfg.get('rcnn', model.test_cfg)
    thresholds.score_thr = 0.
    detector = build(model)
    batch = make_batch([2, 1], C)
    for parameter in detector.parameters():  # scores that differ
        parameter.data.add_(torch.randn_like(parameter) * 0.02)
    before = [sample.pred_instances for sample in predict(detector, batch)]
    for loss in losses_of(detector):
        loss.calibration.scale.fill_(2.)
        loss.calibration.bias.fill_(-1.)
    after = [sample.pred_instances for sample in predict(detector, batch)]
    for old, new in zip(before, after):
        assert len(old) > 1
        torch.testing.assert_close(new.bboxes, old.bboxes)
        assert torch.equal(new.labels, old.labels)
        torch.testing.assert_close(
            new.scores, torch.sigmoid(2 * torch.logit(old.scores) - 1))


@pytest.mark.parametrize('name', ['faster', 'retina', 'atss', 'fcos_ours'])
def test_a_threshold_speaks_of_the_calibrated_score(name):
    model = swapped(name)
    thresholds = model.test_cfg.get('rcnn', model.test_cfg)
    thresholds.score_thr = 0.
    detector = build(model)
    for parameter in detector.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.02)
    for loss in losses_of(detector):
        loss.calibration.scale.fill_(2.)
        loss.calibration.bias.fill_(-1.)
    batch = make_batch([2, 1], C)
    scores = predict(detector, batch)[0].pred_instances.scores
    middle = float(scores.median())
    cut = detector.roi_head.test_cfg if hasattr(detector, 'roi_head') \
        else detector.bbox_head.test_cfg
    cut.score_thr = middle
    kept = predict(detector, batch)[0].pred_instances.scores
    assert torch.equal(kept, scores[scores > middle])


def test_initial_scores_pass_the_usual_threshold():
    # A ranking loss does not move the common offset of the scores: with the
    # initial bias of focal loss all of them would stay at 0.01.
    for name in ('retina', 'atss', 'fcos_ours'):
        scores = predict(build(swapped(name)), make_batch([1, 1], C))[0]
        assert (scores.pred_instances.scores > 0.05).any()
