"""Valid trees, damaged in one random way: read, or one line with the file."""

import csv
import shutil

import numpy as np
import pytest
from PIL import Image

from mmrank.datasets import (
    CSVRetrievalDataset,
    FolderRetrievalDataset,
    HPatchesDataset,
    LoadImage,
    PhotoTourDataset,
)
from tests.test_datasets.test_patches import write_scene, write_sequences

LOAD = [LoadImage(max_pixels=10**6)]
# packing the items collects garbage, which takes longer than the rest
FAST = dict(serialize_data=False)
NAMES = ('a/0.png', 'a/1.jpg', 'a/in/2.tif', 'b/3.webp', 'b/4.bmp', 'b/5.gif')


def make_folder(root):
    rng = np.random.default_rng(0)
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / name)


def make_csv(root):
    make_folder(root)
    with open(root / 'list.csv', 'w', newline='') as file:
        csv.writer(file).writerows(
            [('path', 'label')] + [(name, name[0]) for name in NAMES])


def make_phototour(root):
    write_scene(root / 'liberty', [3, 3, 7, 7, 9, 9], [(0, 1), (0, 2)])


def make_hpatches(root):
    write_sequences(root, dict(i_a=2, v_b=3, v_c=2))


def read_folder(root):
    data = FolderRetrievalDataset(str(root), pipeline=LOAD, **FAST)
    return [data[index]['img'].size for index in range(len(data))]


def read_csv(root):
    data = CSVRetrievalDataset(str(root), pipeline=LOAD, **FAST)
    return [data[index]['img'].size for index in range(len(data))]


def read_phototour(root):
    found = []
    for test in (False, True):
        data = PhotoTourDataset(str(root), 'liberty', test_mode=test)
        found += [tuple(data[i]['inputs'].shape) for i in range(len(data))]
    return found


def read_hpatches(root):
    found = []
    for test in (False, True):
        data = HPatchesDataset(str(root), test_mode=test)
        found += [tuple(data[i]['inputs'].shape) for i in range(len(data))]
    return found


def cut(rng, content):
    return content[:rng.integers(len(content))]


def empty(rng, content):
    return b''


def scratch(rng, content):
    """Some bytes, mostly near the beginning, become others."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 9)):
        end = len(changed) if rng.random() < .5 else min(len(changed), 64)
        changed[rng.integers(end)] = rng.integers(256)
    return bytes(changed)


def swap(rng, content):
    """Two parts change places, as a broken transfer leaves them."""
    middle = int(rng.integers(len(content)))
    return content[middle:] + content[:middle]


def lengthen(rng, content):
    return content + rng.bytes(int(rng.integers(1, 200)))


def replace(rng, content):
    return rng.bytes(int(rng.integers(1, 3000)))


def remove(rng, content):
    return None


DAMAGES = (cut, empty, scratch, swap, lengthen, replace, remove)


@pytest.mark.parametrize('make, read, number', [
    (make_folder, read_folder, 210), (make_csv, read_csv, 210),
    (make_phototour, read_phototour, 70), (make_hpatches, read_hpatches, 105)])
def test_a_damaged_tree_is_read_or_the_file_is_named(
        tmp_path, make, read, number):
    root = tmp_path / 'tree'
    make(root)
    whole = read(root)
    files = sorted(path for path in root.rglob('*') if path.is_file())
    rng = np.random.default_rng(0)
    for turn in range(number):
        path = files[rng.integers(len(files))]
        damage = DAMAGES[turn % len(DAMAGES)]
        content = path.read_bytes()
        changed = damage(rng, content)
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)
        before = sorted(root.rglob('*'))
        try:
            found = read(root)
        except (ValueError, FileNotFoundError) as error:
            # of a file that is gone, the folder may be all that is known
            named = path.parent if changed is None else path.name
            assert str(named) in str(error), (turn, damage, path, error)
        else:
            # a folder with a file less is a folder
            assert found == whole or len(found) <= len(whole), (turn, path)
        assert sorted(root.rglob('*')) == before
        path.write_bytes(content)
    assert read(root) == whole


@pytest.mark.parametrize('make, read', [
    (make_folder, read_folder), (make_csv, read_csv),
    (make_phototour, read_phototour), (make_hpatches, read_hpatches)])
def test_a_lost_folder_is_named(tmp_path, make, read):
    root = tmp_path / 'tree'
    make(root)
    shutil.rmtree(root)
    with pytest.raises(FileNotFoundError, match='tree'):
        read(root)
