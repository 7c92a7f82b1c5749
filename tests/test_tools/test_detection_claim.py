import pytest
import torch

pytest.importorskip('mmdet')

from mmrank.datasets.generators.digits_on_photos import (
    DigitsOnPhotosOptions,
    make_digits_on_photos,
)

from .loading import load_tool


@pytest.fixture
def script():
    return load_tool('reproduce/detection.py')


def rows(script, gain=0.1):
    """Made-up results of every cell."""
    result = []
    for cell in script.CELLS:
        value = 0.5 + 0.001 * cell.seed
        if cell.method != 'ce':
            value += gain
        if cell.setting and cell.setting.lr == 2e-3:
            value += 0.1
        setting = cell.setting or script.tuned(cell.method, result)
        result.append(dict(
            cell=cell.name, stage=cell.stage, method=cell.method,
            seed=cell.seed, AP50=value, loss=0.5, seconds=1.0, steps=10,
            **setting._asdict()))
    return result


def test_both_losses_get_a_search_and_a_budget_of_the_same_size(
        script, tmp_path):
    assert len(script.SEARCH['ce']) == len(script.SEARCH['rambo'])
    assert len(script.SEEDS) >= 5

    def budget(method):
        cell = script.Cell('test', method, None, 3)
        cfg = script.configure(
            cell, script.Setting(1e-3, 1., .5), tmp_path, str(tmp_path), 10)
        cfg.model.roi_head.bbox_head.loss_cls = None
        cfg.pop('rambo', None)  # the block that its loss is made of
        return cfg._cfg_dict

    assert budget('ce') == budget('rambo')


def test_an_ablation_changes_what_its_name_says(script, tmp_path):
    found = {}
    for method in script.METHODS:
        setting = script.tuned(method, rows(script))
        cfg = script.configure(script.Cell('test', method, None, 0), setting,
                               tmp_path, str(tmp_path), 10)
        loss = cfg.model.roi_head.bbox_head.loss_cls
        if method != 'ce':
            found[method] = (loss.lambda_val, loss.margin,
                             loss.memory_batches)
    chosen = script.SEARCH['rambo'][0].lambda_val
    assert found == {
        'rambo': (chosen, .15, 7),
        'rambo-no-margin': (chosen, 0., 7),
        'rambo-lambda-fifth': (pytest.approx(chosen / 5), .15, 7),
        'rambo-lambda-fivefold': (5 * chosen, .15, 7),
        'rambo-tau0': (chosen, .15, 0),
        'rambo-tau3': (chosen, .15, 3),
    }


def test_the_search_looks_at_the_validation_split_only(script, tmp_path):
    for stage, split in (('tune', 'val'), ('test', 'test')):
        cfg = script.configure(
            script.Cell(stage, 'rambo', None, 0),
            script.Setting(1e-3, 1., .5), tmp_path, str(tmp_path), 10)
        assert f'/{split}.txt' in cfg.test_dataloader.dataset.ann_file


def test_the_test_stage_waits_for_the_search(script):
    with pytest.raises(ValueError, match='tune/rambo/lr0.001'):
        script.tuned('rambo-tau0', [])
    assert script.tuned('ce', rows(script)).lr == 2e-3


def test_the_report_compares_by_the_mann_whitney_test(
        script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, 'ROOT', tmp_path)
    readme = tmp_path / 'configs/rambo/README.md'
    readme.parent.mkdir(parents=True)
    start, end = script.README_TABLE
    readme.write_text(f'before\n{start}\nold\n{end}\nafter\n')
    path = tmp_path / 'cells.csv'
    grid = script.grid(path)
    for row in rows(script):
        grid.append(row)
    assert grid.rows()[0]['AP50'] == pytest.approx(0.6)
    script.write_report(path)
    text = readme.read_text()
    line = next(li for li in text.splitlines() if li.startswith('| RaMBO |'))
    # five seeds, all above: 2 of the 252 orders are as extreme
    assert '60.20 ± 0.16 | 5' in line and '0.0079' in line
    assert '75.7' in line
    assert text.endswith(f'{end}\nafter\n') and 'old' not in text
    assert path.with_suffix('.svg').stat().st_size > 1000


def test_a_cell_runs_once_and_is_skipped_the_next_time(
        script, tmp_path, monkeypatch, capsys):
    data = make_digits_on_photos(
        tmp_path / 'digits', DigitsOnPhotosOptions(8, 2, 2))
    monkeypatch.setattr(script, 'STEPS', 2)
    monkeypatch.setattr(script, 'TRUNK_STEPS', 1)
    trunk = tmp_path / 'run' / 'trunk.pth'
    script.ensure_trunk(trunk, data)
    names = torch.load(trunk, weights_only=True)['state_dict']
    assert {name.split('.')[0] for name in names} == {
        'backbone', 'neck', 'rpn_head'}
    path = tmp_path / 'cells.csv'
    name = script.CELLS[-1].name
    grid = script.grid(path)
    for row in rows(script):
        if row['stage'] == 'tune':
            grid.append(row)
    done = len(grid.rows())
    for _ in range(2):
        script.run_cell(name, path, data, trunk, None)
    assert len(grid.rows()) == done + 1
    last = grid.rows()[-1]
    assert last['cell'] == name and 0 <= last['AP50'] <= 1
    assert 0 < last['loss'] <= script.RAMBO_WEIGHT
    assert 'done before' in capsys.readouterr().out


def test_an_unknown_cell_is_an_error(script, tmp_path):
    with pytest.raises(ValueError, match="'test/ce/seed9'.*--list"):
        script.run_cell('test/ce/seed9', tmp_path / 'x.csv', tmp_path,
                        tmp_path / 'trunk.pth', None)
