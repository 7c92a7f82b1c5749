import pytest
import torch

from mmrank.datasets import GlyphRetrievalDataset

from .loading import load_tool


@pytest.fixture
def tool(monkeypatch):
    module = load_tool('reproduce/retrieval.py')
    names = ('Triplet', 'Proxy-Anchor', 'RaMBO log', 'RaMBO log, neither')
    monkeypatch.setattr(module, 'METHODS',
                        {name: module.METHODS[name] for name in names})
    monkeypatch.setattr(module, 'SEEDS', range(2))
    monkeypatch.setattr(module, 'load', lambda split: None)
    return module


def score(cell, train, test):
    """Best at lr 0.003, and where a second setting is large."""
    figure = .5 - abs(cell['lr'] - 3e-3) + cell['lambda_val'] / 100 + \
        cell['proxy_lr'] + cell['seed'] / 1000
    if cell['method'] == 'Triplet' and cell['lr'] == 1e-2:
        figure = float('nan')  # diverged
    return {'R@1': figure, 'MAP@R': figure / 2}


def test_an_interrupted_comparison_goes_on_with_the_tuned_settings(
        tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, 'train_and_test', score)
    path = tmp_path / 'cells.csv'
    tool.run(path, 4, str(tmp_path / 'lock'))
    assert len(tool.read(path)) == 4
    tool.run(path, None, None)
    rows = tool.read(path)
    assert len({tool.key(row) for row in rows}) == len(rows)
    # 3 for Triplet, 3 x 2 for the two others, then methods x seeds
    assert len(rows) == 3 + 6 + 6 + 4 * 2
    for row in rows[15:]:
        assert row['lr'] == 3e-3
        assert row['lambda_val'] == (4. if 'RaMBO' in row['method'] else 0.)
    assert rows[15]['seed'] == rows[18]['seed'] != rows[19]['seed']
    tool.run(path, None, None)
    assert len(tool.read(path)) == len(rows)


def test_the_report_fills_the_readmes_that_want_the_table(
        tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, 'train_and_test', score)
    monkeypatch.setattr(tool, 'ROOT', tmp_path)
    start, end = tool.README_TABLE
    for name, text in (('a', f'before\n{start}\nold\n{end}\nafter\n'),
                       ('b', 'no table\n')):
        (tmp_path / 'configs' / name).mkdir(parents=True)
        (tmp_path / 'configs' / name / 'README.md').write_text(text)
    path = tmp_path / 'cells.csv'
    tool.run(path, None, None)
    tool.report(path)
    tool.report(path)
    filled = (tmp_path / 'configs/a/README.md').read_text()
    assert filled.startswith(f'before\n{start}\n| Method')
    assert filled.endswith(f'{end}\nafter\n') and 'old' not in filled
    assert filled.count('| Proxy-Anchor |') == 1
    assert 'Mann-Whitney' in filled and 'commit' in filled
    assert (tmp_path / 'configs/b/README.md').read_text() == 'no table\n'
    assert path.with_suffix('.svg').exists()
    assert 'RaMBO log, neither' in capsys.readouterr().out


def test_a_cell_trains_and_repeats_itself(tool, monkeypatch):
    monkeypatch.setattr(tool, 'STEPS', 2)
    data = GlyphRetrievalDataset(split='val', num_classes=30)
    data.full_init()
    images = torch.rand(len(data), 1, 32, 32)
    split = images, torch.from_numpy(data.get_labels()), data
    cell = dict(method='Proxy-Anchor', lr=1e-3, proxy_lr=1e-3, lambda_val=0.,
                seed=1)
    found = tool.train_and_test(cell, split, split)
    assert 0 <= found['MAP@R'] <= 1
    assert found == tool.train_and_test(cell, split, split)
    assert found != tool.train_and_test(dict(cell, seed=2), split, split)
