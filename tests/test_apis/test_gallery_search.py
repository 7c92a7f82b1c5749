import json
import os
import sys
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.apis import GallerySearch, gallery_search
from mmrank.apis.gallery_search import FORMAT, VERSION
from mmrank.files import read_archive, write_archive

from ..processes import clean_context


def _embeddings(count, dim=8, seed=0):
    return np.random.default_rng(seed).normal(
        size=(count, dim)).astype(np.float32)


def _brute_force(queries, gallery, k):
    """Every cosine in float64, a stable sort; slow and plain."""
    rows = []
    for query in queries.astype(np.float64):
        cosines = []
        for item in gallery.astype(np.float64):
            norms = np.linalg.norm(query) * np.linalg.norm(item)
            cosines.append(0. if norms == 0 else query @ item / norms)
        order = sorted(range(len(gallery)), key=lambda i: (-cosines[i], i))
        rows.append([(i, cosines[i]) for i in order[:k]])
    return rows


def _saved(tmp_path, **kwargs):
    gallery = GallerySearch(
        _embeddings(5), [0, 1, 2, 0, 1], list('abcde'),
        classes=['x', 'y', 'z'], **kwargs)
    file = tmp_path / 'gallery.npz'
    gallery.save(file)
    return gallery, file


@pytest.mark.parametrize('backend', ['torch', 'faiss'])
def test_finds_what_brute_force_finds(backend, monkeypatch):
    if backend == 'faiss':
        pytest.importorskip('faiss')
    monkeypatch.setattr(gallery_search, '_QUERY_BLOCK', 3)
    gallery, queries = _embeddings(100), _embeddings(7, seed=1)
    search = GallerySearch(gallery, backend=backend)
    result = search.query(queries, k=9)
    expected = _brute_force(queries, gallery, 9)
    assert result.indices.tolist() == [[i for i, _ in r] for r in expected]
    np.testing.assert_allclose(
        result.scores, [[s for _, s in r] for r in expected], atol=1e-6)
    assert result.scores.dtype == np.float32


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**16))
def test_both_backends_agree_on_order_when_items_repeat(count, k, seed):
    pytest.importorskip('faiss')
    # few distinct values: many exactly equal similarities
    gallery = np.random.default_rng(seed).integers(
        -1, 2, size=(count, 3)).astype(np.float32)
    results = [
        GallerySearch(gallery, backend=backend).query(
            gallery[:4], k) for backend in ('torch', 'faiss')
    ]
    np.testing.assert_array_equal(results[0].indices, results[1].indices)
    np.testing.assert_array_equal(results[0].scores, results[1].scores)


@pytest.mark.parametrize('backend', ['torch', 'faiss'])
def test_equal_items_come_in_the_order_of_the_gallery(backend):
    if backend == 'faiss':
        pytest.importorskip('faiss')
    search = GallerySearch(np.ones((200, 4)), backend=backend)
    assert search.query(np.ones(4), k=3).indices.tolist() == [[0, 1, 2]]


def test_k_above_the_gallery_gives_the_whole_gallery():
    search = GallerySearch(_embeddings(3), paths=['a', 'b', 'c'])
    result = search.query(_embeddings(2, seed=1), k=10)
    assert result.scores.shape == (2, 3)
    assert sorted(result.paths[0]) == ['a', 'b', 'c']


def test_no_queries_and_an_empty_gallery_give_empty_results():
    search = GallerySearch(_embeddings(3))
    assert search.query(np.zeros((0, 8)), k=2).scores.shape == (0, 2)
    assert search.query(np.zeros((0, 8)), k=2).rows() == []
    empty = GallerySearch(np.zeros((0, 8)), [], [])
    assert empty.query(_embeddings(2), k=2).indices.shape == (2, 0)


def test_a_zero_embedding_is_similar_to_nothing():
    search = GallerySearch([[0., 0.], [-1., 0.], [1., 0.]])
    assert search.query([1., 0.], k=3).scores.tolist() == [[1., 0., -1.]]


def test_rows_name_class_path_and_score():
    search = GallerySearch([[1., 0.], [0., 1.]], [1, 0], ['u.png', 'v.png'],
                           classes=['cat', 'dog'])
    assert search.query([1., 0.], k=1).rows() == [[{
        'index': 0, 'score': 1.0, 'label': 1, 'class': 'dog',
        'path': 'u.png'}]]


def test_accepts_tensors_of_half_precision_with_a_graph():
    values = torch.randn(4, 8, dtype=torch.float16, requires_grad=True)
    assert GallerySearch(values).query(values[1], k=1).indices.item() == 1


def test_a_saved_gallery_answers_exactly_as_before(tmp_path):
    gallery, file = _saved(tmp_path, model_id='m1')
    again = GallerySearch.load(file, embedding_dim=8, model_id='m1')
    queries = _embeddings(4, seed=3)
    before, after = gallery.query(queries, 3), again.query(queries, 3)
    np.testing.assert_array_equal(before.scores, after.scores)
    assert before.rows() == after.rows()
    assert (again.classes, again.model_id) == (['x', 'y', 'z'], 'm1')


def test_a_gallery_without_labels_and_paths_survives_saving(tmp_path):
    GallerySearch(_embeddings(2)).save(tmp_path / 'new' / 'g.npz')
    again = GallerySearch.load(tmp_path / 'new' / 'g.npz')
    assert again.labels is None and again.paths is None


def test_saving_leaves_the_old_file_whole_when_it_fails(
        tmp_path, monkeypatch):
    gallery, file = _saved(tmp_path)
    content = file.read_bytes()

    def fails(stream, **arrays):
        stream.write(b'half')
        raise OSError('disk full')

    monkeypatch.setattr(np, 'savez', fails)
    with pytest.raises(OSError, match='disk full'):
        gallery.save(file)
    assert file.read_bytes() == content
    assert os.listdir(tmp_path) == ['gallery.npz']


def save_often(file, label, start):
    gallery = GallerySearch(_embeddings(500, seed=label), [label] * 500)
    start.wait(100)
    for _ in range(20):
        gallery.save(file)


def test_two_processes_that_save_to_one_file_leave_a_whole_gallery(tmp_path):
    file, context = tmp_path / 'gallery.npz', clean_context()
    GallerySearch(_embeddings(1), [0]).save(file)
    start = context.Barrier(3)
    writers = [context.Process(
        target=save_often, args=(file, label, start), daemon=True)
        for label in (1, 2)]
    for writer in writers:
        writer.start()
    start.wait(100)
    while any(writer.is_alive() for writer in writers):
        assert len(set(GallerySearch.load(file).labels)) == 1
    assert [writer.exitcode for writer in writers] == [0, 0]
    last = GallerySearch.load(file)
    assert len(last) == 500
    np.testing.assert_array_equal(
        last.embeddings, GallerySearch(
            _embeddings(500, seed=last.labels[0])).embeddings)
    assert os.listdir(tmp_path) == ['gallery.npz']


def test_a_model_of_another_width_is_refused(tmp_path):
    _, file = _saved(tmp_path)
    with pytest.raises(ValueError, match='8 dimensions.*have 16'):
        GallerySearch.load(file, embedding_dim=16)
    with pytest.raises(ValueError, match='8 dimensions.*have 16'):
        GallerySearch.load(file).query(np.ones((1, 16)))


def test_another_model_of_equal_width_is_refused(tmp_path):
    _, file = _saved(tmp_path, model_id='m1')
    with pytest.raises(ValueError, match='m1.*m2'):
        GallerySearch.load(file, model_id='m2')


@pytest.mark.parametrize('share', [0., .1, .5, .9, .999])
def test_a_truncated_file_is_refused_by_name(tmp_path, share):
    _, file = _saved(tmp_path)
    content = file.read_bytes()
    file.write_bytes(content[:int(share * len(content))])
    with pytest.raises(ValueError, match='gallery.npz.*damaged'):
        GallerySearch.load(file)


def test_a_flipped_byte_is_refused(tmp_path):
    _, file = _saved(tmp_path)
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        start = archive.getinfo('embeddings.npy').header_offset
    content[start + 200] ^= 0xff
    file.write_bytes(content)
    with pytest.raises(ValueError, match='damaged'):
        GallerySearch.load(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'nowhere\.npz'):
        GallerySearch.load(tmp_path / 'nowhere.npz')


def _rewrite(file, **changes):
    arrays = read_archive(file, 'gallery')
    meta = json.loads(arrays['meta'].tobytes())
    meta.update(changes)
    arrays['meta'] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    write_archive(file, arrays)


def test_another_version_is_refused(tmp_path):
    _, file = _saved(tmp_path)
    _rewrite(file, version=VERSION + 1)
    with pytest.raises(ValueError, match=f'version {VERSION + 1}.*{FORMAT}'):
        GallerySearch.load(file)


def test_a_file_that_lost_items_is_refused(tmp_path):
    _, file = _saved(tmp_path)
    _rewrite(file, size=6)
    with pytest.raises(ValueError, match='5 of 6'):
        GallerySearch.load(file)


def test_some_other_archive_is_refused(tmp_path):
    np.savez(tmp_path / 'other.npz', a=np.ones(3))
    with pytest.raises(ValueError, match='no gallery'):
        GallerySearch.load(tmp_path / 'other.npz')


def test_pickled_objects_are_never_loaded(tmp_path):
    file = tmp_path / 'evil.npz'
    np.savez(file, meta=np.array([{'a': 1}], dtype=object))
    with pytest.raises(ValueError, match='damaged or no gallery'):
        GallerySearch.load(file)


@pytest.mark.parametrize('arguments, message', [
    ({'embeddings': np.ones(3)}, r'shape \(N, D\)'),
    ({'embeddings': [[np.nan, 1.]]}, 'finite.*first at 0'),
    ({'embeddings': np.ones((2, 2)), 'labels': [1]}, 'labels must be 2'),
    ({'embeddings': np.ones((1, 2)), 'labels': [.5]}, 'labels must be 1'),
    ({'embeddings': np.ones((2, 2)), 'paths': ['a']}, 'paths must be 2'),
    ({'embeddings': np.ones((1, 2)), 'labels': [3], 'classes': ['a']},
     '1 class'),
    ({'embeddings': np.ones((1, 2)), 'backend': 'annoy'}, "'annoy'"),
])
def test_wrong_input_is_refused_with_a_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        GallerySearch(**arguments)


@pytest.mark.parametrize('k', [0, -1, 2.5])
def test_a_wrong_k_is_refused(k):
    with pytest.raises(ValueError, match='k must be'):
        GallerySearch(_embeddings(3)).query(_embeddings(1), k)


def test_works_without_faiss_and_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, 'faiss', None)
    assert GallerySearch(_embeddings(3)).backend == 'torch'
    with pytest.raises(ImportError, match='pip install faiss-cpu'):
        GallerySearch(_embeddings(3), backend='faiss')
