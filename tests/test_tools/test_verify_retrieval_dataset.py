import pytest

from tests.test_datasets.trees import make_tree

from .loading import load_tool


@pytest.fixture(scope='module')
def tool():
    return load_tool('analysis_tools/verify_retrieval_dataset.py')


@pytest.mark.parametrize('kind', ['cub', 'cars', 'sop', 'inshop'])
def test_counts_that_are_not_the_published_ones_are_faults(
        tool, tmp_path, capsys, kind):
    faults = tool.verify(kind, make_tree(kind, tmp_path / kind), True)
    assert [fault.split(':')[0] for fault in faults] == list(
        tool.KINDS[kind].splits)
    assert 'published' in capsys.readouterr().out


def test_a_complete_tree_has_no_fault(tool, tmp_path, monkeypatch):
    root = make_tree('cub', tmp_path / 'cub')
    monkeypatch.setattr(tool.KINDS['cub'], 'published',
                        dict(train=(4, 2), test=(4, 2)))
    assert tool.verify('cub', root, True) == []
    images = sorted((tmp_path / 'cub' / 'images').rglob('*.jpg'))
    images[0].unlink()
    images[1].write_bytes(images[1].read_bytes()[:300])
    faults = tool.verify('cub', root, True)
    assert len(faults) == 2
    assert images[0].name in faults[0] and images[1].name in faults[1]


def test_the_tool_says_how_to_lay_a_missing_tree_out(
        tool, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr('sys.argv', ['verify', 'sop', str(tmp_path)])
    assert tool.main() == 1
    assert 'Ebay_train.txt' in capsys.readouterr().out
