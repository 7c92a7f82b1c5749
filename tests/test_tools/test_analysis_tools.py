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


def write_log(folder, values, name='loss', first=1):
    """A log of a start; ``values`` from step ``first`` on."""
    folder = folder / 'vis_data'
    folder.mkdir(parents=True)
    (folder / 'scalars.json').write_text('\n'.join(
        json.dumps({name: value, 'time': .1, 'iter': step, 'step': step})
        for step, value in enumerate(values, first)))


def plot_logs(*arguments):
    _tool('plot_logs').main([str(each) for each in arguments])


def test_draws_the_log_of_a_run(run, tmp_path, capsys):
    out = tmp_path / 'logs.png'
    plot_logs(run, '--out', out)
    assert out.read_bytes().startswith(PNG)
    assert 'loss 5.0000 -> 2.0000 (4 values)' in capsys.readouterr().out


def test_n27_a_run_stopped_at_50_and_resumed_to_100_is_one_curve(
        tmp_path, capsys):
    write_log(tmp_path / 'run/20240101_000000', np.arange(1., 51))
    write_log(tmp_path / 'run/20240102_000000', np.arange(51., 101), first=51)
    curve = _tool('plot_logs').read_run(tmp_path / 'run')['loss']
    assert curve == {step: float(step) for step in range(1, 101)}
    plot_logs(tmp_path / 'run', '--out', tmp_path / 'x.png')
    assert 'loss 1.0000 -> 100.0000 (100 values)' in capsys.readouterr().out


def test_n27_a_step_logged_twice_counts_once_with_the_later_value(tmp_path):
    # stopped at 60, of which the checkpoint at 50 kept 50; stopped at 55
    write_log(tmp_path / 'run/20240101_000000', [1.] * 60)
    write_log(tmp_path / 'run/20240102_000000', [2.] * 5, first=51)
    curve = _tool('plot_logs').read_run(tmp_path / 'run')['loss']
    assert list(curve) == list(range(1, 56))
    assert [curve[step] for step in (50, 51, 55)] == [1., 2., 2.]


def test_n27_a_run_begun_anew_in_its_folder_forgets_the_first_start(tmp_path):
    write_log(tmp_path / 'run/20240101_000000', [1.] * 60)
    write_log(tmp_path / 'run/20240102_000000', [2.] * 3)
    curve = _tool('plot_logs').read_run(tmp_path / 'run')['loss']
    assert curve == {1: 2., 2: 2., 3: 2.}


def test_times_of_validation_epochs_do_not_mix_with_those_of_steps(tmp_path):
    write_log(tmp_path / 'run/20240101_000000', [1.] * 4)
    with open(tmp_path / 'run/20240101_000000/vis_data/scalars.json',
              'a') as file:
        file.write('\n' + json.dumps({'time': 9., 'R@1': .5, 'step': 2}))
    curves = _tool('plot_logs').read_run(tmp_path / 'run')
    assert curves['time'] == dict.fromkeys(range(1, 5), 0.1)
    assert curves['val/time'] == {2: 9.}


def test_runs_of_one_label_are_seeds_with_mean_and_band(
        tmp_path, capsys, monkeypatch):
    from matplotlib.axes import Axes
    bands = []
    monkeypatch.setattr(Axes, 'fill_between', lambda self, steps, low, high,
                        **_: bands.append((list(steps), low, high)))
    for seed, value in enumerate((1., 3.)):
        write_log(tmp_path / f'seed{seed}/20240101_000000', [value] * 4)
    write_log(tmp_path / 'other/20240101_000000', [7.] * 2)
    plot_logs(tmp_path / 'seed0', tmp_path / 'seed1', tmp_path / 'other',
              '--labels', 'a', 'a', 'b', '--out', tmp_path / 'x.png')
    text = capsys.readouterr().out
    assert 'a: loss 2.0000 -> 2.0000 (4 values of 2 seeds)' in text
    assert 'b: loss 7.0000 -> 7.0000 (2 values)' in text
    (steps, low, high), = bands
    assert steps == [1, 2, 3, 4]
    np.testing.assert_allclose(low, 2 - 2**.5)
    np.testing.assert_allclose(high, 2 + 2**.5)


def test_seeds_without_a_common_step_are_refused(tmp_path):
    write_log(tmp_path / 'a/20240101_000000', [1.])
    write_log(tmp_path / 'b/20240101_000000', [1.], first=2)
    with pytest.raises(SystemExit, match="'x' have no step of 'loss'"):
        plot_logs(tmp_path / 'a', tmp_path / 'b', '--labels', 'x', 'x',
                  '--out', tmp_path / 'x.png')


def test_an_unknown_key_is_answered_with_those_there_are(run, tmp_path):
    with pytest.raises(SystemExit, match=r"^error.*'mAP'.*retrieval/R@1"):
        plot_logs(run, '--out', tmp_path / 'x.png', '--keys', 'mAP')


def test_a_key_that_one_run_lacks_is_told_and_left_out_there(
        run, tmp_path, capsys):
    write_log(tmp_path / 'b/20240101_000000', [.2], name='mAP')
    plot_logs(run, tmp_path / 'b', '--out', tmp_path / 'x.png', '--keys',
              'mAP')
    text = capsys.readouterr().out
    assert f"{run} holds no 'mAP': left out there" in text
    assert 'mAP 0.2000' in text


def test_a_logarithmic_axis_wants_values_above_0(run, tmp_path):
    plot_logs(run, '--log', '--out', tmp_path / 'x.png')
    assert (tmp_path / 'x.png').read_bytes().startswith(PNG)
    write_log(tmp_path / 'b/20240101_000000', [1., 0.])
    with pytest.raises(SystemExit, match="'loss' of b.*leave out --log"):
        plot_logs(tmp_path / 'b', '--labels', 'b', '--log', '--out',
                  tmp_path / 'y.png')
    assert not (tmp_path / 'y.png').exists()


def test_a_folder_without_a_log_or_with_several_runs_is_refused(tmp_path):
    with pytest.raises(SystemExit, match='work directory of a run'):
        plot_logs(tmp_path, '--out', tmp_path / 'x.png')
    write_log(tmp_path / 'a/20240101_000000', [1.])
    write_log(tmp_path / 'b/20240101_000000', [1.])
    with pytest.raises(SystemExit, match='several runs.*one by one'):
        plot_logs(tmp_path, '--out', tmp_path / 'x.png')


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
