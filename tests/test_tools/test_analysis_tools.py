import json

import numpy as np
import pytest
import torch
from PIL import Image

from mmrank.apis import GallerySearch

from .loading import load_tool

PNG = b'\x89PNG'


def _tool(name):
    return load_tool(f'analysis_tools/{name}.py')


# ------------------------------------------------------------ loss landscape
def test_the_interpolation_has_the_blackbox_gradient():
    tool = _tool('loss_landscape')
    scores, weights = np.random.default_rng(0).normal(size=(2, 12))
    for lambda_val in (.05, .5, 5.):
        gradient = -(tool.ranks(scores) - tool.ranks(
            scores + lambda_val * weights)) / lambda_val
        step = 1e-6
        numeric = [
            (tool.interpolated_loss(scores + step * unit, weights, lambda_val)
             - tool.interpolated_loss(scores - step * unit, weights,
                                      lambda_val)) / (2 * step)
            for unit in np.eye(12)
        ]
        np.testing.assert_allclose(numeric, gradient, atol=1e-6)


def test_the_interpolation_approaches_the_loss_as_lambda_falls():
    tool = _tool('loss_landscape')
    scores, weights = tool.section(20, 12, 2., seed=1)
    loss = tool.ranks(scores) @ weights
    errors = [
        np.abs(tool.interpolated_loss(scores, weights, value) - loss).mean()
        for value in (.5, .05, .005)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < errors[0] / 5


def test_soft_binned_ranks_approach_the_ranks_with_many_bins():
    tool = _tool('loss_landscape')
    scores = np.array([.1, .9, .5, .3])
    # a soft rank counts the item itself, as the hard one does
    np.testing.assert_allclose(
        tool.soft_binned_ranks(scores, 100001), tool.ranks(scores),
        atol=1e-6)


def test_draws_the_loss_landscape(tmp_path, capsys):
    out = tmp_path / 'new' / 'landscape.png'
    _tool('loss_landscape').main([
        str(out), '--lambda-val', '.1', '1', '--bins', '5', '--resolution',
        '10'])
    assert out.read_bytes().startswith(PNG)
    assert 'soft binning, 5 bins' in capsys.readouterr().out


def test_a_lambda_of_zero_is_refused(capsys):
    with pytest.raises(SystemExit):
        _tool('loss_landscape').main(['x.png', '--lambda-val', '0'])
    assert 'must be > 0' in capsys.readouterr().err


# ---------------------------------------------------------------------- logs
@pytest.fixture
def run(tmp_path):
    folder = tmp_path / 'run' / '20240101_000000' / 'vis_data'
    folder.mkdir(parents=True)
    lines = [json.dumps(dict(loss=5. - step, lr=.1, step=step))
             for step in range(4)]
    lines += [json.dumps({'retrieval/R@1': .5, 'step': 4}), '{"loss": 3']
    (folder / 'scalars.json').write_text('\n'.join(lines))
    return tmp_path / 'run'


def test_draws_the_newest_log_of_a_run(run, tmp_path, capsys):
    out = tmp_path / 'logs.png'
    _tool('plot_logs').main([str(run), '--out', str(out)])
    assert out.read_bytes().startswith(PNG)
    assert 'loss 5.0000 -> 2.0000 (4 values)' in capsys.readouterr().out


def test_an_unknown_key_is_answered_with_those_there_are(run, tmp_path):
    with pytest.raises(ValueError, match=r"'bbox_mAP'.*retrieval/R@1"):
        _tool('plot_logs').main([
            str(run), '--out', str(tmp_path / 'x.png'), '--keys', 'bbox_mAP'])


def test_a_folder_without_a_log_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match='work directory of a run'):
        _tool('plot_logs').main([str(tmp_path), '--out', 'x.png'])


def test_smoothing_averages_only_what_there_is():
    smoothed = _tool('plot_logs').smoothed
    np.testing.assert_allclose(smoothed([1., 2., 6.], 1), [1, 2, 6])
    np.testing.assert_allclose(smoothed([1., 2., 6.], 3), [1.5, 3, 4])


# --------------------------------------------------------------------- ranks
def test_ranks_of_relevant_items_equal_a_sort_of_every_query():
    embeddings, labels = torch.randn(30, 4), torch.randint(0, 4, (30, ))
    found, best = _tool('rank_histogram').relevant_ranks(
        embeddings, labels, block_size=7)
    unit = torch.nn.functional.normalize(embeddings)
    expected, ideal = [], []
    for query in range(30):
        others = [item for item in range(30) if item != query]
        others.sort(key=lambda item: -float(unit[query] @ unit[item]))
        hits = [place for place, item in enumerate(others, 1)
                if labels[item] == labels[query]]
        expected += hits
        ideal += range(1, len(hits) + 1)
    assert found.tolist() == expected
    assert best.tolist() == ideal


def test_equal_similarities_rank_the_relevant_item_last():
    found, _ = _tool('rank_histogram').relevant_ranks(
        torch.ones(4, 2), torch.tensor([0, 0, 1, 2]))
    assert found.tolist() == [3, 3]


def test_draws_ranks_of_several_galleries(tmp_path, capsys):
    archives = []
    for seed in range(2):
        generator = np.random.default_rng(seed)
        archives.append(str(tmp_path / f'{seed}.npz'))
        GallerySearch(generator.normal(size=(20, 4)),
                      generator.integers(0, 3, 20)).save(archives[-1])
    out = tmp_path / 'ranks.png'
    _tool('rank_histogram').main([*archives, '--out', str(out)])
    assert out.read_bytes().startswith(PNG)
    assert capsys.readouterr().out.count('median rank') == 2


def test_an_archive_without_labels_is_refused(tmp_path):
    GallerySearch(np.eye(3)).save(tmp_path / 'g.npz')
    with pytest.raises(ValueError, match='labels.*subfolders'):
        _tool('rank_histogram').main(
            [str(tmp_path / 'g.npz'), '--out', 'x.png'])


# ---------------------------------------------------------- gallery pictures
@pytest.fixture
def gallery(tmp_path):
    """Two classes of four images, in two clusters but for one image."""
    paths = []
    for number in range(8):
        paths.append(str(tmp_path / f'{number}.png'))
        Image.new('RGB', (9, 9), (30 * number, 0, 0)).save(paths[-1])
    angles = np.array([0, .1, .2, 1.4, 1.5, 1.51, 1.52, 1.53])
    embeddings = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    file = tmp_path / 'gallery.npz'
    GallerySearch(embeddings, [0] * 4 + [1] * 4, paths).save(file)
    return file


def test_an_item_is_left_out_of_its_own_neighbours_even_among_duplicates():
    tool = _tool('retrieval_grid')
    for embeddings in (np.eye(5), np.ones((5, 2))):
        found = tool.neighbours_of_all(GallerySearch(embeddings), 2)
        assert found.shape == (5, 2)
        assert not (found == np.arange(5)[:, None]).any()


@pytest.mark.parametrize('flags', [[], ['--worst']])
def test_draws_a_grid_of_neighbours(gallery, tmp_path, flags, capsys):
    out = tmp_path / 'grid.png'
    _tool('retrieval_grid').main(
        [str(gallery), '--out', str(out), '--k', '3', '--rows', '2', *flags])
    assert out.read_bytes().startswith(PNG)
    assert '% are right' in capsys.readouterr().out


def test_the_worst_queries_are_those_with_most_wrong_neighbours():
    right = np.array([[1, 1], [0, 0], [1, 0]], dtype=bool)
    assert _tool('retrieval_grid').choose(right, 2, True).tolist() == [1, 2]
    assert _tool('retrieval_grid').choose(right, 9, False).tolist() == [
        0, 1, 2]


def test_draws_the_embeddings_of_a_gallery(gallery, tmp_path, capsys):
    out = tmp_path / 'embedding.png'
    _tool('embedding_plot').main(
        [str(gallery), '--out', str(out), '--method', 'pca'])
    assert out.read_bytes().startswith(PNG)
    assert '8 of 8 embeddings' in capsys.readouterr().out


@pytest.mark.parametrize('tool', ['embedding_plot', 'retrieval_grid'])
def test_pictures_of_a_gallery_need_its_labels(tmp_path, tool):
    GallerySearch(np.eye(3)).save(tmp_path / 'bare.npz')
    with pytest.raises(ValueError, match='subfolders'):
        _tool(tool).main([str(tmp_path / 'bare.npz'), '--out', 'x.png'])
