"""Annotations that do not fit: mended where plain, named where not."""

import itertools
import json
import re

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.runner import Runner
from mmengine.structures import InstanceData

from mmrank import config_path
from mmrank.__main__ import main
from mmrank.datasets.generators.digits_on_photos import (
    DigitsOnPhotosOptions,
    make_digits_on_photos,
)
from mmrank.datasets.generators.photo_patches import write_photo_patches
from mmrank.engine import launch
from mmrank.engine.check_data import check_data
from mmrank.visualization.sample_sheet import draw_sheet

from ..test_configs.coco_tree import add_lvis, make_coco_tree
from ..test_configs.voc_tree import make_voc_tree, write_image, write_list
from ..test_datasets.trees import make_tree
from ..toy import ToyModel  # noqa: F401

COUNT = itertools.count()


@MODELS.register_module(force=True)
class TrueDetector(BaseModel):
    """Knows which class each box is, and keeps what it is taught."""

    def __init__(self, classes, truth):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.classes, self.truth, self.taught = list(classes), truth, []

    def forward(self, inputs, data_samples, mode='tensor'):
        if mode == 'loss':
            for sample in data_samples:
                boxes = sample.gt_instances
                self.taught += [
                    (tuple(map(int, box)), int(label)) for box, label in zip(
                        boxes.bboxes.tensor.tolist(), boxes.labels)]
            return dict(loss=self.weight.sum())
        for sample in data_samples:
            sample.pred_instances = InstanceData(
                bboxes=torch.tensor([box for box, _ in self.truth]).float(),
                labels=torch.tensor([self.classes.index(name)
                                     for _, name in self.truth]),
                scores=torch.ones(len(self.truth)))
        return data_samples


PIPELINE = [dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations', with_bbox=True),
            dict(type='PackDetInputs', meta_keys=(
                'img_id', 'img_path', 'ori_shape', 'img_shape'))]


def loader(dataset, **kwargs):
    return dict(batch_size=2, num_workers=0,
                collate_fn=dict(type='pseudo_collate'),
                sampler=dict(type='DefaultSampler', shuffle=False),
                dataset=dict(dataset, pipeline=PIPELINE, **kwargs))


def coco(root, classes, file='annotations/instances_train2017.json', **kwargs):
    return dict(dict(
        type='CocoDataset', data_root=str(root), ann_file=file,
        data_prefix=dict(img='train2017/'),
        metainfo=dict(classes=tuple(classes)),
        filter_cfg=dict(filter_empty_gt=True)), **kwargs)


def voc(root, classes, **kwargs):
    return dict(
        type='VOCDataset', data_root=str(root),
        ann_file='ImageSets/Main/trainval.txt',
        data_prefix=dict(sub_data_root=''),
        metainfo=dict(classes=tuple(classes)),
        filter_cfg=dict(filter_empty_gt=True), **kwargs)


def config(folder, dataset, model=None, **kwargs):
    """The file of a config that trains on a data set for one epoch."""
    path = folder / f'config_{next(COUNT)}.py'
    cfg = Config(dict(
        default_scope='mmdet', model=model or dict(type='mmengine.ToyModel'),
        custom_imports=dict(imports=['mmrank', 'tests.toy', __name__]),
        train_dataloader=loader(dataset), train_cfg=dict(max_epochs=1,
                                                         by_epoch=True),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=.1)),
        default_hooks=dict(logger=None, checkpoint=None), **kwargs))
    cfg.dump(str(path))
    return path


def refuse(folder, dataset, said):
    """Training is refused, and check-data finds the same."""
    path = config(folder, dataset)
    with pytest.raises(ValueError, match=said):
        launch.train([str(path), '--work-dir', str(folder / 'work')])
    reports = check_data(str(path))
    assert any(re.search(said, fault) for report in reports
               for fault in report.faults), reports


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
    """COCO's, of cats and dogs, and LVIS's."""
    root = make_coco_tree(tmp_path_factory.mktemp('coco') / 'coco',
                          [(1, 'cat'), (2, 'dog')])
    add_lvis(root, [(1, 'cat'), (2, 'dog')])
    return root


def rewritten(tree, folder, **changes):
    """A copy of the annotations in which lists are replaced."""
    content = json.loads(
        (tree / 'annotations/instances_train2017.json').read_text())
    content.update(changes)
    path = folder / 'changed.json'
    path.write_text(json.dumps(content))
    return str(path)


# ----------------------------------------------------------------------- N21
def test_n21_unknown_names_are_refused_with_both_sides(tree, tmp_path):
    refuse(tmp_path, coco(tree, ['car']),
           r"none of the classes \['car'\].*whose names are \['cat', 'dog'\]")


def test_one_name_that_the_file_lacks_is_refused_with_the_near_one(
        tree, tmp_path):
    refuse(tmp_path, coco(tree, ['cat', 'dgo']),
           r"no class called \['dgo'\].*'dog' for 'dgo'")


def test_another_case_in_a_coco_file_is_refused(tree, tmp_path):
    refuse(tmp_path, coco(tree, ['cat', 'Dog']),
           "4 objects called 'dog'.*write 'Dog'")


def test_categories_that_no_image_has_are_refused(tree, tmp_path):
    file = rewritten(tree, tmp_path, annotations=[])
    refuse(tmp_path, coco(tree, ['cat', 'dog'], file),
           'no image has an object of any')


def test_two_categories_of_one_name_are_refused(tree, tmp_path):
    file = rewritten(tree, tmp_path, categories=[
        dict(id=i, name=n) for i, n in ((1, 'cat'), (2, 'dog'), (3, 'cat'))])
    refuse(tmp_path, coco(tree, ['cat', 'dog'], file),
           r"several categories called \['cat'\]")


# ----------------------------------------------------------------------- N22
TRUTH = [((4, 4, 28, 40), 'cat'), ((34, 8, 62, 40), 'dog')]


def run(tree, folder, classes, kind, file, ids):
    prefix = str(folder / 'results')
    # one file of annotations in the given order, for training and the metric
    content = json.loads((tree / file).read_text())
    named = {c['id']: c for c in content['categories']}
    content['categories'] = [dict(named[i], frequency='f') for i in ids]
    path = folder / 'order.json'
    path.write_text(json.dumps(content))
    dataset = coco(tree, classes, str(path), type=f'{kind}Dataset' if kind
                   == 'Coco' else 'LVISV1Dataset')
    if kind == 'LVIS':
        dataset['data_prefix'] = dict(img='')
    evaluator = dict(type=f'{kind}Metric', metric='bbox', classwise=True,
                     ann_file=str(path), outfile_prefix=prefix)
    cfg = config(folder, dataset, model=dict(
        type='mmengine.TrueDetector', classes=list(classes), truth=TRUTH),
        val_dataloader=loader(dataset, test_mode=True), val_cfg=dict(),
        val_evaluator=evaluator,
        visualizer=dict(type='DetLocalVisualizer'))
    runner = launch.train([str(cfg), '--work-dir', str(folder / 'work')])
    return runner, json.loads((folder / 'results.bbox.json').read_text())


@pytest.mark.parametrize('kind, file', [
    ('Coco', 'annotations/instances_train2017.json'),
    ('LVIS', 'annotations/lvis_v1_train.json')])
@pytest.mark.parametrize('classes', [('dog', 'cat'), ('cat', 'dog')])
@pytest.mark.parametrize('ids', [(1, 2), (2, 1)])
def test_n22_a_dog_is_a_dog_for_every_order(
        tree, tmp_path, monkeypatch, kind, file, classes, ids):
    # lvis's own evaluation still asks numpy for it
    monkeypatch.setattr(np, 'float', float, raising=False)
    runner, exported = run(tree, tmp_path, classes, kind, file, ids)
    wanted = {box: classes.index(name) for box, name in TRUTH}
    assert len(runner.model.taught) == 8
    assert all(wanted[box] == label for box, label in runner.model.taught)
    # the names with which pictures are drawn and checkpoints are saved
    assert runner.visualizer.dataset_meta['classes'] == tuple(classes)
    truth = {(x1, y1): dict(cat=1, dog=2)[name]
             for (x1, y1, _, _), name in TRUTH}
    assert {(tuple(map(int, e['bbox'][:2])), e['category_id'])
            for e in exported} == set(truth.items())
    scores = runner.message_hub.log_scalars
    found = {key.rsplit('/', 1)[-1]: value.current()
             for key, value in scores.items() if key.startswith('val/')}
    names = [key for key in found if key.endswith('mAP') or key in (
        'cat_precision', 'dog_precision', 'bbox_AP')]
    assert names and all(found[name] == 1 for name in names), found


def test_some_of_the_classes_in_another_order(tree, tmp_path):
    file = rewritten(tree, tmp_path, categories=[
        dict(id=3, name='cow'), dict(id=2, name='dog'),
        dict(id=1, name='cat')])
    # and repeated: the data set lies inside a wrapper
    dataset = dict(type='RepeatDataset', times=2,
                   dataset=dict(coco(tree, ['dog'], file), pipeline=PIPELINE))
    path = config(tmp_path, dataset, model=dict(
        type='mmengine.TrueDetector', classes=['dog'], truth=TRUTH))
    cfg = Config.fromfile(path)
    del cfg.train_dataloader.dataset['pipeline']
    cfg.dump(str(path))
    runner = launch.train([str(path), '--work-dir', str(tmp_path / 'work')])
    assert set(runner.model.taught) == {(TRUTH[1][0], 0)}


# ------------------------------------------------------------- N23, N28, N29
def voc_tree(root, names=('person', 'dog')):
    for number in ('000001', '000002', '000003'):
        write_image(root, number, [(names[0], (5, 4, 30, 40), False),
                                   (names[1], (32, 10, 60, 44), True)])
    write_list(root, 'trainval', ['000001', '000002', '000003'])
    return root


def test_n23_another_case_is_refused_with_the_near_name(tmp_path):
    root = voc_tree(tmp_path / 'voc', ('Person', 'dog'))
    refuse(tmp_path, voc(root, ['person', 'dog']),
           "3 objects called 'Person'.*write 'person'")


def test_n23_also_where_no_class_is_left(tmp_path):
    root = voc_tree(tmp_path / 'voc', ('Person', 'Dog'))
    refuse(tmp_path, voc(root, ['person', 'dog']),
           "'Person' for 'person', 'Dog' for 'dog'")


def test_n23_also_in_a_single_image(tmp_path):
    root = voc_tree(tmp_path / 'voc')
    write_image(root, '000002', [('PERSON', (5, 4, 30, 40), False)])
    refuse(tmp_path, voc(root, ['person', 'dog']), "1 objects.*'PERSON'")


def train_voc(root, folder):
    path = config(folder, voc(root, ['person', 'dog']), model=dict(
        type='mmengine.TrueDetector', classes=['person', 'dog'],
        truth=TRUTH))
    return launch.train([str(path), '--work-dir', str(folder / 'work')])


@pytest.mark.parametrize('suffix', ['.png', '.JPG', '.jpeg'])
def test_n28_images_of_another_suffix_are_found(tmp_path, suffix):
    root = voc_tree(tmp_path / 'voc')
    for path in (root / 'JPEGImages').glob('*.jpg'):
        image = cv2.imread(str(path))
        path.unlink()
        cv2.imwrite(str(path.with_suffix(suffix)), image)
    # less the difficult ones
    assert len(train_voc(root, tmp_path).model.taught) == 3
    report, = check_data(str(config(tmp_path, voc(root, ['person', 'dog']))))
    assert not report.faults
    assert any(f"end in ['{suffix}']" in note for note in report.notes)


def test_n28_an_image_that_is_nowhere_is_named(tmp_path):
    root = voc_tree(tmp_path / 'voc')
    (root / 'JPEGImages/000002.jpg').unlink()
    path = config(tmp_path, voc(root, ['person', 'dog']))
    with pytest.raises((FileNotFoundError, ValueError),
                       match='000002.jpg.*1 missing|1 images are missing.*'
                       '000002.jpg'):
        launch.train([str(path), '--work-dir', str(tmp_path / 'work')])


@pytest.mark.parametrize('damage, said', [
    (lambda text: text[:len(text) // 2], 'damaged'),
    (lambda text: b'', 'empty'),
    (lambda text: text.replace(b'person', 'garçon'.encode('latin-1')),
     'damaged.*not UTF-8.*ISO-8859-1'),
    (lambda text: text.replace(b'<xmin>5', b'<xmin>five'), 'no numbers'),
    (lambda text: text.replace(b'<name>dog</name>', b''), 'without name'),
])
def test_n29_a_damaged_annotation_is_named(tmp_path, damage, said):
    root = voc_tree(tmp_path / 'voc')
    file = root / 'Annotations/000002.xml'
    file.write_bytes(damage(file.read_bytes()))
    refuse(tmp_path, voc(root, ['person', 'dog']), f'000002.xml.*{said}')


def test_n29_latin_1_with_its_declaration_is_read(tmp_path):
    root = voc_tree(tmp_path / 'voc')
    file = root / 'Annotations/000002.xml'
    text = file.read_text().replace(
        '<name>dog', '<comment>garçon</comment><name>dog')
    file.write_bytes(
        ('<?xml version="1.0" encoding="ISO-8859-1"?>' + text).encode(
            'latin-1'))
    # less the difficult ones
    assert len(train_voc(root, tmp_path).model.taught) == 3


def test_a_missing_annotation_is_named(tmp_path):
    root = voc_tree(tmp_path / 'voc')
    (root / 'Annotations/000003.xml').unlink()
    refuse(tmp_path, voc(root, ['person', 'dog']), 'no annotation.*000003')


@pytest.mark.parametrize('content, said', [
    ('{"images": [', 'damaged or no JSON'),
    ('[]', 'lacks the lists'),
    ('{"images": [], "categories": []}', r"lacks the lists \['annotations'"),
])
def test_a_damaged_coco_file_is_named(tree, tmp_path, content, said):
    (tmp_path / 'cut.json').write_text(content)
    refuse(tmp_path, coco(tree, ['cat', 'dog'], str(tmp_path / 'cut.json')),
           f'cut.json.*{said}')


# ---------------------------------------------------------------- check-data
def test_check_data_shows_classes_sizes_and_what_is_dropped(tmp_path):
    root = voc_tree(tmp_path / 'voc', ('person', 'zebra'))
    report, = check_data(str(config(tmp_path, voc(root, ['person']))))
    assert report.images == 3
    assert report.rows == [('person', 3, 3, '25x36', 0)]
    text = str(report)
    assert 'boxes dropped: 3, class not in the config' in text
    assert 'zebra (3)' in text
    assert 'difficult or crowd: 3' in text


def test_check_data_draws_a_sheet_of_samples(tree, tmp_path):
    reports = check_data(str(config(tmp_path, coco(tree, ['cat', 'dog']))))
    file = tmp_path / 'new' / 'sheet.png'
    assert draw_sheet([s for r in reports for s in r.samples], file) == []
    sheet = cv2.imread(str(file))
    assert sheet.shape[1] == 6 * 192
    assert ((sheet[..., 2] > 200) & (sheet[..., 1] < 60)).sum() > 100  # red


def test_check_data_names_an_image_that_cannot_be_read(tmp_path):
    root = voc_tree(tmp_path / 'voc')
    (root / 'JPEGImages/000002.jpg').write_bytes(b'no image')
    report, = check_data(str(config(tmp_path, voc(root, ['person', 'dog']))))
    fault, = draw_sheet(report.samples, tmp_path / 'sheet.png')
    assert '000002.jpg cannot be read' in fault


def test_a_run_that_fails_for_another_reason_keeps_its_error(tree, tmp_path):
    path = config(tmp_path, coco(tree, ['cat', 'dog']))
    with pytest.raises(TypeError, match='forward|argument'):
        launch.train([str(path), '--work-dir', str(tmp_path / 'work')])


def test_a_runner_of_ones_own_checks_by_the_hook(tree, tmp_path):
    cfg = Config.fromfile(config(tmp_path, coco(tree, ['cat', 'dgo']),
                                 custom_hooks=[
        dict(type='mmrank.ClassNamesCheckHook')]))
    cfg.work_dir = str(tmp_path / 'work')
    with pytest.raises(ValueError, match="'dog' for 'dgo'"):
        Runner.from_cfg(cfg).train()


# -------------------------------------------------- the command, on all kinds
def command(*argv):
    return main(['check-data', *map(str, argv)])


def test_the_command_finds_each_fault_of_a_tree_with_one_of_each_kind(
        tree, tmp_path, capsys):
    root = voc_tree(tmp_path / 'voc', ('Person', 'dog'))
    (root / 'Annotations/000002.xml').write_text('<annotation><obj')
    (root / 'JPEGImages/000003.jpg').unlink()
    lists = tmp_path / 'lists'
    lists.mkdir()
    for name in ('1.png', '2.png'):
        cv2.imwrite(str(lists / name), np.zeros((8, 8), np.uint8))
    (lists / 'list.csv').write_text('path,label\n1.png,x\n2.png,y\n')
    cfg = Config.fromfile(config(tmp_path, coco(tree, ['cat', 'cow'])))
    cfg.val_dataloader = dict(dataset=voc(root, ['person', 'dog']))
    cfg.test_dataloader = dict(dataset=dict(
        type='mmrank.CSVRetrievalDataset', data_root=str(lists)))
    cfg.dump(str(tmp_path / 'faulty.py'))
    sheet = tmp_path / 'sheet.png'
    assert command(tmp_path / 'faulty.py', '--sheet', sheet) == 1
    said = capsys.readouterr().out
    for fault in (r"no class called \['cow'\]", '000002.xml is damaged',
                  "'Person', which metainfo classes write 'person'",
                  '1 images are missing.*000003.jpg',
                  'one image has two labels: line 2', '5 faults'):
        assert re.search(fault, said, re.S), (fault, said)
    assert sheet.is_file()


@pytest.mark.parametrize('name', [
    'proxy_anchor/proxy-anchor_small_glyphs.py',
    'proxy_anchor/proxy-anchor_r50_cub200.py',
    'proxy_anchor/proxy-anchor_r50_cars196.py',
    'proxy_anchor/proxy-anchor_r50_sop.py',
    'proxy_anchor/proxy-anchor_r50_inshop.py'])
def test_the_command_runs_on_shipped_retrieval_sets(tmp_path, capsys, name):
    kind = name.rsplit('_', 1)[1][:-3]
    kind = dict(cub200='cub', cars196='cars').get(kind, kind)
    options = []
    if kind != 'glyphs':
        root = make_tree(kind, tmp_path / kind)
        options = ['--cfg-options', *(
            f'{part}_dataloader.dataset.data_root={root}'
            for part in ('train', 'val', 'test'))]
    sheet = tmp_path / 'sheet.png'
    assert command(name, '--sheet', sheet, *options) == 0
    assert 'images a class' in capsys.readouterr().out
    assert sheet.is_file()


def test_the_command_runs_on_shipped_patches(tmp_path, capsys):
    root = tmp_path / 'photo_patches'
    write_photo_patches(root, keypoints_per_photo=8, num_pairs=40)
    sheet = tmp_path / 'sheet.png'
    sets = dict(train='phototour', val='phototour', test='hpatches')
    assert command(
        'adasample/l2net-small_adasample_photo-patches.py', '--sheet', sheet,
        '--cfg-options', *(
            f'{part}_dataloader.dataset.data_root={root / name}'
            for part, name in sets.items())) == 0
    said = capsys.readouterr().out
    assert 'PhotoTourDataset' in said and 'HPatchesDataset' in said
    assert sheet.is_file()


def test_the_command_runs_on_shipped_digits(tmp_path, capsys):
    root = tmp_path / 'digits'
    make_digits_on_photos(root, DigitsOnPhotosOptions(
        num_train=3, num_val=2, num_test=2))
    sheet = tmp_path / 'sheet.png'
    command('rambo/faster-rcnn_r18_fpn_rambo_digits.py', '--sheet', sheet,
            '--cfg-options', *(
                f'{part}_dataloader.dataset.data_root={root}'
                for part in ('train', 'val', 'test')))
    said = capsys.readouterr().out
    assert said.count('10 classes') == 3
    assert sheet.is_file()


def test_the_command_runs_on_shipped_voc(tmp_path, capsys):
    make_voc_tree(tmp_path / 'VOCdevkit')
    options = [f'{part}_dataloader.dataset.data_root={tmp_path}/VOCdevkit/'
               for part in ('train', 'val', 'test')]
    sheet = tmp_path / 'sheet.png'
    assert command('rambo/faster-rcnn_r50_fpn_rambo_voc07.py', '--sheet',
                   sheet, '--cfg-options', *options) == 0
    assert re.search(r'dog +2 +2 ', capsys.readouterr().out)


@pytest.mark.parametrize('kind, name', [
    ('coco', 'retinanet_r50_fpn_1x_rambo_coco.py'),
    ('lvis', 'retinanet_r50_fpn_1x_rambo_lvis-v1.py')])
def test_the_command_runs_on_shipped_coco_and_lvis(
        tmp_path, capsys, kind, name):
    from mmdet.datasets import CocoDataset, LVISV1Dataset
    names = (CocoDataset if kind == 'coco' else LVISV1Dataset
             ).METAINFO['classes']
    root = make_coco_tree(tmp_path / 'coco', enumerate(names, 1))
    add_lvis(root, enumerate(names, 1))
    cfg = Config.fromfile(config_path(f'rambo/{name}'))
    for part in ('train', 'val', 'test'):
        dataset = cfg[f'{part}_dataloader'].dataset
        dataset.get('dataset', dataset).data_root = f'{root}/'
    cfg.dump(str(tmp_path / name))
    assert command(tmp_path / name, '--sheet', tmp_path / 'sheet.png') == 0
    said = capsys.readouterr().out
    assert f'{len(names)} classes' in said and 'FAULT' not in said


def test_an_error_of_the_command_is_one_line(tmp_path, capsys):
    assert command(tmp_path / 'nothing.py') == 1
    said = capsys.readouterr().err
    assert said.count('\n') == 1 and 'nothing.py' in said
