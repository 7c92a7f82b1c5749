"""The tools: flags, resuming, safe loading, on one process."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import HistoryBuffer

from mmrank.engine import launch
from mmrank.files import is_readable, loading_safely

from ..toy import CONFIG

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    """Changes of the process's environment last for one test."""
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '-1')
    monkeypatch.setenv('LOCAL_RANK', '0')


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / 'toy.py'
    path.write_text(CONFIG)
    return str(path)


COUNT = itertools.count()


def own_name(config: str) -> str:
    """A copy under a new name: MMEngine's singletons live by name and
    second, and these runs share a process."""
    path = Path(config).with_name(f'toy_{next(COUNT)}.py')
    path.write_text(Path(config).read_text())
    return str(path)


def train(config, work_dir, *flags):
    return launch.train([own_name(config), '--work-dir', str(work_dir),
                         *flags])


def evaluate(config, checkpoint, *flags):
    return launch.test([own_name(config), str(checkpoint), *flags])


def state(runner) -> dict[str, torch.Tensor]:
    return {name: value.clone()
            for name, value in runner.model.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


# ---------------------------------------------------------------- resuming
def test_resume_auto_ends_with_the_weights_of_an_uninterrupted_run(
        config, tmp_path):
    whole = state(train(config, tmp_path / 'whole'))
    (tmp_path / 'cut').mkdir()
    shutil.copy(tmp_path / 'whole/epoch_1.pth', tmp_path / 'cut')
    assert_same(state(train(config, tmp_path / 'cut', '--resume')), whole)
    named = train(config, tmp_path / 'named', '--resume',
                  str(tmp_path / 'whole/epoch_2.pth'))
    assert_same(state(named), whole)


def test_truncated_checkpoint_is_refused_and_the_one_before_is_used(
        config, tmp_path):
    whole = state(train(config, tmp_path / 'run'))
    for name in ('epoch_3.pth', 'epoch_2.pth'):
        path = tmp_path / 'run' / name
        path.write_bytes(path.read_bytes()[:-100])
    runner = train(config, tmp_path / 'run', '--resume')
    assert runner.iter == 12
    assert_same(state(runner), whole)
    assert is_readable(tmp_path / 'run/epoch_3.pth'), 'written anew'


def test_named_truncated_checkpoint_is_refused_with_the_whole_one_named(
        config, tmp_path):
    train(config, tmp_path / 'run')
    path = tmp_path / 'run/epoch_3.pth'
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r'epoch_3.*truncated or damaged '
                       r'\(1000 bytes\).*epoch_2\.pth'):
        train(config, tmp_path / 'run', '--resume', str(path))
    with pytest.raises(ValueError, match='truncated or damaged'):
        evaluate(config, path)
    with pytest.raises(FileNotFoundError, match=r'no\.pth does not exist'):
        evaluate(config, 'no.pth')


def test_auto_resume_without_a_checkpoint_keeps_load_from(config, tmp_path):
    trained = train(config, tmp_path / 'first')
    start = str(tmp_path / 'first/epoch_3.pth')
    runner = train(config, tmp_path / 'second', '--resume', '--cfg-options',
                   f'load_from={start}', 'optim_wrapper.optimizer.lr=0.0')
    assert torch.equal(runner.model.plane.weight, trained.model.plane.weight)
    assert runner.iter == 12, 'a start, not a continuation'


# ------------------------------------------------------------ safe loading
def test_downloaded_checkpoint_runs_no_code_of_its_own(config, tmp_path):
    class Code:
        def __reduce__(self):
            return os.system, (f'touch {tmp_path}/ran',)

    path = tmp_path / 'stranger.pth'
    torch.save(dict(state_dict={}, meta={}, extra=Code()), path)
    with pytest.raises(ValueError, match='holds (posix|os).system beside'):
        evaluate(config, path, '--work-dir', str(tmp_path / 't'))
    with pytest.raises(ValueError, match='holds (posix|os).system beside'):
        train(config, tmp_path / 'u', '--cfg-options', f'load_from={path}')
    assert not (tmp_path / 'ran').exists()


def test_log_buffers_are_read_without_the_general_getattr(tmp_path):
    class Reach:
        def __reduce__(self):
            return getattr, (HistoryBuffer, '__init__')

    buffer = HistoryBuffer([1.0, 2.0], [1, 1])
    torch.save(dict(buffer=buffer, scalar=np.float32(3)), tmp_path / 'a.pth')
    torch.save(dict(reach=Reach()), tmp_path / 'b.pth')
    with loading_safely():
        loaded = torch.load(tmp_path / 'a.pth')
        assert loaded['buffer'].mean(2) == 1.5 and loaded['scalar'] == 3
        with pytest.raises(UnpicklingError):
            torch.load(tmp_path / 'b.pth')
    assert torch.load(tmp_path / 'b.pth', weights_only=False), \
        'outside, the choice is the caller\'s again'


# ------------------------------------------------------------------- flags
def test_evaluation_dumps_predictions_and_returns_metrics(config, tmp_path):
    train(config, tmp_path / 'run')
    checkpoint = tmp_path / 'run/epoch_3.pth'
    metrics = evaluate(
        config, checkpoint, '--out', str(tmp_path / 'out.pkl'),
        '--work-dir', str(tmp_path / 'test'))
    assert metrics['samples'] == 7
    assert (tmp_path / 'out.pkl').is_file()
    with pytest.raises(ValueError, match=r'--out out\.txt must end in'):
        evaluate(config, checkpoint, '--out', 'out.txt')


def test_amp_on_a_cpu_computes_in_bfloat16(config, tmp_path):
    # two runs that start in one second share what MMEngine keeps by name
    runner = train(config, tmp_path / 'amp', '--amp', '--cfg-options',
                   'experiment_name=amp')
    assert type(runner.optim_wrapper).__name__ == 'BFloat16OptimWrapper'
    with runner.optim_wrapper.optim_context(runner.model):
        assert runner.model.plane(torch.ones(1, 3)).dtype is torch.bfloat16
    assert runner.model.plane.weight.dtype is torch.float32
    plain = train(config, tmp_path / 'plain', '--cfg-options',
                  'experiment_name=plain').model.plane.weight
    torch.testing.assert_close(
        runner.model.plane.weight, plain, rtol=0.05, atol=0.05)
    assert not torch.equal(runner.model.plane.weight, plain)


def test_auto_scale_lr_follows_the_config_or_names_the_key(config, tmp_path):
    with pytest.raises(ValueError, match='base_batch_size'):
        train(config, tmp_path / 'run', '--auto-scale-lr')
    runner = train(config, tmp_path / 'run', '--auto-scale-lr',
                   '--cfg-options', 'auto_scale_lr.base_batch_size=8')
    assert runner.optim_wrapper.optimizer.defaults['lr'] == 0.05
    assert runner.optim_wrapper.param_groups[0]['initial_lr'] == 0.025


def test_work_dir_comes_from_flag_then_config_then_name(config, tmp_path,
                                                        monkeypatch):
    monkeypatch.chdir(tmp_path)
    def parse(flags):
        return launch._parse(launch.add_train_arguments, flags)

    assert launch.load_config(parse([config])).work_dir == 'work_dirs/toy'
    options = ['--cfg-options', 'work_dir=there']
    assert launch.load_config(parse([config, *options])).work_dir == 'there'
    cfg = launch.load_config(
        parse([config, '--work-dir', 'here', *options]))
    assert cfg.work_dir == 'here'


@pytest.mark.parametrize('flag, message', [
    ('--show', 'default_hooks.visualization'), ('--tta', 'tta_pipeline')])
def test_flags_that_the_config_cannot_serve_name_the_missing_key(
        config, tmp_path, flag, message):
    checkpoint = tmp_path / 'c.pth'
    torch.save(dict(state_dict={}), checkpoint)
    with pytest.raises(ValueError, match=message):
        evaluate(config, checkpoint, flag)


def test_unknown_config_lists_near_names():
    with pytest.raises(FileNotFoundError, match="no config 'rambo/no.py'"):
        launch.train(['rambo/no.py'])


# ---------------------------------------------------------------- launcher
def test_config_of_a_gpu_wrapper_trains_on_cpus_with_its_own_options():
    cfg = Config(dict(launcher='none', find_unused_parameters=True))
    launch.start_processes(cfg)
    assert 'model_wrapper_cfg' not in cfg, 'one process needs no wrapper'


def test_launcher_without_its_variables_says_what_starts_it(monkeypatch):
    monkeypatch.delenv('RANK', raising=False)
    with pytest.raises(ValueError, match=r'reads RANK.*dist_train\.sh'):
        launch.start_processes(Config(dict(launcher='pytorch')))


@pytest.mark.parametrize('launcher', ['none', 'pytorch'])
@pytest.mark.parametrize('setting', [
    dict(runner_type='FlexibleRunner', strategy=dict(type='FSDPStrategy')),
    dict(model_wrapper_cfg=dict(type='MMFullyShardedDataParallel'))])
def test_sharding_without_a_gpu_is_refused_with_the_reason(
        setting, launcher):
    with pytest.raises(ValueError, match='shards the model over GPUs'):
        launch.start_processes(Config(dict(launcher=launcher, **setting)))


def test_tool_runs_from_a_checkout_that_is_not_installed(config, tmp_path):
    # another folder, no PYTHONPATH; the toy's import needs the checkout
    variables = {name: value for name, value in os.environ.items()
                 if name != 'PYTHONPATH'}
    done = subprocess.run(
        [sys.executable, ROOT / 'tools/train.py', config, '--work-dir', 'w',
         '--cfg-options', 'train_cfg.max_epochs=1'],
        cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'w/epoch_1.pth').is_file()
