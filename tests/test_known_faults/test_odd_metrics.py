"""Metrics on odd sets: a defined value, or one error that says why."""

import math

import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.model import BaseModel
from mmengine.registry import METRICS, MODELS
from mmengine.runner import Runner
from torch.utils.data import Dataset

from mmrank.apis import GallerySearch
from mmrank.datasets.readers.hpatches import STRIPS
from mmrank.evaluation import (
    HPatchesMetric,
    PatchVerificationMetric,
    RetrievalMetric,
)
from mmrank.functional import nearest_neighbours
from mmrank.structures import RetrievalDataSample


def samples(labels, embeddings=None, queries=None):
    found = []
    for index, label in enumerate(labels):
        meta = dict(sample_idx=index)
        if queries is not None:
            meta['is_query'] = bool(queries[index])
        sample = RetrievalDataSample(metainfo=meta).set_gt_label(label)
        sample.pred_embedding = torch.eye(16)[index] if embeddings is None \
            else torch.tensor(embeddings[index])
        found.append(sample)
    return found


def evaluate(*args, **kwargs):
    evaluator = Evaluator(RetrievalMetric(ks=(1, )))
    evaluator.process(samples(*args, **kwargs))
    return evaluator.evaluate(16)


# ----------------------------------------------------------------------- N14
def test_n14_only_singletons_is_an_error_that_says_no_query_has_a_match():
    with pytest.raises(ValueError, match='no query has a match: of 4 queries'
                       '.* 4 classes of 4 images'):
        evaluate([0, 1, 2, 3])


def test_n14_one_pair_among_singletons_gives_its_value_and_the_queries():
    found = evaluate(
        [0, 1, 1, 2], [[1., 0.], [0., 1.], [.1, 1.], [1., .2]])
    assert found['retrieval/R@1'] == 1
    assert found['retrieval/MAP@R'] == 1
    assert found['retrieval/num_queries'] == 2


def test_one_class_has_every_neighbour_right():
    found = evaluate([5, 5, 5])
    assert [found[f'retrieval/{name}'] for name in (
        'R@1', 'MAP@R', 'num_queries')] == [1, 1, 3]


def test_a_set_without_query_is_refused():
    with pytest.raises(ValueError, match='none of 3 images is a query'):
        evaluate([0, 0, 0], queries=[0, 0, 0])


def test_an_empty_set_is_refused():
    with pytest.raises(ValueError, match='none of 0 images is a query'):
        Evaluator(RetrievalMetric()).evaluate(0)


def test_queries_of_classes_that_the_gallery_lacks_are_refused():
    with pytest.raises(ValueError, match='of 2 queries none'):
        evaluate([0, 1, 2, 2], queries=[1, 1, 0, 0])


def test_a_nan_embedding_is_an_error_and_no_figure():
    with pytest.raises(ValueError, match='not finite.*diverged'):
        evaluate([0, 0], [[1., 0.], [math.nan, 0.]])


# ------------------------------------------------------- the best checkpoint
class Rows(Dataset):
    """An image is its row; labels 0, 0, 1, 2: two classes of one image."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        sample = RetrievalDataSample(metainfo=dict(sample_idx=index))
        return dict(inputs=torch.eye(4)[index],
                    data_samples=sample.set_gt_label([0, 0, 1, 2][index]))


@MODELS.register_module(force=True)
class OddEmbedder(BaseModel):
    """Embeds a row as itself, plus the epoch's number of steps."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(4))

    def forward(self, inputs, data_samples, mode='tensor'):
        rows = torch.stack(list(inputs)) + self.shift
        if mode == 'loss':
            return dict(loss=(rows - 1).square().sum())
        for row, sample in zip(rows, data_samples):
            sample.pred_embedding = row
        return data_samples


@METRICS.register_module(force=True)
class LateMetric(BaseMetric):
    """NaN at the first evaluation, then 0.5 and 0.25."""

    def __init__(self):
        super().__init__()
        self.values = iter([math.nan, .5, .25])

    def process(self, data_batch, data_samples):
        self.results += data_samples

    def compute_metrics(self, results):
        return dict(late=next(self.values))


def train(folder, metric, best, rule):
    def loader(shuffle):
        return dict(
            dataset=Rows(), batch_size=4, num_workers=0,
            sampler=dict(type='DefaultSampler', shuffle=shuffle),
            collate_fn=dict(type='pseudo_collate'))
    runner = Runner(
        OddEmbedder(), str(folder), loader(True), loader(False),
        train_cfg=dict(by_epoch=True, max_epochs=3), val_cfg=dict(),
        val_evaluator=Evaluator(metric),
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=.01)),
        default_hooks=dict(logger=None, checkpoint=dict(
            type='mmrank.AtomicCheckpointHook', save_best=best, rule=rule)),
        experiment_name=f'best{id(folder)}', log_level='ERROR')
    runner.train()
    return runner.message_hub


def test_several_best_checkpoints_where_a_class_has_one_image(tmp_path):
    best = ['retrieval/R@1', 'retrieval/MAP@R']
    info = train(tmp_path, RetrievalMetric(ks=(1, )), best, 'greater')
    for name in best:
        assert math.isfinite(info.get_info(f'best_score_{name}'))
        stem = f'best_{name.replace("/", "_")}_epoch_'
        assert len(list(tmp_path.glob(f'{stem}*.pth'))) == 1


@pytest.mark.parametrize('rule, epoch, value', [
    ('greater', 2, .5), ('less', 3, .25)])
def test_a_nan_is_never_the_best(tmp_path, rule, epoch, value):
    info = train(tmp_path, LateMetric(), 'late', rule)
    assert info.get_info('best_score') == value
    assert [p.name for p in tmp_path.glob('best_*.pth')] == [
        f'best_late_epoch_{epoch}.pth']


# ----------------------------------------------------------------------- N15
BROKEN = torch.tensor([[1., 0.], [math.nan, 1.], [0., 1.]])


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_n15_a_row_that_is_not_finite_is_never_the_nearest(value):
    rows = BROKEN.nan_to_num(nan=value)
    for arguments in ([torch.eye(2), rows], [rows, torch.eye(2)], [rows]):
        with pytest.raises(ValueError, match='not finite'):
            nearest_neighbours(*arguments, k=1)


def test_n15_nor_in_a_gallery():
    with pytest.raises(ValueError, match='1 of 3 are not, the first at 1'):
        GallerySearch(BROKEN)
    with pytest.raises(ValueError, match='query embeddings must be finite'):
        GallerySearch(torch.eye(2)).query(BROKEN)


def test_n15_nor_in_a_gallery_from_a_file(tmp_path):
    gallery = GallerySearch(torch.eye(2))
    gallery.embeddings = BROKEN.numpy()
    gallery.save(tmp_path / 'gallery.npz')
    with pytest.raises(ValueError, match='must be finite'):
        GallerySearch.load(tmp_path / 'gallery.npz')


# --------------------------------------------------------------- descriptors
@pytest.mark.parametrize('matches', [[], [True] * 3, [False] * 3])
def test_pairs_of_one_kind_are_refused(matches):
    metric = PatchVerificationMetric()
    if matches:
        metric.process({}, [dict(descriptors=torch.eye(2), match=match)
                            for match in matches])
    with pytest.raises(ValueError, match='saw no pairs|needs matching and'):
        metric.evaluate(3)


def test_a_pair_whose_descriptor_is_nan_is_an_error():
    metric = PatchVerificationMetric()
    metric.process({}, [dict(descriptors=torch.full((2, 2), math.nan),
                             match=bool(i)) for i in range(2)])
    with pytest.raises(ValueError, match='NaN.*not finite'):
        metric.evaluate(2)


def hpatches(folder, rows=None, **files):
    metric = HPatchesMetric(split='a', tasks_dir=str(folder), tasks=(
        'verification', 'retrieval') if files else ('matching', ))
    rows = np.eye(3, dtype=np.float32) if rows is None else rows
    metric.process({}, [dict(sequence='v_a', strip=strip,
                             descriptors=torch.tensor(rows))
                        for strip in STRIPS])
    for name, text in files.items():
        (folder / f'{name}_split-a.csv').write_text(text)
    return metric.evaluate(len(STRIPS))


def test_hpatches_names_the_strips_that_are_not_finite(tmp_path):
    with pytest.raises(ValueError, match=r"\('v_a', 'ref'\).*16 in all"):
        hpatches(tmp_path, np.full((3, 3), np.nan, np.float32))


def test_hpatches_names_a_task_file_that_lists_nothing(tmp_path):
    with pytest.raises(ValueError, match='verif_pos_split-a.csv lists no'):
        hpatches(tmp_path, verif_pos='heading\n')
    pair = 'heading\nv_a,0,0,v_a,1,0\n'
    with pytest.raises(ValueError, match='retr_queries_split-a.csv lists no'):
        hpatches(tmp_path, verif_pos=pair, verif_neg_inter=pair,
                 verif_neg_intra=pair, retr_queries='q,i\n',
                 retr_distractors='q,i\n')
