import pytest
import torch

from .loading import load_tool

NAMES = ('Proxy-Anchor', 'Proxy-ISA', 'Proxy-NCA++', 'SoftTriple',
         'Contrastive', 'Triplet, semi-hard', 'Multi-similarity', 'FastAP',
         'Smooth-AP', 'SupCon', 'RaMBO log', 'RaMBO loglog, no margin')


@pytest.fixture
def tool():
    return load_tool('reproduce/retrieval.py')


@pytest.fixture
def comparison(tool, tmp_path):
    return tool.Comparison(
        tmp_path / 'cells.csv', tool.QUICK, cache=tmp_path / 'trunks',
        methods={name: tool.METHODS[name] for name in NAMES[::5]})


def score(cell):
    """Best at the higher learning rate and the first value."""
    found = .3 + 10 * cell['lr'] - cell['value'] / 1000 + cell['seed'] / 500
    return {'R@1': found, 'MAP@R': found / 2, 'best R@1': found,
            'best MAP@R': found / 2, 'train seconds': 1., 'steps': 4,
            'curve': f'2:0.5:{found:.3f}:{found / 2:.3f};'
                     f'4:1.0:{found:.3f}:{found / 2:.3f}'}


def test_every_method_gets_the_same_search(tool):
    assert len({len(m.values) for m in tool.METHODS.values()}) == 1
    assert len(tool.METHODS) == 10 + 2 * 3 * 2
    random = {name for name, m in tool.METHODS.items() if m.per_class == 1}
    assert random == {'Proxy-Anchor', 'Proxy-ISA', 'Proxy-NCA++',
                      'SoftTriple'}
    assert {m.per_class for m in tool.METHODS.values()} == {1, 4}
    assert set(tool.PAIRS) <= set(tool.METHODS)


@pytest.mark.parametrize('per_class', [1, 4])
def test_batches_are_random_or_four_of_a_class(tool, per_class):
    labels = torch.arange(40).repeat_interleave(8)
    split = tool.Split(torch.zeros(len(labels), 1), labels)
    for _, batch in zip(range(20), tool.batches(split, 16, per_class, 0)):
        counts = labels[batch].bincount()
        assert len(batch) == 16
        assert per_class == 1 or set(counts.tolist()) <= {0, 4}


def test_the_noisy_column_exchanges_a_fifth_of_the_labels(tool):
    labels = torch.arange(100).repeat_interleave(10)
    split = tool.Split(torch.zeros(1000, 1), labels)
    noisy = tool.spoil(split, 'permuted', 3)
    assert torch.equal(noisy.labels.bincount(), labels.bincount())
    assert 170 < int((noisy.labels != labels).sum()) <= 200
    assert torch.equal(noisy.labels, tool.spoil(split, 'permuted', 3).labels)
    assert not torch.equal(noisy.labels,
                           tool.spoil(split, 'permuted', 4).labels)
    assert tool.spoil(split, 'clean', 3) == split


def test_the_long_tailed_column_leaves_from_all_to_two_of_a_class(tool):
    labels = torch.arange(50).repeat_interleave(16)
    split = tool.Split(torch.arange(800.)[:, None], labels)
    found = tool.spoil(split, 'long-tailed', 0)
    sizes = found.labels.bincount().sort().values
    assert sizes[0] == 2 and sizes[-1] == 16
    assert sizes[25] == pytest.approx(32**.5, abs=1)
    assert torch.equal(found.images[:, 0].long() // 16, found.labels)


def test_a_search_is_finished_before_the_test_and_a_run_goes_on(
        tool, comparison):
    comparison.do = score
    comparison.run(5)
    rows = comparison.grid.rows()
    assert {row['stage'] for row in rows} == {'tune'} and len(rows) == 5
    comparison.run()
    rows = comparison.grid.rows()
    assert len(rows) == comparison.size() == 3 * 4 + 3 * 2 * 4
    for row in rows[12:]:
        if row['method'] == tool.FLOOR:
            assert row['lr'] == row['value'] == 0
        else:
            method = tool.METHODS[row['method']]
            assert row['lr'] == max(tool.LRS)
            assert row['value'] == min(method.values)
    assert [row['method'] for row in rows[12:16]] == [
        tool.FLOOR, *comparison.methods]
    comparison.run()
    assert len(comparison.grid.rows()) == len(rows)


def test_the_page_says_what_is_missing_and_compares_in_pairs(
        tool, comparison, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, 'ROOT', tmp_path)
    readme = tmp_path / 'configs/some/README.md'
    readme.parent.mkdir(parents=True)
    start, end = tool.MARKS
    readme.write_text(f'before\n{start}\nold\n{end}\nafter\n')
    comparison.do = score
    with pytest.raises(ValueError, match='no finished cell'):
        comparison.report()
    comparison.run(3)
    assert 'Incomplete: 3 of 36' in comparison.report()
    assert 'old' not in readme.read_text()
    comparison.run(12 + 5 - 3)
    text = comparison.report()
    assert '**Incomplete: 17 of 36 cells.**' in text
    assert 'No question has two seeds yet.' in text
    comparison.run()
    text = comparison.report()
    assert 'Incomplete' not in text
    for part in ('## Clean', '## Permuted', '## Long-tailed', '| Warm start',
                 '| Proxy-Anchor | random | 0.004, alpha 8 |', 'commit'):
        assert part in text
    assert '| RaMBO log | Triplet, semi-hard |' in text
    assert '| Warm start |' in readme.read_text()
    assert readme.read_text().endswith(f'{end}\nafter\n')
    path = comparison.grid.path
    assert path.with_suffix('.md').read_text() == text
    assert path.with_suffix('.svg').stat().st_size > 1000


@pytest.mark.parametrize('name', NAMES)
def test_a_quick_cell_trains_every_method_and_repeats_itself(
        tool, comparison, name, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(8)
    split = tool.Split(torch.randn(64, 1, 16, 16, generator=generator),
                       labels)
    monkeypatch.setattr(comparison, 'split', lambda name: split)
    cell = dict(stage='test', data='clean', method=name, lr=1e-3, seed=1,
                value=tool.METHODS[name].values[0])
    found = comparison.do(cell)
    assert 0 < float(found['MAP@R']) <= float(found['best MAP@R']) <= 1
    assert found['curve'].startswith('2:') and found['steps'] == 4

    def figures(found):
        return {key: found[key] for key in ('R@1', 'MAP@R', 'best R@1')}

    assert figures(comparison.do(cell)) == figures(found)


def test_the_embedding_starts_where_the_trunk_ended(tool, comparison,
                                                    monkeypatch):
    split = tool.Split(torch.randn(32, 1, 16, 16),
                       torch.arange(8).repeat_interleave(4))
    cell = dict(stage='test', data='clean', method='Contrastive', lr=1e-3,
                seed=0, value=.5)
    trunk = tool.warm_trunk(cell, split, tool.QUICK, comparison.cache)
    again = tool.warm_trunk(cell, None, tool.QUICK, comparison.cache)
    head = tool.build_head(cell, 8)
    assert tool.measure(trunk, None, split) == pytest.approx(
        tool.measure(again, head, split))
