import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.model import BaseModel
from mmengine.runner import Runner
from PIL import Image

from mmrank.engine.hooks import RetrievalVisualizationHook
from mmrank.registry import VISUALIZERS
from mmrank.visualization.retrieval import draw_embedding, draw_neighbours

GREEN, RED = (34, 160, 60), (214, 40, 40)


def frames(picture, colour):
    """How many thumbnails have a frame of the colour."""
    found = (picture == np.array(colour)).all(-1).sum()
    return round(found / (80**2 - 72**2))


def test_right_neighbours_are_framed_green_and_wrong_ones_red():
    grey, colour = np.full((30, 50), 128, np.uint8), np.full(
        (50, 30, 3), 90, np.uint8)
    picture = draw_neighbours([grey, colour], [[colour, grey], [grey]],
                              [[True, False], [False]])
    assert picture.dtype == np.uint8 and picture.shape[2] == 3
    assert (frames(picture, GREEN), frames(picture, RED)) == (1, 2)
    with pytest.raises(ValueError, match='do not make a picture'):
        draw_neighbours([], [], [])


@pytest.mark.parametrize('method', ['pca', 'tsne'])
@pytest.mark.parametrize('with_proxies', [True, False])
def test_the_embedding_is_drawn_with_the_proxies_of_its_classes(
        method, with_proxies):
    labels = torch.arange(24) % 3 + 4
    proxies = torch.randn(9, 8) if with_proxies else None
    picture = draw_embedding(torch.randn(24, 8), labels, proxies, method)
    assert picture.shape == (770, 770, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10


def test_umap_gets_the_points_on_the_sphere(monkeypatch):
    class UMAP:
        # the package itself compiles for minutes on first use

        def __init__(self, **kwargs):
            assert kwargs['metric'] == 'cosine'

        def fit_transform(self, points):
            assert np.allclose(np.linalg.norm(points, axis=1), 1, atol=1e-5)
            return points[:, :2]

    monkeypatch.setitem(sys.modules, 'umap', SimpleNamespace(UMAP=UMAP))
    assert draw_embedding(
        torch.randn(20, 4), torch.arange(20) % 2, method='umap').ndim == 3


def test_bad_plots_are_named():
    with pytest.raises(ValueError, match='lda'):
        draw_embedding(torch.randn(9, 4), torch.arange(9), method='lda')
    with pytest.raises(ValueError, match='at least four'):
        draw_embedding(torch.randn(2, 4), torch.arange(2), method='pca')


class Flat(BaseModel):
    """Embeds a glyph by its pixels."""

    def forward(self, inputs, data_samples, mode='predict'):
        for image, sample in zip(inputs, data_samples):
            sample.pred_embedding = image.float().flatten()
        return data_samples


def runner(tmp_path, visualizer):
    loader = dict(
        batch_size=16,
        num_workers=0,
        sampler=dict(type='DefaultSampler', shuffle=False),
        dataset=dict(
            type='mmrank.GlyphRetrievalDataset',
            split='test',
            num_classes=4,
            pipeline=[dict(type='mmrank.LoadImage', mode='L'),
                      dict(type='mmrank.PackRetrievalInputs')]))
    return Runner(
        model=Flat(),
        work_dir=str(tmp_path),
        test_dataloader=loader,
        test_cfg=dict(type='TestLoop'),
        test_evaluator=dict(type='mmrank.RetrievalMetric'),
        visualizer=dict(visualizer, vis_backends=[
            dict(type='LocalVisBackend')], name=f'v{tmp_path.name}'),
        custom_hooks=[dict(type='mmrank.RetrievalVisualizationHook',
                           num_queries=3, k=2, method='pca')],
        experiment_name=f'visuals{tmp_path.name}',
        log_level='ERROR')


def test_a_test_writes_the_neighbours_and_the_embedding(tmp_path):
    run = runner(tmp_path, dict(type='mmrank.RetrievalVisualizer'))
    run.test()
    pictures = {path.name.split('_')[0]: path
                for path in tmp_path.rglob('*.png')}
    assert set(pictures) == {'neighbours', 'embedding'}
    grid = np.asarray(Image.open(pictures['neighbours']).convert('RGB'))
    assert frames(grid, GREEN) + frames(grid, RED) == 6


def test_a_test_asks_for_no_training_data(tmp_path):
    run = runner(tmp_path, dict(type='mmrank.RetrievalVisualizer'))
    run._train_loop = dict(type='EpochBasedTrainLoop', max_epochs=1)
    run._train_dataloader = dict(dataset=dict(type='NoSuchDataset'))
    run.test()
    assert any(tmp_path.rglob('neighbours_0.png'))


def test_an_error_of_drawing_costs_the_picture_and_not_the_run(
        tmp_path, monkeypatch):
    run = runner(tmp_path, dict(type='mmrank.RetrievalVisualizer'))
    said = []
    monkeypatch.setattr(run.logger, 'error', said.append)

    def full(*args, **kwargs):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(run.visualizer, 'add_image', full)
    assert run.test()['retrieval/R@1'] >= 0
    assert said == [
        'RetrievalVisualizationHook could not draw and goes on without the '
        'picture: OSError: [Errno 28] No space left on device']


@pytest.mark.parametrize('method, error', [
    ('lda', ValueError), ('umap', ImportError)])
def test_a_plot_that_cannot_be_made_is_refused_before_the_run(
        method, error, monkeypatch):
    monkeypatch.setitem(sys.modules, 'umap', None)
    with pytest.raises(error, match=method):
        RetrievalVisualizationHook(method=method)


def test_another_visualizer_is_refused_before_the_run(tmp_path):
    run = runner(tmp_path, dict(type='Visualizer'))
    with pytest.raises(TypeError, match='RetrievalVisualizer'):
        run.test()


def test_it_is_registered_in_our_scope():
    assert VISUALIZERS.get('mmrank.RetrievalVisualizer') is not None
