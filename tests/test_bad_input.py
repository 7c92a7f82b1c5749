"""What users get wrong: one clear error, or the documented behaviour.

Each row of a table is a mistake, the error it must end in and the words that
the message must have: the key or file, the value, the remedy.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler
from PIL import Image

from mmrank import config_path
from mmrank import functional as F
from mmrank.__main__ import main
from mmrank.apis import GallerySearch
from mmrank.datasets import (
    CarsDataset,
    CSVRetrievalDataset,
    CUBDataset,
    FolderRetrievalDataset,
    GlyphRetrievalDataset,
    HPatchesDataset,
    InShopDataset,
    LoadImage,
    PhotoTourDataset,
    StanfordOnlineProductsDataset,
)
from mmrank.datasets.generators.digits_on_photos import make_digits_on_photos
from mmrank.datasets.generators.photo_patches import (
    write_mosaics,
    write_photo_patches,
)
from mmrank.datasets.samplers import (
    ClassBalancedBatchSampler,
    DistinctClassSampler,
)
from mmrank.engine.launch import test as run_test
from mmrank.engine.launch import train
from mmrank.evaluation import RetrievalMetric
from mmrank.models.heads import MetricLearningHead
from mmrank.models.learners import AdaSample
from mmrank.models.losses import (
    HingeTripletLoss,
    ProxyAnchorLoss,
    ProxyISALoss,
    RaMBOLoss,
    RaMBORecallLoss,
)
from mmrank.models.losses.score_calibration import ScoreCalibration
from mmrank.registry import DATASETS, MODELS

from .processes import clean_context
from .test_datasets.trees import make_tree
from .toy import CONFIG

ROWS = torch.randn(4, 3)
LABELS = torch.tensor([0, 1, 2, 3])
HOT = torch.eye(4, 3).bool()
PROXIES = torch.eye(3)


def isa(**options: object) -> ProxyISALoss:
    return ProxyISALoss(3, 3, memory_size=4, by_epoch=False, **options)


def damaged_memory() -> None:
    loss = RaMBOLoss()
    loss(ROWS, LABELS.clamp(max=2))
    state = loss.state_dict()
    state['memory.lengths'] = state['memory.lengths'] + 1
    loss.load_state_dict(state)


def calibrate(scores: list[float], matches: list[int]) -> None:
    ScoreCalibration().fit(
        torch.tensor(scores), torch.tensor(matches).bool())


LOSSES: dict[str, tuple[Callable, str]] = {
    # functions of tensors
    'scores of one dimension too few': (
        lambda: F.blackbox_map_loss(ROWS[0], HOT[0], margin=0., lambda_val=1.),
        r'scores.*\(N, C\).*\(3,\)'),
    'relevance of another shape': (
        lambda: F.blackbox_ap_loss(ROWS[:, 0], HOT[:3, 0]), 'relevance'),
    'soft relevance': (
        lambda: F.blackbox_ap_loss(ROWS[:, 0], HOT[:, 0].float()),
        'relevance.*bool'),
    'integer scores': (
        lambda: F.blackbox_ap_loss(LABELS, HOT[:, 0]), 'floating point'),
    'lambda of zero': (
        lambda: F.blackbox_ap_loss(ROWS[:, 0], HOT[:, 0], lambda_val=0.),
        'lambda_val.*0'),
    'a negative margin': (
        lambda: F.blackbox_ap_loss(ROWS[:, 0], HOT[:, 0], margin=-1.),
        'margin.*-1'),
    'an unknown weighting': (
        lambda: F.blackbox_recall_loss(
            ROWS, HOT, margin=0., lambda_val=1., weighting='sqrt'),
        "weighting.*'log'.*'loglog'.*'sqrt'"),
    'a label without a proxy': (
        lambda: F.proxy_anchor_loss(ROWS, LABELS, PROXIES),
        r'labels.*\[0, 3\).*3.*num_classes'),
    'a negative label': (
        lambda: F.proxy_anchor_loss(ROWS, LABELS - 2, PROXIES), 'labels.*-2'),
    'labels that are floats': (
        lambda: F.proxy_anchor_loss(ROWS, LABELS / 2, PROXIES),
        'labels.*integers'),
    'proxies of another width': (
        lambda: F.proxy_anchor_loss(ROWS, LABELS, torch.eye(4)),
        r'\(B, D\).*\(4, 3\).*\(4, 4\)'),
    'an unknown distance': (
        lambda: F.hinge_triplet_loss(ROWS, ROWS, distance='cosine'),
        "distance.*'angular'.*'cosine'"),
    'anchors without their positives': (
        lambda: F.hinge_triplet_loss(ROWS, ROWS[:3]), r'\(4, 3\).*\(3, 3\)'),
    'fewer labels than queries': (
        lambda: F.retrieval_metrics(ROWS, LABELS[:2]), 'labels'),
    'a gallery without labels': (
        lambda: F.retrieval_metrics(ROWS, LABELS, gallery=ROWS),
        'gallery_labels'),
    'k of zero': (
        lambda: F.retrieval_metrics(ROWS, LABELS, ks=(0, )), 'k'),
    'k of one and a half': (
        lambda: F.retrieval_metrics(ROWS, LABELS, ks=(1.5, )), r'1\.5'),
    'blocks of fewer than one query': (
        lambda: F.retrieval_metrics(ROWS, LABELS, chunk_size=-1),
        'chunk_size.*-1'),
    'neighbours in blocks of fewer than one query': (
        lambda: F.nearest_neighbours(ROWS, k=1, chunk_size=-1),
        'chunk_size.*-1'),
    'neighbours in a gallery of another width': (
        lambda: F.nearest_neighbours(ROWS, ROWS[:, :2], k=1), '3 wide.*2'),
    'the average precision of NaN scores': (
        lambda: F.average_precision(ROWS[:, 0] * math.nan, HOT[:, 0]),
        'NaN'),
    'a recall above one': (
        lambda: F.fpr_at_recall(ROWS[:, 0], HOT[:, 0], recall=1.5),
        'recall.*1.5'),
    # registered losses
    'RaMBO: memory of -1 batches': (
        lambda: RaMBOLoss(memory_batches=-1), 'memory_batches.*-1'),
    'RaMBO: both terms weighted 0': (
        lambda: RaMBOLoss(map_weight=0, cross_class_weight=0), 'both'),
    'RaMBO: a sum of an average precision': (
        lambda: RaMBOLoss(reduction='sum'), "reduction.*'sum'"),
    'RaMBO: per process, misspelt': (
        lambda: RaMBOLoss(distributed='lokal'), "'local'.*'lokal'"),
    'RaMBO: a label above the background': (
        lambda: RaMBOLoss()(ROWS, LABELS + 1), 'labels.*3.*4'),
    'RaMBO: labels of another length': (
        lambda: RaMBOLoss()(ROWS, LABELS[:2]), r'\(4, 3\).*2 labels'),
    'RaMBO: one-hot labels': (
        lambda: RaMBOLoss()(ROWS, HOT.float()), 'one integer label'),
    'RaMBO: a quality of another length (quality focal)': (
        lambda: RaMBOLoss()(ROWS, (LABELS, ROWS[:2, 0])), 'quality.*2'),
    'RaMBO: labels with two qualities': (
        lambda: RaMBOLoss()(ROWS, (LABELS, LABELS, LABELS)), 'tuple'),
    'RaMBO: another number of columns': (
        lambda: RaMBOLoss(num_classes=7)(ROWS, LABELS), '7 columns.*got 3'),
    'RaMBO: loss and head disagree on C': (
        lambda: RaMBOLoss(num_classes=7).get_cls_channels(80),
        'num_classes=7.*num_classes=80'),
    'RaMBO recall: labels of another length': (
        lambda: RaMBORecallLoss()(ROWS, LABELS[:2]), r'labels'),
    'RaMBO recall: labels that are floats': (
        lambda: RaMBORecallLoss()(ROWS, LABELS / 2), 'labels.*integers'),
    'RaMBO: a memory whose lengths do not add up': (
        damaged_memory, r"'memory.lengths' tells of 5"),
    'RaMBO recall: warm-up of -1': (
        lambda: RaMBORecallLoss(warmup_iters=-1), 'warmup_iters.*-1'),
    'Proxy-Anchor without proxies': (
        lambda: ProxyAnchorLoss()(ROWS, LABELS), 'proxies.*num_classes'),
    'Proxy-ISA: labels that are floats': (
        lambda: isa()(ROWS, LABELS / 2, proxies=PROXIES),
        'labels.*integers'),
    'Proxy-ISA: V of one': (lambda: isa(V=1.), 'V must be > 1'),
    'Proxy-ISA: weighting before the queue': (
        lambda: isa(queue_start=3, weighting_start=1), 'queue_start'),
    'Proxy-ISA: an unknown epoch': (
        lambda: ProxyISALoss(3, 3)(ROWS[:3], LABELS[:3], proxies=PROXIES),
        'RuntimeInfoHook.*set_epoch'),
    'triplets: a margin of zero': (
        lambda: HingeTripletLoss(margin=0.), 'margin.*0'),
    'AdaSample: a negative lambda': (
        lambda: AdaSample(lambda_val=-1), 'lambda_val.*-1'),
    'AdaSample: an unknown mode': (
        lambda: AdaSample(mode='offline'), "'online'.*'offline'"),
    'AdaSample: classes of a single patch': (
        lambda: AdaSample(lambda_val=0)(None, torch.eye(3).bool()),
        'at least 2'),
    'calibration by equal scores': (
        lambda: calibrate([.5, .5, .5], [1, 0, 1]), 'different scores.*0.5'),
    'calibration by NaN scores': (
        lambda: calibrate([.5, math.nan], [1, 0]), 'NaN'),
    'calibration where low scores are the correct ones': (
        lambda: calibrate([.1, .2, .8, .9] * 9, [1, 1, 0, 0] * 9),
        'higher scores'),
    'batches of no class': (
        lambda: DistinctClassSampler(ROWS, 0), 'batch_size.*0'),
    'half a sample of a class': (
        lambda: ClassBalancedBatchSampler(
            DefaultSampler(ROWS, seed=0), 4, 1.5), r'samples_per_class.*1\.5'),
    'a retrieval metric of one k': (
        lambda: RetrievalMetric(ks=5), 'ks.*5'),
    'a head for no class': (
        lambda: MetricLearningHead(
            in_channels=4, num_classes=0, embedding_size=3,
            loss=dict(type='mmrank.ProxyAnchorLoss')), 'num_classes.*0'),
    'a head with an unknown pooling': (
        lambda: MetricLearningHead(
            in_channels=4, num_classes=3, embedding_size=3, pooling='median',
            loss=dict(type='mmrank.ProxyAnchorLoss')), "pooling.*'median'"),
}


@pytest.mark.parametrize('mistake', LOSSES)
def test_a_loss_names_what_does_not_fit(mistake):
    call, words = LOSSES[mistake]
    with pytest.raises(ValueError, match=words):
        call()


def drop(root: Path, name: str) -> None:
    (root / name).rename(root / 'elsewhere')


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def csv(text: str) -> Callable[[Path], None]:
    return lambda root: put(root, 'list.csv', text)


def scene(root: Path, info: str = '', pairs: str = '') -> None:
    """A PhotoTour scene of four patches, or what is left of it."""
    folder = root / 'liberty'
    folder.mkdir()
    write_mosaics(folder, list(np.zeros((4, 64, 64), np.uint8)))
    put(folder, 'info.txt', info or '3 0\n3 0\n68268 0\n68268 0\n')
    put(folder, 'm50_100000_100000_0.txt', pairs or '0 3 0 1 3 0\n')


def photo_tour(root: str, **options: object) -> PhotoTourDataset:
    return PhotoTourDataset(root, 'liberty', **options)


def pairs(root: str) -> PhotoTourDataset:
    return photo_tour(root, test_mode=True)


# mistake: (tree, what is done to it, who reads it, error, words)
DATA: dict[str, tuple] = {
    'a folder that is not there': (
        None, None, lambda root: CUBDataset(f'{root}/none'),
        FileNotFoundError, 'CUBDataset.*none.*images.txt'),
    'a split that is not there': (
        'cub', None, lambda root: CUBDataset(root, 'valid'), ValueError,
        "split.*'train'.*'valid'"),
    'CUB: no class list': (
        'cub', lambda r: drop(r, 'image_class_labels.txt'), CUBDataset,
        FileNotFoundError, 'image_class_labels.txt.*lay it out'),
    'CUB: a label that is no number': (
        'cub', lambda r: put(r, 'image_class_labels.txt', '1 one\n'),
        CUBDataset, ValueError, "image_class_labels.txt.*1.*one"),
    'CUB: an image without a path': (
        'cub', lambda r: put(r, 'image_class_labels.txt', '99 1\n'),
        CUBDataset, ValueError, "image_class_labels.txt.*99"),
    'CUB: a line cut short': (
        'cub', lambda r: put(r, 'images.txt', '1\n'), CUBDataset, ValueError,
        'images.txt.*1'),
    'Cars: no annotations': (
        'cars', lambda r: drop(r, 'cars_annos.mat'), CarsDataset,
        FileNotFoundError, 'cars_annos.mat'),
    'Cars: a file that is no .mat': (
        'cars', lambda r: put(r, 'cars_annos.mat', 'text'), CarsDataset,
        ValueError, 'cars_annos.mat'),
    'SOP: no heading': (
        'sop', lambda r: put(r, 'Ebay_train.txt', '1 1 1 a.JPG\n'),
        StanfordOnlineProductsDataset, ValueError, 'Ebay_train.txt.*begin'),
    'SOP: a line cut short': (
        'sop', lambda r: put(
            r, 'Ebay_train.txt',
            'image_id class_id super_class_id path\n1 1 1\n'),
        StanfordOnlineProductsDataset, ValueError, 'Ebay_train.txt.*2'),
    'In-Shop: no partition': (
        'inshop', lambda r: drop(r, 'Eval'), InShopDataset,
        FileNotFoundError, 'list_eval_partition.txt'),
    'In-Shop: a line cut short': (
        'inshop', lambda r: put(
            r, 'Eval/list_eval_partition.txt',
            '1\nimage_name item_id evaluation_status\nimg/a.jpg\n'),
        InShopDataset, ValueError, 'list_eval_partition.txt.*3'),
    'CSV: no such file': (
        None, None, CSVRetrievalDataset, FileNotFoundError, 'list.csv'),
    'CSV: a column is missing': (
        None, csv('path,class\na.png,b\n'), CSVRetrievalDataset, ValueError,
        "list.csv.*label.*'class'"),
    'CSV: a row cut short': (
        None, csv('path,label\na.png\n'), CSVRetrievalDataset, ValueError,
        'list.csv.*line 2'),
    'CSV: an is_query that is neither 0 nor 1': (
        None, csv('path,label,is_query\na.png,b,maybe\n'),
        CSVRetrievalDataset, ValueError, "line 2.*is_query.*'maybe'"),
    'CSV: nothing of this split': (
        None, csv('path,label,split\na.png,b,train\n'),
        lambda root: CSVRetrievalDataset(root, split='test'), ValueError,
        "no item.*'test'"),
    'folders without an image': (
        None, lambda r: put(r, 'class/notes.txt', ''),
        FolderRetrievalDataset, ValueError, 'no (item|image).*class name'),
    'glyphs of a split that is not there': (
        None, None, lambda root: GlyphRetrievalDataset(split='dev'),
        ValueError, "split.*'dev'"),
    'PhotoTour: no scene': (
        None, None, photo_tour, FileNotFoundError, 'liberty'),
    'PhotoTour: fewer points than tiles': (
        None, lambda r: scene(r, info='3 0\n' * 300), photo_tour, ValueError,
        '300 patches.*256'),
    'PhotoTour: a point that is no number': (
        None, lambda r: scene(r, info='x 0\n'), photo_tour, ValueError,
        "info.txt, line 1.*'x 0'"),
    'PhotoTour: pairs of another scene': (
        None, lambda r: scene(r, pairs='0 3 0 9 3 0\n'), pairs, ValueError,
        'row 1.*agree'),
    'PhotoTour: a pair cut short': (
        None, lambda r: scene(r, pairs='0 3 0\n'), pairs, ValueError,
        'six integers'),
    'HPatches: no splits': (
        None, None, HPatchesDataset, FileNotFoundError, 'splits.json'),
    'HPatches: splits that are no JSON': (
        None, lambda r: put(r, 'splits.json', '{'), HPatchesDataset,
        ValueError, 'splits.json'),
    'HPatches: a split that is not there': (
        None, lambda r: put(r, 'splits.json', '{"a": {"test": []}}'),
        lambda root: HPatchesDataset(root, 'z'), ValueError, "'z'"),
    'PhotoPatches: a file in the way': (
        None, lambda r: put(r, 'patches', ''),
        lambda root: write_photo_patches(f'{root}/patches'), ValueError,
        'patches exists.*another out_dir'),
    'digits: no images': (
        None, None, lambda root: make_digits_on_photos(
            f'{root}/digits', num_train=0), (ValueError, TypeError),
        'num_train'),
}


@pytest.mark.parametrize('mistake', DATA)
def test_a_data_set_names_the_file_and_the_remedy(mistake, tmp_path):
    tree, damage, read, error, words = DATA[mistake]
    root = tmp_path / 'root'
    if tree is None:
        root.mkdir()
    else:
        make_tree(tree, root)
    if damage is not None:
        damage(root)
    with pytest.raises(error) as caught:
        data = read(str(root))
        if hasattr(data, 'full_init'):
            data.full_init()
    message = ' '.join(str(caught.value).split())
    assert re.search(words, message), message


def colours(mode: str, value: object) -> Image.Image:
    return Image.new(mode, (6, 4), value)


def cut(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:300])


# broken files: (writer, words)
BROKEN_IMAGES: dict[str, tuple] = {
    'cut.jpg': (cut, 'cut.jpg.*cannot be read'),
    'cut.png': (cut, 'cut.png.*cannot be read'),
    'empty.jpg': (lambda path: path.touch(), 'empty.jpg.*cannot be read'),
    'text.jpg': (lambda path: path.write_text('no image'),
                 'text.jpg.*cannot be read'),
}


@pytest.mark.parametrize('name', BROKEN_IMAGES)
def test_a_broken_image_is_named(name, tmp_path):
    write, words = BROKEN_IMAGES[name]
    write(tmp_path / name)
    with pytest.raises(ValueError, match=words):
        LoadImage()(dict(img_path=str(tmp_path / name)))


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='none.jpg.*complete'):
        LoadImage()(dict(img_path=str(tmp_path / 'none.jpg')))


# unusual files: (image, the RGB that is documented)
UNUSUAL_IMAGES: dict[str, tuple] = {
    'grey.png': (colours('L', 100), (100, 100, 100)),
    # nothing of it is seen: the ground shows, which is white
    'alpha.png': (colours('RGBA', (10, 20, 30, 0)), (255, 255, 255)),
    'palette.png': (colours('RGB', (9, 8, 7)).quantize(2), (9, 8, 7)),
    'sixteen-bit.png': (
        Image.fromarray(np.full((4, 6), 0x6400, np.uint16)), (100, ) * 3),
    'two-colours.png': (colours('1', 1), (255, 255, 255)),
}


@pytest.mark.parametrize('name', UNUSUAL_IMAGES)
def test_an_unusual_image_becomes_eight_bit_colour(name, tmp_path):
    image, expected = UNUSUAL_IMAGES[name]
    image.save(tmp_path / name)
    found = LoadImage()(dict(img_path=str(tmp_path / name)))['img']
    assert (found.mode, found.size) == ('RGB', (6, 4))
    assert found.getpixel((0, 0)) == expected


def test_a_photograph_taken_sideways_is_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    colours('RGB', 0).save(tmp_path / 'turned.jpg', exif=exif)
    results = LoadImage()(dict(img_path=str(tmp_path / 'turned.jpg')))
    assert results['img'].size == (4, 6)
    assert results['ori_shape'] == (6, 4)


# values that are no error: what the loss then is
@pytest.mark.parametrize('loss', [
    lambda x, y: RaMBOLoss()(x, y),
    lambda x, y: RaMBORecallLoss()(x, y),
    lambda x, y: ProxyAnchorLoss()(x, y, proxies=PROXIES),
    lambda x, y: isa(queue_start=0)(x, y, proxies=PROXIES),
])
def test_nan_scores_show_as_a_nan_loss(loss):
    rows = ROWS.clone()
    rows[0, 0] = math.nan
    assert loss(rows, LABELS.clamp(max=2)).isnan()


def test_a_nan_batch_leaves_no_trace_in_a_memory():
    rows = ROWS * math.nan
    labels = LABELS.clamp(max=2)
    for loss in (RaMBOLoss(), RaMBORecallLoss()):
        loss(rows, labels)
        assert loss(ROWS, labels).isfinite()
    loss = isa(queue_start=0)
    loss(rows, labels, proxies=PROXIES)
    assert loss.queue.count == 0
    assert loss(ROWS, labels, proxies=PROXIES).isfinite()


@pytest.mark.parametrize('labels', [[0, 0, 0, 0], [1, 1, 1, 1]],
                         ids=['all positive', 'all background'])
def test_a_single_class_is_ranked(labels):
    scores = ROWS[:, :1].clone().requires_grad_()
    loss = RaMBOLoss(num_classes=1)(scores, torch.tensor(labels))
    loss.backward()
    assert loss.item() == 0 and scores.grad.abs().sum() == 0


# tools and files
def tool(folder: Path, *flags: str) -> None:
    (folder / 'toy.py').write_text(CONFIG)
    train([str(folder / 'toy.py'), '--work-dir', str(folder / 'run'), *flags])


def test_a_misspelt_config_is_answered_with_near_names():
    with pytest.raises(FileNotFoundError, match=r'faster-rcnn_r50'):
        config_path('rambo/faster-rcnn_r50_fpn_rambo_voc7.py')


@pytest.mark.parametrize('registry, type_', [
    (MODELS, 'mmrank.RamboLoss'), (DATASETS, 'mmrank.CubDataset')])
def test_a_misspelt_type_is_named(registry, type_):
    with pytest.raises(KeyError, match=type_):
        registry.build(dict(type=type_))


def test_a_config_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='no config file.*none.py'):
        train([str(tmp_path / 'none.py')])


def test_a_config_without_a_model_is_named(tmp_path):
    (tmp_path / 'empty.py').write_text('')
    with pytest.raises(ValueError, match='empty.py has no model'):
        train([str(tmp_path / 'empty.py')])


def test_a_misspelt_option_that_nothing_reads_is_answered(tmp_path):
    with pytest.warns(UserWarning, match="did you mean 'randomness'"):
        tool(tmp_path, '--cfg-options', 'randomnes.seed=1',
             'train_cfg.max_epochs=1')


def test_an_unknown_option_of_a_loss_is_named():
    with pytest.raises(TypeError, match='lamda_val'):
        MODELS.build(dict(type='mmrank.RaMBOLoss', lamda_val=0.5))


def test_a_checkpoint_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='none.pth'):
        tool(tmp_path, '--resume', str(tmp_path / 'none.pth'))


def test_a_checkpoint_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / 'text.pth').write_text('no checkpoint')
    (tmp_path / 'toy.py').write_text(CONFIG)
    with pytest.raises(ValueError, match='text.pth.*truncated or damaged'):
        run_test([str(tmp_path / 'toy.py'), str(tmp_path / 'text.pth')])


def test_a_work_dir_that_is_a_file_is_refused(tmp_path):
    (tmp_path / 'run').write_text('in the way')
    with pytest.raises(OSError, match='run;.*--work-dir'):
        tool(tmp_path)
    assert (tmp_path / 'run').read_text() == 'in the way'


def obey_permissions() -> None:
    """Takes from root, on Linux, the right to write where nobody may."""
    if os.geteuid() == 0:
        version, this_process = 0x20080522, 0
        header = (ctypes.c_uint32 * 2)(version, this_process)
        nothing = (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(header, nothing) == 0


def train_without_privileges(arguments: list[str], output: Path) -> None:
    with output.open('w') as file:
        os.dup2(file.fileno(), 2)
    obey_permissions()
    sys.exit(main(['train', *arguments]))


@pytest.mark.parametrize('work_dir', ['locked', 'locked/run'])
def test_a_work_dir_that_is_read_only_is_refused(tmp_path, work_dir):
    (tmp_path / 'toy.py').write_text(CONFIG)
    locked, output = tmp_path / 'locked', tmp_path / 'output'
    locked.mkdir(mode=0o555)
    child = clean_context().Process(
        target=train_without_privileges,
        args=([str(tmp_path / 'toy.py'), '--work-dir',
               str(tmp_path / work_dir)], output))
    child.start()
    child.join(100)
    assert child.exitcode == 1
    *_, last = output.read_text().splitlines()
    assert re.search(f'Permission.*{tmp_path / work_dir};.*--work-dir', last)
    assert not list(locked.iterdir())


def test_a_full_disk_leaves_the_checkpoint_that_was_there(tmp_path):
    """A limit on the size of files stands for the disk."""
    tool(tmp_path, '--cfg-options', 'train_cfg.max_epochs=1')
    kept = (tmp_path / 'run' / 'epoch_1.pth').read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(kept) // 2, limits[1]))
    try:
        with pytest.raises(OSError):
            tool(tmp_path, '--resume')
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name for path in (tmp_path / 'run').rglob('*.p*th*')
            if path.suffix in ('.pth', '.part')} == {'epoch_1.pth'}
    assert (tmp_path / 'run' / 'epoch_1.pth').read_bytes() == kept


def test_a_gallery_of_another_width_or_cut_short_is_refused(tmp_path):
    gallery = GallerySearch.build(np.eye(4, dtype=np.float32))
    with pytest.raises(ValueError, match='4.*3'):
        gallery.query(np.eye(3, dtype=np.float32))
    gallery.save(tmp_path / 'gallery.npz')
    whole = (tmp_path / 'gallery.npz').read_bytes()
    (tmp_path / 'gallery.npz').write_bytes(whole[:-40])
    with pytest.raises(ValueError, match='gallery.npz'):
        GallerySearch.load(tmp_path / 'gallery.npz')
