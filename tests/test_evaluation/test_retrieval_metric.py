import logging
import sys

import pytest
import torch
import torch.distributed as dist
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger

from mmrank.datasets import GlyphRetrievalDataset
from mmrank.evaluation import RetrievalMetric, faiss_index
from mmrank.evaluation.metrics import retrieval_metric
from mmrank.functional import retrieval_metrics
from mmrank.structures import RetrievalDataSample

X = torch.randn(31, 8, generator=torch.Generator().manual_seed(3))
Y = torch.arange(31) % 7


def sample(index, query=None, embedding=None):
    meta = dict(sample_idx=int(index))
    if query is not None:
        meta['is_query'] = bool(query)
    found = RetrievalDataSample(metainfo=meta).set_gt_label(int(Y[index]))
    found.pred_embedding = X[index] if embedding is None else embedding
    return found


def evaluate(indices, query=None, **kwargs):
    evaluator = Evaluator(RetrievalMetric(ks=(1, 5), **kwargs))
    evaluator.process(
        [sample(i, None if query is None else query[i]) for i in indices])
    return evaluator.evaluate(len(X))


def bare(found):
    return {name.split('/')[1]: value for name, value in found.items()}


def expected(**kwargs):
    found = retrieval_metrics(ks=(1, 5), **kwargs)
    return {name: value for name, value in found.items()
            if name != 'num_skipped'}


@pytest.mark.parametrize('with_map', [True, False])
def test_it_is_the_function_over_all_samples_in_any_order(with_map):
    found = evaluate(torch.randperm(31), with_map=with_map)
    assert bare(found) == pytest.approx(
        expected(queries=X, query_labels=Y, with_map=with_map))
    assert all(name.startswith('retrieval/') for name in found)


@pytest.mark.parametrize('query', [None, torch.arange(31) % 3 == 0])
def test_faiss_finds_the_same_figures(query):
    for backend in ('faiss', 'auto'):
        assert evaluate(range(31), query, backend=backend) == pytest.approx(
            evaluate(range(31), query, backend='torch'))


@pytest.mark.parametrize('values, options, expected', [
    (X, {}, True), (X.half(), {}, True), (X.double(), {}, False),
    (X, dict(with_map=True), False), (X, dict(backend='torch'), False)])
def test_faiss_searches_where_it_is_installed_and_can(
        values, options, expected, monkeypatch):
    metric = RetrievalMetric(**options)
    assert metric._by_faiss(values) is expected
    monkeypatch.setattr(retrieval_metric, 'find_spec', lambda name: None)
    assert metric._by_faiss(values) is False


@pytest.mark.parametrize('options, word', [
    (dict(backend='annoy'), "'annoy'"),
    (dict(backend='faiss', with_map=True), 'with_map=False')])
def test_a_backend_that_cannot_do_it_is_refused(options, word):
    with pytest.raises(ValueError, match=word):
        RetrievalMetric(**options)


def test_faiss_searches_single_precision_only():
    with pytest.raises(ValueError, match="float64 on cpu.*'torch'"):
        faiss_index(X.double())


def test_without_faiss_its_backend_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, 'faiss', None)
    with pytest.raises(ImportError, match='pip install faiss-cpu'):
        faiss_index(X)


def test_queries_are_sought_among_the_gallery_only():
    query = torch.arange(31) % 3 == 0
    found = evaluate(range(31), query)
    assert bare(found) == pytest.approx(expected(
        queries=X[query], query_labels=Y[query], gallery=X[~query],
        gallery_labels=Y[~query], with_map=False))


def test_an_image_seen_twice_is_no_neighbour_of_itself():
    once = evaluate(range(31))
    assert evaluate(list(range(31)) + [0, 1, 2]) == once


def on_processes(query_flags):
    index, size = dist.get_rank(), dist.get_world_size()
    # as MMEngine's sampler: padded with the first, so that shares are equal
    padded = list(range(31)) + list(range(-31 % size))
    return evaluate(padded[index::size], query_flags)


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('separate', [True, False])
def test_several_processes_give_the_figures_of_one(
        processes, size, separate):
    flags = [i % 3 == 0 for i in range(31)] if separate else None
    alone = evaluate(range(31), flags)
    assert processes(size).run(on_processes, flags) == [alone] * size


def on_a_process_without_samples():
    return evaluate(range(31) if dist.get_rank() == 1 else [])


def test_a_process_without_any_sample_takes_part(processes):
    assert processes(2).run(on_a_process_without_samples) == [
        evaluate(range(31))] * 2


def with_nan():
    evaluator = Evaluator(RetrievalMetric())
    rank = dist.get_rank()
    evaluator.process([sample(rank, embedding=torch.full((8, ), torch.nan))])
    with pytest.raises(ValueError, match='not finite'):
        evaluator.evaluate(2)
    return True


def test_an_error_on_one_process_does_not_leave_the_others_waiting(processes):
    assert processes(2).run(with_nan) == [True, True]


def bytes_of_a_gather(number):
    from mmrank.evaluation import embeddings
    from mmrank.state import Collectives
    sent = []
    gather = Collectives.gather

    def counting(self, tensor):
        sent.append(tensor.numel() * tensor.element_size())
        return gather(self, tensor)

    Collectives.gather = counting
    try:
        collector = embeddings.EmbeddingCollector()
        for index in range(number):
            collector.add(dict(pred_embedding=torch.ones(64),
                               gt_label=dict(label=torch.tensor([1])),
                               sample_idx=index))
        collector.join()
    finally:
        Collectives.gather = gather
    return sum(sent)


def test_embeddings_and_labels_travel_and_not_rows_of_scores(processes):
    for sent in processes(2).run(bytes_of_a_gather, 300):
        assert sent <= 300 * (64 * 4 + 5 * 8) + 64


def test_skipped_queries_are_counted_in_the_log():
    logger = MMLogger.get_instance('skipped', log_level='INFO')
    lines = []
    x = torch.tensor([[1., 0.], [1., .1], [0., 1.]])
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    metric = RetrievalMetric()
    for row, index in enumerate((0, 7, 1)):  # labels 0, 0, 1
        metric.process(None, [sample(index, embedding=x[row]).to_dict()])
    assert metric.evaluate(3)['retrieval/R@1'] == 1.0
    assert any('1 of 3 queries skipped' in line for line in lines)


def test_a_second_evaluation_starts_empty():
    metric = RetrievalMetric(ks=(1, ))
    for _ in range(2):
        metric.process(None, [sample(i).to_dict() for i in range(31)])
        found = metric.evaluate(31)
    assert bare(found)['R@1'] == expected(
        queries=X, query_labels=Y, with_map=False)['R@1']


def test_embeddings_are_saved_as_plain_tensors(tmp_path):
    path = tmp_path / 'embeddings.pt'
    evaluate(torch.randperm(31), outfile=str(path))
    found = torch.load(path, weights_only=True)
    assert torch.equal(found['values'], X)
    assert torch.equal(found['labels'], Y)


def test_a_sample_without_its_index_is_named():
    metric = RetrievalMetric()
    with pytest.raises(ValueError, match='sample_idx'):
        metric.process(None, [dict(pred_embedding=X[0],
                                   gt_label=dict(label=Y[0]))])
    with pytest.raises(ValueError, match='ks'):
        RetrievalMetric(ks=(0, ))


def test_glyph_items_know_their_index():
    data = GlyphRetrievalDataset(split='test', num_classes=2)
    assert [data[i]['sample_idx'] for i in range(3)] == [0, 1, 2]


def test_the_folder_of_the_outfile_is_made(tmp_path):
    evaluate(range(31), outfile=str(tmp_path / 'new' / 'found.pt'))
    found = torch.load(tmp_path / 'new' / 'found.pt')
    assert found['values'].shape == X.shape


def unwritable_outfile(folder):
    with pytest.raises((OSError, RuntimeError)) as caught:
        evaluate(range(dist.get_rank(), 31, 2),
                 outfile=f'{folder}/file/found.pt')
    return str(caught.value)


def test_an_outfile_that_cannot_be_written_leaves_no_process_waiting(
        processes, tmp_path):
    (tmp_path / 'file').touch()
    messages = processes(2).run(unwritable_outfile, str(tmp_path))
    assert all('file' in message for message in messages)
