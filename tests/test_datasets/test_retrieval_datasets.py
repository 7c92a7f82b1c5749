import csv
import math
import shutil

import numpy as np
import pytest
import torch
from mmengine.dataset import RepeatDataset, pseudo_collate
from PIL import Image
from torch.utils.data import DataLoader

from mmrank.datasets import (
    CarsDataset,
    CSVRetrievalDataset,
    CUBDataset,
    FolderRetrievalDataset,
    GlyphRetrievalDataset,
    InShopDataset,
    LoadImage,
    StanfordOnlineProductsDataset,
)
from mmrank.datasets.generators import glyphs
from mmrank.datasets.samplers import labels_of
from mmrank.registry import DATASETS, TRANSFORMS

from .trees import make_tree

PIPELINE = [
    dict(type='mmrank.LoadImage'),
    dict(type='mmrank.ImageTransforms', transforms=[
        dict(type='Resize', size=40), dict(type='RandomCrop', size=32)]),
    dict(type='mmrank.PackRetrievalInputs'),
]
KINDS = {
    'cub': CUBDataset, 'cars': CarsDataset,
    'sop': StanfordOnlineProductsDataset, 'inshop': InShopDataset}


@pytest.fixture(scope='module')
def trees(tmp_path_factory):
    root = tmp_path_factory.mktemp('trees')
    return {kind: make_tree(kind, root / kind) for kind in KINDS}


@pytest.mark.parametrize('kind', KINDS)
def test_an_official_layout_is_read_and_its_images_load(trees, kind):
    for split in KINDS[kind].splits:
        data = KINDS[kind](trees[kind], split, PIPELINE)
        labels = data.get_labels()
        assert set(labels) == set(range(len(data.metainfo['classes'])))
        item = data[len(data) - 1]
        assert item['inputs'].shape == (3, 32, 32)
        sample = item['data_samples']
        assert sample.gt_label.label.item() == labels[-1]
        assert sample.sample_idx == len(data) - 1


@pytest.mark.parametrize('kind', KINDS)
def test_no_class_is_shared_between_training_and_test(trees, kind):
    train, test = (KINDS[kind](trees[kind], split)
                   for split in ('train', 'test'))
    assert not set(train.metainfo['classes']) & set(test.metainfo['classes'])


@pytest.mark.parametrize('kind, half', [('cub', 100), ('cars', 98)])
def test_the_retrieval_split_takes_the_first_half_of_the_classes(
        trees, kind, half):
    train, test = (KINDS[kind](trees[kind], split)
                   for split in ('train', 'test'))
    # the miniature tree has the classes 1, half, half + 1 and 2 half, and
    # marks half of each class as the classification split's test images
    assert (len(train), len(test)) == (4, 4)
    names = sorted(train.metainfo['classes'])
    assert [int(name[:3]) for name in names] == [1, half]


def test_super_labels_of_products_come_from_the_list(trees):
    data = StanfordOnlineProductsDataset(trees['sop'], 'train')
    assert labels_of(data, 'super_label').tolist() == [0, 0, 0, 0, 1, 1]


def test_in_shop_has_queries_gallery_and_super_labels(trees):
    counts = {split: len(InShopDataset(trees['inshop'], split))
              for split in InShopDataset.splits}
    assert counts == dict(train=4, query=2, gallery=3, test=5)
    test = InShopDataset(trees['inshop'], 'test')
    infos = [test.get_data_info(i) for i in range(5)]
    assert sum(info['is_query'] for info in infos) == 2
    by_name = {}
    for info in infos:
        by_name.setdefault(info['gt_label'], set()).add(info['is_query'])
    assert {True, False} in by_name.values()
    assert test.metainfo['super_classes'] == ('MEN/Shirts', 'WOMEN/Dresses')


@pytest.mark.parametrize('kind', KINDS)
def test_a_missing_tree_says_what_is_missing_and_the_layout(tmp_path, kind):
    with pytest.raises(FileNotFoundError) as error:
        KINDS[kind](str(tmp_path / 'nowhere'))
    for name in KINDS[kind].needed:
        assert name in str(error.value)
    assert 'data_root/' in str(error.value)


@pytest.mark.parametrize('kind, folder', [
    ('cub', 'images'), ('cars', 'car_ims'), ('sop', ''), ('inshop', 'img')])
def test_a_tree_whose_images_are_missing_is_named(tmp_path, kind, folder):
    root = make_tree(kind, tmp_path / kind)
    folders = [tmp_path / kind / folder] if folder else [
        p for p in (tmp_path / kind).iterdir() if p.is_dir()]
    for each in folders:
        shutil.rmtree(each)
    with pytest.raises(FileNotFoundError):
        KINDS[kind](root, 'train', PIPELINE)[0]


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match="'valid'"):
        CUBDataset('', split='valid')


def image(path, mode='RGB'):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (9, 7)).save(path)


def test_a_folder_of_classes(tmp_path):
    for name in ('b/1.png', 'a/2.JPG', 'a/3.png'):
        image(tmp_path / name)
    (tmp_path / 'a' / 'notes.txt').write_text('no image')
    (tmp_path / 'list.txt').write_text('no folder')
    data = FolderRetrievalDataset(data_root=str(tmp_path))
    assert data.get_labels().tolist() == [0, 0, 1]
    assert data.metainfo['classes'] == ('a', 'b')
    (tmp_path / 'empty').mkdir()
    with pytest.raises(ValueError, match=r'no image \(.*\.jpg .*below'):
        FolderRetrievalDataset(data_root=str(tmp_path / 'empty'))
    with pytest.raises(FileNotFoundError,
                       match=r"no folder data_root='.*nothing'"):
        FolderRetrievalDataset(data_root=str(tmp_path / 'nothing'))


def test_a_csv_list(tmp_path):
    rows = [['path', 'label', 'split', 'super_label', 'is_query'],
            ['x/1.png', 'b', 'train', 's', '0'],
            ['x/2.png', 'a', 'train', 't', '1'],
            ['x/3.png', 'c', 'test', 's', '0']]
    with open(tmp_path / 'list.csv', 'w', newline='') as file:
        csv.writer(file).writerows(rows)
    (tmp_path / 'x').mkdir()
    for number in (1, 2):
        (tmp_path / f'x/{number}.png').touch()
    data = CSVRetrievalDataset(str(tmp_path), split='train')
    assert data.get_labels().tolist() == [1, 0]
    assert labels_of(data, 'super_label').tolist() == [0, 1]
    assert [data.get_data_info(i)['is_query'] for i in range(2)] == [
        False, True]
    assert len(CSVRetrievalDataset(str(tmp_path), check_images=False)) == 3
    with pytest.raises(FileNotFoundError,
                       match="line 4: there is no image '.*x/3.png'"):
        CSVRetrievalDataset(str(tmp_path))
    (tmp_path / 'bad.csv').write_text('file,label\n1.png,a\n')
    with pytest.raises(ValueError, match="columns.*path"):
        CSVRetrievalDataset(str(tmp_path), 'bad.csv')


@pytest.mark.parametrize('text, said', [
    (b'path,label\na.png,\n', r"line 2: the columns \['label'\] are empty"),
    (b'path,label\n', 'found no item in'),
    ('path,label\na.png,Bär\n'.encode('latin-1'), r"list.csv.*as UTF-8"),
    (b'path,label\na.png\n', 'line 2: expected the columns'),
])
def test_a_wrong_csv_list_is_refused_by_file_and_line(tmp_path, text, said):
    (tmp_path / 'list.csv').write_bytes(text)
    with pytest.raises(ValueError, match=said):
        CSVRetrievalDataset(str(tmp_path))


@pytest.mark.parametrize('mode', ['L', 'P', 'RGBA', 'CMYK'])
def test_images_of_other_colours_become_rgb(tmp_path, mode):
    path = tmp_path / ('a.jpg' if mode == 'CMYK' else 'a.png')
    image(path, mode)
    assert LoadImage()(dict(img_path=str(path)))['img'].mode == 'RGB'


def test_a_damaged_image_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / 'a.png'
    Image.fromarray(np.random.default_rng(0).integers(
        0, 255, (64, 64, 3), dtype=np.uint8)).save(path)
    whole = path.read_bytes()
    for content in (whole[:2000], b'no image', b''):
        path.write_bytes(content)
        with pytest.raises(ValueError, match='a.png'):
            LoadImage()(dict(img_path=str(path)))
    with pytest.raises(FileNotFoundError, match='b.png'):
        LoadImage()(dict(img_path=str(tmp_path / 'b.png')))


def test_an_unknown_transform_is_named():
    with pytest.raises(ValueError, match='Resise'):
        TRANSFORMS.build(dict(type='mmrank.ImageTransforms',
                              transforms=[dict(type='Resise')]))


def test_glyphs_have_disjoint_halves_and_a_validation_part():
    parts = {split: set(glyphs.characters_of(split))
             for split in GlyphRetrievalDataset.splits}
    assert not parts['train'] & parts['test']
    assert abs(len(parts['train']) - len(parts['test'])) <= 1
    assert parts['fit'] | parts['val'] == parts['train']
    assert not parts['fit'] & parts['val']
    assert len(parts['train'] | parts['test']) > 1200


def test_glyphs_that_look_alike_across_scripts_occur_once():
    characters = set(glyphs.distinct_characters())
    latin_greek_cyrillic = [('A', 'Α', 'А'), ('o', 'ο', 'о'),
                            ('H', 'Η', 'Н'), ('K', '\u212a')]
    for alike in latin_greek_cyrillic:
        assert characters & set(alike) == {alike[0]}
    for apart in ('oO', 'ij', 'Ωω', 'ЖФ', 'éè'):
        assert set(apart) <= characters


def test_every_glyph_has_at_least_twelve_faces_and_none_is_blank():
    data = GlyphRetrievalDataset(split='test', num_classes=40)
    _, counts = np.unique(data.get_labels(), return_counts=True)
    assert counts.min() >= 12 and counts.max() <= 16
    for i in range(len(data)):
        assert data.get_data_info(i)['img'].std() > 10


def test_glyphs_are_deterministic_and_distorted_by_the_seed():
    def first(**kwargs):
        glyphs.render.cache_clear()
        data = GlyphRetrievalDataset(split='train', num_classes=2, **kwargs)
        return data.get_data_info(0)['img']

    assert np.array_equal(first(), first())
    assert not np.array_equal(first(), first(seed=1))
    assert first(image_size=48).shape == (48, 48)


def test_a_glyph_does_not_depend_on_how_many_there_are():
    few, more = (GlyphRetrievalDataset(split='train', num_classes=n)
                 for n in (2, 5))
    by_glyph = {more.get_data_info(i)['glyph']: more.get_data_info(i)['img']
                for i in range(len(more))}
    for i in range(len(few)):
        info = few.get_data_info(i)
        assert np.array_equal(info['img'], by_glyph[info['glyph']])


def test_glyph_super_labels_are_scripts():
    assert glyphs.script_of('ж') == 'CYRILLIC'
    assert glyphs.script_of('7') == 'DIGIT'
    assert glyphs.script_of('+') == 'SYMBOL'
    data = GlyphRetrievalDataset(split='train', num_classes=30)
    assert len(set(labels_of(data, 'super_label'))) >= 3
    repeated = RepeatDataset(data, 2)
    assert len(labels_of(repeated)) == 2 * len(data)


def test_published_counts_are_those_of_the_retrieval_split():
    assert CUBDataset.published['train'] == (5864, 100)
    assert CUBDataset.published['test'] == (5924, 100)
    assert CarsDataset.published == dict(train=(8054, 98), test=(8131, 98))
    assert StanfordOnlineProductsDataset.published == dict(
        train=(59551, 11318), test=(60502, 11316))
    counts = InShopDataset.published
    assert counts['query'][0] + counts['gallery'][0] == counts['test'][0]
    assert (counts['train'], counts['query'], counts['gallery']) == (
        (25882, 3997), (14218, 3985), (12612, 3985))


def test_spawned_workers_find_what_the_package_registers():
    data = DATASETS.build(dict(
        type='mmrank.GlyphRetrievalDataset', split='val', num_classes=2,
        pipeline=PIPELINE[:1] + PIPELINE[2:], lazy_init=False))
    loader = DataLoader(data, batch_size=8, num_workers=1,
                        multiprocessing_context='spawn',
                        collate_fn=pseudo_collate)
    batch = next(iter(loader))
    assert len(batch['inputs']) == 8
    assert torch.equal(batch['inputs'][3], data[3]['inputs'])


def test_registered_names_build_by_their_scope():
    data = DATASETS.build(dict(
        type='mmrank.GlyphRetrievalDataset', split='val', num_classes=2,
        pipeline=PIPELINE[:1] + PIPELINE[2:]))
    assert data[0]['inputs'].shape == (3, 32, 32)
    assert math.isfinite(data[0]['inputs'].float().mean())
