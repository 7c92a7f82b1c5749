"""Lists of images: what contradicts itself is refused with both rows."""

import os
import shutil

import numpy as np
import pytest
import torch
from mmengine.dataset import ConcatDataset as PlainConcatDataset
from mmengine.evaluator import Evaluator
from PIL import Image

from mmrank.datasets import (
    ConcatDataset,
    CSVRetrievalDataset,
    HPatchesDataset,
    PhotoTourDataset,
)
from mmrank.datasets.samplers import ClassBalancedBatchSampler, labels_of
from mmrank.evaluation import RetrievalMetric
from mmrank.functional import retrieval_metrics
from mmrank.registry import DATASETS

PIPELINE = [dict(type='mmrank.LoadImage'),
            dict(type='mmrank.PackRetrievalInputs')]


def make_list(root, rows, heading='path,label'):
    """A list, and images of greys that tell them apart."""
    root.mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        path = root / row.split(',')[0].strip()
        if not path.exists():
            Image.fromarray(np.full((8, 8), 3 * number, np.uint8)).save(path)
    (root / 'list.csv').write_text('\n'.join([heading, *rows]) + '\n')
    return str(root)


def read(root, rows, heading='path,label', **kwargs):
    return CSVRetrievalDataset(make_list(root, rows, heading), **kwargs)


# ------------------------------------------------------------ labels of a CSV
def test_padded_cells_are_the_same_labels(tmp_path):
    data = read(tmp_path, ['0.png ,cat', '1.png, cat ', ' 2.png,dog\t'],
                ' path, label ')
    assert data.metainfo['classes'] == ('cat', 'dog')
    assert data.get_labels().tolist() == [0, 0, 1]


def test_labels_that_differ_in_case_are_refused_with_both_rows(tmp_path):
    rows = ['0.png,cat', '1.png,dog', '2.png,Cat']
    with pytest.raises(ValueError, match="'cat' of line 2 and 'Cat' of line "
                       '4 differ in case only.*labels_by_case'):
        read(tmp_path, rows)
    data = read(tmp_path, rows, labels_by_case=True)
    assert data.metainfo['classes'] == ('Cat', 'cat', 'dog')


# ----------------------------------------------------------------------- N12
def link(a, b):
    b.symlink_to(a.name)


def copy(a, b):
    shutil.copy(a, b)


@pytest.mark.parametrize('make', [link, copy, os.link])
def test_n12_one_file_under_two_labels_is_refused(tmp_path, make):
    make_list(tmp_path, ['0.png,x', '1.png,y'])
    make(tmp_path / '0.png', tmp_path / 'other.png')
    with pytest.raises(ValueError, match=r"one image has two labels: line 2 "
                       r"\(0.png, label 'x'\) and line 4 \(other.png, label "
                       r"'y'\)"):
        read(tmp_path, ['0.png,x', '1.png,y', 'other.png,y'])


@pytest.mark.parametrize('path', ['0.png', './0.png', '../{}/0.png'])
@pytest.mark.parametrize('check', [True, False])
def test_n12_also_by_path_however_it_is_written(tmp_path, path, check):
    path = path.format(tmp_path.name)
    with pytest.raises(ValueError, match='line 2 .* and line 3 '):
        read(tmp_path, ['0.png,x', f'{path},y'], check_images=check)


def test_rows_of_another_split_do_not_count(tmp_path):
    rows = ['0.png,x,train', '0.png,y,test']
    data = read(tmp_path, rows, 'path,label,split', split='train')
    assert len(data) == 1


# ----------------------------------------------------------------------- N11
HEADING = 'path,label,is_query'
LISTED = ['0.png,x,1', '1.png,x,0', '2.png,y,1', '3.png,y,0']


@pytest.mark.parametrize('make', [None, link, copy])
def test_n11_one_file_as_query_and_gallery_is_refused(tmp_path, make):
    make_list(tmp_path, LISTED, HEADING)
    name = '2.png' if make is None else 'again.png'
    if make:
        make(tmp_path / '2.png', tmp_path / name)
    rows = [*LISTED, f'{name},y,0']
    with pytest.raises(ValueError, match=r'query and in the gallery.*line 4 '
                       rf'\(2.png.*line 6 \({name}.*allow_query_in_gallery'):
        read(tmp_path, rows, HEADING)


class Embedded:
    """Evaluates embeddings by way of the packed samples of a data set."""

    def __init__(self, data, embeddings, ks=(1, )):
        evaluator = Evaluator(RetrievalMetric(ks=ks, with_map=True))
        samples = [data[i]['data_samples'] for i in range(len(data))]
        for sample, row in zip(samples, embeddings):
            sample.pred_embedding = torch.as_tensor(row).float()
        evaluator.process(samples)
        self.found = evaluator.evaluate(len(data))

    def __getitem__(self, name):
        return self.found[f'retrieval/{name}']


def test_n11_by_option_it_is_no_neighbour_of_itself(tmp_path):
    rows = [*LISTED, '0.png,x,0', '2.png,y,0']
    data = read(tmp_path, rows, HEADING, pipeline=PIPELINE,
                allow_query_in_gallery=True)
    # query 0 would be nearest to itself, then comes a wrong one; query 2
    # would be too, then comes a right one
    found = Embedded(data, np.array(
        [[1., 0], [-1, 0], [0, 1], [.1, 1], [1, 0], [0, 1]]))
    assert found['num_queries'] == 2
    assert found['R@1'] == .5


def test_n11_the_copy_still_counts_for_the_other_queries(tmp_path):
    rows = [f'{i}.png,{i % 5},{int(i < 20)}' for i in range(60)]
    data = read(tmp_path, [*rows, '0.png,0,0'], HEADING, pipeline=PIPELINE,
                allow_query_in_gallery=True)
    x = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60) % 5
    got = Embedded(data, torch.cat([x, x[:1]]), ks=(1, 4))
    first = retrieval_metrics(x[:1], y[:1], x[20:], y[20:], ks=(1, 4))
    others = retrieval_metrics(x[1:20], y[1:20], torch.cat([x[20:], x[:1]]),
                               torch.cat([y[20:], y[:1]]), ks=(1, 4))
    assert got['num_queries'] == 20
    for name in ('R@1', 'R@4', 'MAP@R', 'mAP'):
        assert got[name] == pytest.approx(
            (first[name] + 19 * others[name]) / 20)


# ------------------------------------------------------------------ N01, N16
def halves(tmp_path, shift=0):
    """Two lists of 10 images, 5 classes each, and one list of all 20."""
    names = [f'c{i % 5}' for i in range(10)]
    others = [f'c{i % 5 + shift}' for i in range(10)]
    rows = [[f'{i}.png,{n}' for i, n in enumerate(part)]
            for part in (names, others)]
    roots = [make_list(tmp_path / str(k), part) for k, part in
             enumerate(rows)]
    # of the second, other images
    for i in range(10):
        Image.fromarray(np.full((8, 8), 100 + i, np.uint8)).save(
            tmp_path / '1' / f'{i}.png')
    whole = [f'{k}/{row}' for k, part in enumerate(rows) for row in part]
    (tmp_path / 'list.csv').write_text('\n'.join(['path,label', *whole]))
    parts = [CSVRetrievalDataset(root, pipeline=PIPELINE) for root in roots]
    return parts, CSVRetrievalDataset(str(tmp_path), pipeline=PIPELINE)


@pytest.mark.parametrize('kind', [ConcatDataset, PlainConcatDataset])
def test_n01_a_joined_set_is_evaluated_as_one_with_all_images(
        tmp_path, kind):
    parts, whole = halves(tmp_path)
    joined = kind(parts)
    values = np.random.default_rng(1).normal(size=(20, 4))
    got, want = (Embedded(data, values).found for data in (joined, whole))
    assert want['retrieval/num_queries'] == 20
    assert got == want


def test_n01_sample_indices_and_labels_are_those_of_the_whole(tmp_path):
    parts, whole = halves(tmp_path, shift=3)
    joined = DATASETS.build(dict(type='ConcatDataset', datasets=[
        dict(type='CSVRetrievalDataset', data_root=part.data_root,
             pipeline=PIPELINE) for part in parts]))
    assert isinstance(joined, ConcatDataset)
    assert joined.metainfo['classes'] == whole.metainfo['classes']
    for index in (*range(20), -1):
        sample, info = joined[index]['data_samples'], \
            joined.get_data_info(index)
        wanted = whole.get_data_info(index)
        assert sample.sample_idx == info['sample_idx'] == index % 20
        assert sample.gt_label.label.item() == info['gt_label'] == \
            wanted['gt_label']
        assert joined.get_cat_ids(index) == [wanted['gt_label']]
    assert joined.get_labels().tolist() == whole.get_labels().tolist()


@pytest.mark.parametrize('labels, shift, number', [
    ('shared', 0, 5), ('separate', 0, 10), ('shared', 5, 10),
    ('separate', 5, 10), ('shared', 2, 7)])
def test_n16_label_spaces_are_merged_or_kept_apart(
        tmp_path, labels, shift, number):
    parts, _ = halves(tmp_path, shift)
    joined = ConcatDataset(parts, labels=labels)
    assert len(joined.metainfo['classes']) == number
    assert sorted(set(joined.get_labels())) == list(range(number))
    if labels == 'separate':
        assert joined.metainfo['classes'][0] == '0/c0'
    else:
        assert ConcatDataset(parts).get_labels().tolist() == \
            joined.get_labels().tolist()  # the default


def test_training_batches_are_drawn_from_the_classes_of_the_whole(tmp_path):
    parts, _ = halves(tmp_path)
    joined = ConcatDataset(parts, labels='separate')
    assert sorted(labels_of(joined)) == sorted([*range(10)] * 2)

    class Inner:
        dataset, seed, epoch = joined, 0, 0

    for batch in ClassBalancedBatchSampler(Inner, 8, 2):
        drawn = [joined[i]['data_samples'].gt_label.label.item()
                 for i in batch]
        assert sorted(map(drawn.count, set(drawn))) == [2] * 4


def test_super_labels_are_joined_as_labels_are(tmp_path):
    parts = [read(tmp_path / str(k), [f'{i}.png,{i},s{i % 2 + k}'
                                      for i in range(4)],
                  'path,label,super_label', pipeline=PIPELINE)
             for k in range(2)]
    joined = ConcatDataset(parts)
    assert joined.metainfo['super_classes'] == ('s0', 's1', 's2')
    assert labels_of(joined, 'super_label').tolist() == [
        0, 1, 0, 1, 1, 2, 1, 2]
    assert joined[7]['data_samples'].super_label == 2


def test_an_unknown_rule_is_named(tmp_path):
    with pytest.raises(ValueError, match="'shared', 'separate'.*'merged'"):
        ConcatDataset([], labels='merged')


# ----------------------------------------------------------------------- N40
def scene(root, name, grey, points):
    """A mosaic of patches of one grey, two a point, and all pairs of twos."""
    folder = root / name
    folder.mkdir(parents=True)
    mosaic = np.full((1024, 1024), grey, np.uint8)
    Image.fromarray(mosaic).save(folder / 'patches0000.bmp')
    (folder / 'info.txt').write_text(
        ''.join(f'{point} 0\n' for point in points for _ in range(2)))
    count = 2 * len(points)
    (folder / 'm50_100000_100000_0.txt').write_text(''.join(
        f'{i} {points[i // 2]} 0 {j} {points[j // 2]} 0 0\n'
        for i in range(count) for j in range(i + 1, count)))


@pytest.fixture
def scenes(tmp_path):
    scene(tmp_path, 'notredame', 40, [0, 1, 7])
    scene(tmp_path, 'yosemite', 200, [1, 7])
    return str(tmp_path)


NAMES = ['notredame', 'yosemite']


def test_n40_the_points_of_a_list_of_scenes_are_disjoint(scenes):
    data = PhotoTourDataset(scenes, NAMES)
    assert len(data) == 5
    greys = [set(np.unique(data[i]['inputs'][:2].numpy())) for i in range(5)]
    assert greys == [{40}] * 3 + [{200}] * 2
    ids = [data[i]['data_samples']['class_id'] for i in range(5)]
    assert len(set(ids)) == 5 and ids[:3] == [0, 1, 7]


def test_n40_the_pairs_of_each_scene_are_kept_apart(scenes):
    data = PhotoTourDataset(scenes, NAMES, test_mode=True)
    assert len(data) == 15 + 6
    for index in range(len(data)):
        assert set(np.unique(data[index]['inputs'].numpy())) == {
            40 if index < 15 else 200}
    assert data.matches.sum() == 3 + 2
    alone = PhotoTourDataset(scenes, 'yosemite', test_mode=True)
    assert (data.matches[15:] == alone.matches).all()


def test_n40_a_list_of_one_is_that_scene(scenes):
    one, same = (PhotoTourDataset(scenes, name)
                 for name in ('notredame', ['notredame']))
    assert (one.class_ids == same.class_ids).all()


@pytest.mark.parametrize('names', [[], ['notredame', 'notredame']])
def test_no_scene_or_one_twice_is_refused(scenes, names):
    with pytest.raises(ValueError, match='each once'):
        PhotoTourDataset(scenes, names)


def test_the_missing_scene_of_a_list_is_named(scenes):
    with pytest.raises(FileNotFoundError, match="scene='liberty'"):
        PhotoTourDataset(scenes, ['notredame', 'liberty'])


# ----------------------------------------------------------------------- N45
@pytest.mark.parametrize('test_mode', [True, False])
def test_n45_full_image_sequences_are_refused_with_the_right_archive(
        tmp_path, test_mode):
    for name in ('v_wall', 'i_dome'):
        (tmp_path / name).mkdir()
        for image in range(1, 7):
            Image.new('RGB', (9, 7)).save(tmp_path / name / f'{image}.ppm')
        (tmp_path / name / 'H_1_2').write_text('1 0 0\n0 1 0\n0 0 1\n')
    with pytest.raises(ValueError, match='full image sequences.*i_dome/1.ppm'
                       '.*hpatches-release.tar.gz'):
        HPatchesDataset(str(tmp_path), test_mode=test_mode)
