"""Patch data sets, each on a miniature tree in the exact format."""

import json

import cv2
import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from mmrank.datasets import (
    DistinctClassSampler,
    HPatchesDataset,
    PatchClassDataset,
    PhotoTourDataset,
)
from mmrank.datasets.generators import photo_patches as pp
from mmrank.datasets.readers.hpatches import STRIPS
from mmrank.registry import DATA_SAMPLERS


# ---------------------------------------------------------------- PhotoTour
def write_scene(folder, point_ids, pairs, seed=0):
    """A scene as distributed: bitmaps, info.txt and pairs of 7 columns."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    tiles = rng.integers(0, 256, (len(point_ids), 64, 64)).astype(np.uint8)
    for number in range(-(-len(tiles) // 256)):
        sheet = np.zeros((1024, 1024), np.uint8)
        for i, tile in enumerate(tiles[256 * number:256 * (number + 1)]):
            row, column = divmod(i, 16)
            sheet[row * 64:row * 64 + 64, column * 64:column * 64 + 64] = tile
        cv2.imwrite(str(folder / f'patches{number:04d}.bmp'), sheet)
    (folder / 'info.txt').write_text(
        ''.join(f'{point} 0\n' for point in point_ids))
    (folder / 'm50_100000_100000_0.txt').write_text(''.join(
        f'{a} {point_ids[a]} 0 {b} {point_ids[b]} 0 0\n' for a, b in pairs))
    return tiles


IDS = [3, 3, 68268, 68268, 68268, 9, 9, 5]
PAIRS = [(0, 1), (0, 2), (5, 6), (3, 7)]


@pytest.fixture
def scene(tmp_path):
    tiles = write_scene(tmp_path / 'liberty', IDS, PAIRS)
    return tmp_path, tiles


def test_phototour_classes_with_sparse_ids_hold_the_tiles_in_order(scene):
    root, tiles = scene
    data = PhotoTourDataset(root, 'liberty', patch_size=64)
    assert len(data) == 3  # the point seen once is left out
    assert data.class_ids.tolist() == [3, 9, 68268]
    item = data[2]
    assert item['inputs'].shape == (15, 1, 64, 64)
    assert item['inputs'].dtype == torch.uint8
    assert item['data_samples']['class_id'] == 68268
    assert item['data_samples']['valid'].tolist() == [True] * 3 + [False] * 12
    assert np.array_equal(item['inputs'][:3, 0].numpy(), tiles[2:5])


def test_phototour_tile_i_is_resized_by_itself_to_patch_i(scene):
    root, tiles = scene
    data = PhotoTourDataset(root, 'liberty', test_mode=True)
    assert len(data) == 4
    for index, (a, b) in enumerate(PAIRS):
        item = data[index]
        means = tiles[[a, b]].reshape(2, 32, 2, 32, 2).mean((2, 4))
        got = item['inputs'][:, 0].numpy()
        assert np.abs(got - means).max() <= .5
        assert item['data_samples'] == dict(match=IDS[a] == IDS[b],
                                            pair_index=index)


def test_phototour_reads_several_mosaics_and_drops_the_empty_tail(tmp_path):
    ids = np.arange(300) // 2
    tiles = write_scene(tmp_path / 'yosemite', ids, [(255, 256)])
    data = PhotoTourDataset(tmp_path, 'yosemite', patch_size=64)
    assert len(data) == 150
    assert np.array_equal(data[128]['inputs'][:2, 0].numpy(), tiles[256:258])


@pytest.mark.parametrize('spoil, error, match', [
    (lambda f: f.rename(f.parent / 'elsewhere'), FileNotFoundError,
     "data_root=.*scene='liberty'"),
    (lambda f: (f / 'info.txt').unlink(), FileNotFoundError, 'info.txt'),
    (lambda f: (f / 'patches0000.bmp').unlink(), FileNotFoundError,
     r'no patches\*.bmp'),
    (lambda f: (f / 'm50_100000_100000_0.txt').unlink(), FileNotFoundError,
     'm50_100000'),
    (lambda f: (f / 'info.txt').write_text('3 0\nx 0\n'), ValueError,
     "info.txt, line 2.*'x 0'"),
    (lambda f: (f / 'info.txt').write_text('3 0\n' * 257), ValueError,
     '257 patches, but 1 mosaics hold 256'),
    (lambda f: cv2.imwrite(str(f / 'patches0000.bmp'),
                           np.zeros((512, 512), np.uint8)), ValueError,
     'expected a 1024x1024 mosaic.*512'),
    (lambda f: (f / 'm50_100000_100000_0.txt').write_text('0 3 0 1 4 0\n'),
     ValueError, 'row 1: 0 3 0 1 4 0 does not agree with info.txt'),
    (lambda f: (f / 'm50_100000_100000_0.txt').write_text('0 3 0 99 3 0\n'),
     ValueError, 'does not agree with info.txt'),
    (lambda f: (f / 'm50_100000_100000_0.txt').write_text('0 3 0 1\n'),
     ValueError, 'six integers'),
])
def test_a_wrong_phototour_tree_gives_one_clear_error(scene, spoil, error,
                                                      match):
    root, _ = scene
    spoil(root / 'liberty')
    with pytest.raises(error, match=match):
        PhotoTourDataset(root, 'liberty', test_mode=True)


# ------------------------------------------------------------------- classes
def test_rotations_fill_a_class_and_stay_the_same(scene):
    root, _ = scene
    data = PhotoTourDataset(root, 'liberty', patches_per_class=15,
                            fill_by_rotation=True)
    twin = PhotoTourDataset(root, 'liberty', patches_per_class=15,
                            fill_by_rotation=True)
    first = data[0]
    assert first['data_samples']['valid'].all()
    assert torch.equal(first['inputs'], data[0]['inputs'])
    assert torch.equal(first['inputs'], twin[0]['inputs'])
    flat = first['inputs'].flatten(1)
    assert len({tuple(row.tolist()) for row in flat}) == 15
    other = PhotoTourDataset(root, 'liberty', fill_by_rotation=True, seed=1)
    assert not torch.equal(first['inputs'], other[0]['inputs'])


def test_a_rotated_copy_is_a_rotation_about_the_centre():
    patch = np.zeros((33, 33), np.uint8)
    patch[16, 16] = 255
    data = PatchClassDataset(patch[None].repeat(2, 0), np.zeros(2, int),
                             patches_per_class=6, fill_by_rotation=True)
    centres = data[0]['inputs'][:, 0, 16, 16]
    assert (centres >= 250).all()


def test_a_class_beyond_the_slots_keeps_a_fixed_choice():
    patches = np.arange(10, dtype=np.uint8)[:, None, None].repeat(2, 1)
    data = PatchClassDataset(patches, np.zeros(10, int), patches_per_class=4)
    kept = data[0]['inputs'][:, 0, 0, 0]
    assert len(set(kept.tolist())) == 4
    assert torch.equal(kept, data[0]['inputs'][:, 0, 0, 0])


def test_class_errors():
    patches = np.zeros((3, 2, 2), np.uint8)
    with pytest.raises(ValueError, match='min_patches=2'):
        PatchClassDataset(patches, np.arange(3))
    with pytest.raises(ValueError, match='patches_per_class must be.*1'):
        PatchClassDataset(patches, np.zeros(3), patches_per_class=1)
    with pytest.raises(ValueError, match='3 patches, but 2 point ids'):
        PatchClassDataset(patches, np.zeros(2))


# ------------------------------------------------------------------- sampler
@pytest.mark.parametrize('classes, batch, total', [
    (8, 8, 24), (10, 4, 100), (7, 3, 22), (300, 64, None)])
def test_no_class_stands_twice_in_a_batch(classes, batch, total):
    sampler = DistinctClassSampler(range(classes), batch, total, seed=0)
    indices = list(sampler)
    assert len(indices) == len(sampler) == (total or classes) // batch * batch
    loader = DataLoader(range(classes), batch, sampler=sampler,
                        drop_last=True)
    assert len(loader) == sum(1 for _ in loader)
    for rows in loader:
        assert len(set(rows.tolist())) == batch


@pytest.mark.parametrize('batches', [2, 9])
def test_num_batch_per_epoch_bounds_the_epoch_and_not_the_classes(batches):
    loader = Runner.build_dataloader(dict(
        dataset=torch.arange(12), batch_size=4, num_workers=0,
        num_batch_per_epoch=batches, sampler=dict(
            type='mmrank.DistinctClassSampler', batch_size=4, seed=1)))
    rows = list(loader.batch_sampler)
    assert len(rows) == len(loader) == batches
    assert max(map(max, rows)) > 7
    assert max(map(max, rows)) < 12


def test_a_batch_of_eight_from_three_points_is_refused():
    with pytest.raises(ValueError, match='8 distinct classes.* has 3'):
        DistinctClassSampler(range(3), 8)
    with pytest.raises(ValueError, match='num_samples=2'):
        DistinctClassSampler(range(9), 8, 2)


def test_epochs_differ_and_repeat_under_one_seed():
    def epochs(seed):
        sampler = DATA_SAMPLERS.build(dict(
            type='mmrank.DistinctClassSampler', batch_size=4,
            dataset=range(12), seed=seed))
        found = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            found.append(list(sampler))
        return found

    assert epochs(0) == epochs(0)
    assert epochs(0)[0] != epochs(0)[1]


# ------------------------------------------------------------------ HPatches
def write_sequences(root, lengths, seed=0):
    rng = np.random.default_rng(seed)
    tiles = {}
    for name, count in lengths.items():
        (root / name).mkdir(parents=True)
        for strip in STRIPS:
            rows = rng.integers(0, 256, (count, 65, 65)).astype(np.uint8)
            tiles[name, strip] = rows
            # the release's strips are colour files of grey patches
            image = cv2.cvtColor(rows.reshape(-1, 65), cv2.COLOR_GRAY2BGR)
            cv2.imwrite(str(root / name / f'{strip}.png'), image)
    splits = dict(a=dict(name='a', train=['v_b'], test=['i_a', 'v_c']),
                  full=dict(name='full', test=list(lengths)))
    (root / 'splits.json').write_text(json.dumps(splits))
    return tiles


@pytest.fixture
def release(tmp_path):
    return tmp_path, write_sequences(tmp_path, dict(i_a=10, v_b=3, v_c=2))


def test_hpatches_patch_i_is_the_ith_tile_of_the_strip_resized(release):
    root, tiles = release
    data = HPatchesDataset(root, 'a', test_mode=True)
    assert len(data) == 2 * 16
    assert data.metainfo['sequences'] == ['i_a', 'v_c']
    for item in data:
        sample = item['data_samples']
        want = [cv2.resize(tile, (32, 32), interpolation=cv2.INTER_AREA)
                for tile in tiles[sample['sequence'], sample['strip']]]
        assert np.array_equal(item['inputs'][:, 0].numpy(), np.stack(want))


def test_hpatches_training_classes_are_the_sixteen_patches_of_a_place(release):
    root, tiles = release
    data = HPatchesDataset(root, 'a', patch_size=65)
    assert len(data) == 3
    item = data[1]
    want = np.stack([tiles['v_b', strip][1] for strip in STRIPS])
    assert np.array_equal(item['inputs'][:, 0].numpy(), want)
    assert item['data_samples']['valid'].all()


@pytest.mark.parametrize('split, test_mode, spoil, error, match', [
    ('d', True, lambda r: None, ValueError, r"one of \['a', 'full'\].*'d'"),
    ('full', False, lambda r: None, ValueError, "'full' has no train"),
    ('a', True, lambda r: (r / 'splits.json').unlink(), FileNotFoundError,
     'splits_file'),
    ('a', True, lambda r: (r / 'v_c').rename(r / 'v_d'), FileNotFoundError,
     "v_c, which split 'a' names"),
    ('a', False, lambda r: (r / 'v_b/t3.png').unlink(), FileNotFoundError,
     't3.png is missing'),
    ('a', False, lambda r: cv2.imwrite(
        str(r / 'v_b/e1.png'), np.zeros((64, 64), np.uint8)), ValueError,
     'e1.png: expected a column of 65x65'),
    ('a', False, lambda r: cv2.imwrite(
        str(r / 'v_b/e1.png'), np.zeros((65, 65), np.uint8)), ValueError,
     r'different length: \[1, 3\]'),
])
def test_a_wrong_hpatches_tree_gives_one_clear_error(
        release, split, test_mode, spoil, error, match):
    root, _ = release
    spoil(root)
    with pytest.raises(error, match=match):
        HPatchesDataset(root, split, test_mode=test_mode)


# -------------------------------------------------------------- PhotoPatches
@pytest.fixture(scope='module')
def photo_patches(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pp, 'SCENES', dict(photos_train=('coins', 'page'),
                                         photos_test=('text', 'clock')))
        root = tmp_path_factory.mktemp('photos')
        outs = [pp.write_photo_patches(root / name, keypoints_per_photo=8,
                                       num_pairs=40) for name in 'ab']
    return outs


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob('*')) if path.is_file()}


def test_photo_patches_are_written_byte_for_byte_alike(photo_patches):
    first, second = map(contents, photo_patches)
    assert first == second


def test_photo_patches_are_read_by_the_phototour_reader(photo_patches):
    root = photo_patches[0] / 'phototour'
    classes = PhotoTourDataset(root, 'photos_train')
    assert len(classes) >= 8
    assert all(item['data_samples']['valid'].all() and
               item['inputs'].shape == (15, 1, 32, 32)
               for item in map(classes.__getitem__, range(len(classes))))
    pairs = PhotoTourDataset(root, 'photos_test', test_mode=True)
    assert len(pairs) == 40 and pairs.matches.sum() == 20
    assert (pairs.pairs[:, 0] != pairs.pairs[:, 1]).all()


def test_photo_patches_are_read_by_the_hpatches_reader(photo_patches):
    root = photo_patches[0] / 'hpatches'
    train = HPatchesDataset(root, 'a')
    test = HPatchesDataset(root, 'a', test_mode=True)
    names = {item['data_samples']['sequence'] for item in test}
    assert {name[2:] for name in names} <= {'text', 'clock'}
    assert {f.name[2:] for f in train.folders} <= {'coins', 'page'}
    assert train[0]['inputs'].shape == (16, 1, 32, 32)


def test_photographs_of_training_and_test_are_disjoint():
    assert not set(pp.TRAIN_PHOTOS) & set(pp.TEST_PHOTOS)


def test_strengths_grow_from_easy_to_tough(photo_patches):
    data = HPatchesDataset(photo_patches[0] / 'hpatches', 'a', patch_size=65)
    patches = np.stack([data[i]['inputs'][:, 0].numpy()
                        for i in range(len(data))]).astype(float)
    patches -= patches.mean((2, 3), keepdims=True)
    patches /= patches.std((2, 3), keepdims=True) + 1e-6
    alike = (patches[:, :1] * patches[:, 1:]).mean((0, 2, 3)).reshape(3, 5)
    easy, hard, tough = alike.mean(1)
    assert easy > hard > tough > 0


def test_photo_patches_refuse_a_foreign_folder_and_leave_no_rest(
        tmp_path, monkeypatch):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine/thesis.txt').write_text('x')
    with pytest.raises(ValueError, match='no PhotoPatches data set'):
        pp.write_photo_patches(tmp_path / 'mine')

    def fail(*args):
        raise RuntimeError

    monkeypatch.setattr(pp, '_write', fail)
    with pytest.raises(RuntimeError):
        pp.write_photo_patches(tmp_path / 'new')
    assert [path.name for path in tmp_path.iterdir()] == ['mine']


def test_a_cut_patch_is_the_image_region():
    image = np.random.default_rng(0).integers(0, 256, (40, 50))
    image = image.astype(np.uint8)
    frame = pp.keypoint_frame(20, 15, 4)
    patch = pp.cut_patch([image], frame, 9)
    assert np.array_equal(patch, image[11:20, 16:25])
    turned = pp.cut_patch([image], pp.keypoint_frame(20, 15, 4, 90), 9)
    assert np.abs(turned.astype(int) - np.rot90(patch)).max() <= 1 or \
        np.abs(turned.astype(int) - np.rot90(patch, 3)).max() <= 1
