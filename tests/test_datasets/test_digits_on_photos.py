import os
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from mmrank.datasets.generators import make_digits_on_photos
from mmrank.datasets.generators.digit_painter import (
    CLASSES,
    PHOTOS,
    SPLITS,
    DigitPainter,
    DigitsOnPhotosOptions,
    split_scans,
)

SMALL = DigitsOnPhotosOptions(num_train=12, num_val=3, num_test=4)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def tree(tmp_path_factory):
    return make_digits_on_photos(
        tmp_path_factory.mktemp('data') / 'digits', SMALL)


def files(root):
    return {path.relative_to(root): path.read_bytes()
            for path in sorted(root.rglob('*')) if path.is_file()}


def names(root, split):
    return (root / 'VOC2007' / 'ImageSets' / 'Main' /
            f'{split}.txt').read_text().split()


def test_layout_is_that_of_voc_2007(tree):
    assert [len(names(tree, s)) for s in (*SPLITS, 'trainval')] == [
        12, 3, 4, 15]
    everything = [n for s in SPLITS for n in names(tree, s)]
    for folder, suffix in (('JPEGImages', 'jpg'), ('Annotations', 'xml')):
        found = {p.name for p in (tree / 'VOC2007' / folder).iterdir()}
        assert found == {f'{name}.{suffix}' for name in everything}
    root = ElementTree.parse(
        tree / 'VOC2007' / 'Annotations' / '000001.xml').getroot()
    assert root.findtext('filename') == '000001.jpg'
    assert [root.findtext(f'size/{k}') for k in
            ('width', 'height', 'depth')] == ['128', '128', '3']
    for node in root.findall('object'):
        assert [child.tag for child in node] == [
            'name', 'pose', 'truncated', 'difficult', 'bndbox']


def test_the_class_lists_say_which_images_show_a_class(tree):
    shown = set()
    for path in sorted((tree / 'VOC2007' / 'Annotations').glob('*.xml')):
        for node in ElementTree.parse(path).iterfind('object'):
            if node.findtext('difficult') == '0':
                shown.add((path.stem, node.findtext('name')))
    for class_name in CLASSES:
        lines = (tree / 'VOC2007' / 'ImageSets' / 'Main' /
                 f'{class_name}_train.txt').read_text().splitlines()
        assert len(lines) == 12
        for line in lines:
            name, flag = line.split()
            assert ((name, class_name) in shown) == (flag == '1')


def test_equal_options_give_equal_bytes(tree, tmp_path):
    again = make_digits_on_photos(tmp_path / 'again', SMALL)
    assert files(again) == files(tree)
    other = make_digits_on_photos(tmp_path / 'other', DigitsOnPhotosOptions(
        num_train=12, num_val=3, num_test=4, seed=1))
    jpeg = Path('VOC2007/JPEGImages/000001.jpg')
    assert files(other)[jpeg] != files(tree)[jpeg]


def test_an_image_does_not_depend_on_how_many_are_made():
    few, many = (DigitPainter(DigitsOnPhotosOptions(num_train=n), 'train')
                 for n in (3, 300))
    for index in (0, 2):
        np.testing.assert_array_equal(
            few.paint(index)[0], many.paint(index)[0])


def test_no_scan_and_no_photograph_is_shared_between_splits():
    labels = np.random.default_rng(0).integers(10, size=1797)
    parts = split_scans(labels, seed=0)
    joined = np.concatenate([parts[split] for split in SPLITS])
    assert sorted(joined) == list(range(1797))
    photos = [name for split in SPLITS for name in PHOTOS[split]]
    assert len(set(photos)) == len(photos)
    painters = {s: DigitPainter(SMALL, s) for s in SPLITS}
    assert sum(len(p.scans) for p in painters.values()) == 1797
    for split, painter in painters.items():
        assert len(painter.photos) == len(PHOTOS[split])
        assert set(painter.labels) == set(range(10))


def test_digits_lie_inside_in_the_asked_sizes_and_some_are_difficult():
    options = DigitsOnPhotosOptions(digit_sizes=(16, 44))
    painter = DigitPainter(options, 'test')
    digits = []
    for index in range(60):
        image, found = painter.paint(index)
        assert image.shape == (128, 128, 3) and image.dtype == np.uint8
        digits += found
    boxes = np.array([d.box for d in digits])
    assert boxes.min() >= 0 and boxes.max() <= 128
    heights = boxes[:, 3] - boxes[:, 1]
    # a scan does not always fill its 8 rows, a turned one is taller
    assert heights.min() >= 8 and heights.max() <= 1.4 * 44
    assert heights.max() > 2 * heights.min()
    assert {d.label for d in digits} == set(range(10))
    share = np.mean([d.difficult for d in digits])
    assert 0.03 < share < 0.3
    assert any(d.truncated for d in digits)


def test_digits_of_an_image_do_not_overlap():
    painter = DigitPainter(DigitsOnPhotosOptions(), 'train')
    for index in range(30):
        boxes = [d.box for d in painter.paint(index)[1]]
        for k, (a, b, c, d) in enumerate(boxes):
            for x1, y1, x2, y2 in boxes[:k]:
                assert c <= x1 or x2 <= a or d <= y1 or y2 <= b


def test_mmdet_reads_the_boxes_that_were_painted(tree):
    pytest.importorskip('mmdet')
    from mmdet.datasets import VOCDataset
    dataset = VOCDataset(
        data_root=f'{tree}/', ann_file='VOC2007/ImageSets/Main/train.txt',
        data_prefix=dict(sub_data_root='VOC2007/'),
        metainfo=dict(classes=CLASSES), pipeline=[])
    painter = DigitPainter(SMALL, 'train')
    assert len(dataset) == 12
    for index in range(12):
        found = dataset.get_data_info(index)['instances']
        digits = painter.paint(index)[1]
        assert [i['bbox_label'] for i in found] == [d.label for d in digits]
        assert [i['ignore_flag'] for i in found] == [
            int(d.difficult) for d in digits]
        for instance, digit in zip(found, digits):
            # VOC's last pixel is inside the box, ours is not
            x1, y1, x2, y2 = digit.box
            assert instance['bbox'] == [x1, y1, x2 - 1, y2 - 1]


def test_a_second_run_reuses_what_is_there(tree):
    image = tree / 'VOC2007' / 'JPEGImages' / '000001.jpg'
    before = os.stat(image).st_mtime_ns
    assert make_digits_on_photos(tree, SMALL) == tree
    assert os.stat(image).st_mtime_ns == before


def test_a_run_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    painted = []

    def paint(self, index):
        painted.append(index)
        if len(painted) == 5:
            raise KeyboardInterrupt
        return np.zeros((128, 128, 3), np.uint8), []

    monkeypatch.setattr(DigitPainter, 'paint', paint)
    with pytest.raises(KeyboardInterrupt):
        make_digits_on_photos(tmp_path / 'digits', SMALL)
    assert not list(tmp_path.iterdir())


def test_a_folder_with_other_content_is_not_touched(tree, tmp_path):
    (tmp_path / 'mine.txt').write_text('x')
    with pytest.raises(FileExistsError, match='not a DigitsOnPhotos folder'):
        make_digits_on_photos(tmp_path, SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ['mine.txt']
    with pytest.raises(FileExistsError, match=r"'num_train': \(12, 5\)"):
        make_digits_on_photos(tree, DigitsOnPhotosOptions(
            num_train=5, num_val=3, num_test=4))


def test_an_empty_folder_is_filled(tmp_path):
    root = make_digits_on_photos(
        tmp_path, DigitsOnPhotosOptions(1, 1, 1))
    assert names(root, 'test') == ['000003']


@pytest.mark.parametrize(('change', 'message'), [
    (dict(num_train=0), 'num_train must be at least 1, got 0'),
    (dict(seed=-1), 'seed must not be negative, got -1'),
    (dict(digit_sizes=(20, 10)), r'digit_sizes .* got \(20, 10\)'),
    (dict(image_size=64), 'image_size 64 is too small .* 88'),
])
def test_options_out_of_range_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        DigitsOnPhotosOptions(**change)


def test_a_missing_source_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'sklearn', None)
    with pytest.raises(ImportError, match='install scikit-learn'):
        make_digits_on_photos(tmp_path / 'digits', SMALL)


def test_the_command_makes_the_set_and_explains_a_bad_option(
        tmp_path, monkeypatch):
    tool = ROOT / 'tools' / 'dataset_converters' / 'digits_on_photos.py'

    def run(**options):
        flags = [f'--{k}={v}' for k, v in options.items()]
        monkeypatch.setattr(sys, 'argv', [
            str(tool), f'--out-dir={tmp_path}/d', '--num-val=1',
            '--num-test=1', *flags])
        runpy.run_path(str(tool), run_name='__main__')

    run(**{'num-train': 1})
    assert len(names(tmp_path / 'd', 'trainval')) == 2
    with pytest.raises(SystemExit, match='error: num_train must be at least'):
        run(**{'num-train': 0})
