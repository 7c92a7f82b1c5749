"""What ``tools/train.py`` and ``tools/test.py`` do, on any machine.

The flags are mmdet's. Beyond mmdet's tools: several processes also train
without a GPU, ``--resume`` passes over a truncated checkpoint, and
checkpoints are loaded without the right to run code.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import inspect
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from mmengine.config import Config, DictAction
from mmengine.device import get_device
from mmengine.evaluator import DumpResults
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapperDict
from mmengine.registry import RUNNERS
from mmengine.runner import Runner

from ..files import (
    find_last_readable,
    loading_safely,
    refuse_unreadable,
)
from ..shipped import config_path
from .check_data import naming_faults
from .hooks.class_names_check import ClassNamesCheckHook

PLAIN_WRAPPERS = (None, 'MMDistributedDataParallel',
                  'mmengine.MMDistributedDataParallel')
# of a config, read here and not by the runner's own signature
READ_HERE = ('auto_scale_lr', 'runner_type', 'strategy', 'model_wrapper_cfg',
             'find_unused_parameters', 'sync_bn', 'tta_model',
             'tta_pipeline', 'compile')
PLAIN_HOOKS = ('CheckpointHook', 'mmengine.CheckpointHook')


# ---------------------------------------------------------------- the flags
def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'config', help='a config file, or the name of a shipped config')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
        help='changes to the config: a.b=1 c="[1,2]" d="[(1,2),(3,4)]"')
    parser.add_argument(
        '--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none', help='what started the processes')
    parser.add_argument(
        '--local_rank', '--local-rank', type=int, default=0,
        help='set by torch.distributed.launch')


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of a training."""
    _add_run(parser)
    parser.add_argument(
        '--work-dir', help='folder of logs and checkpoints '
        '(default: ./work_dirs/<name of the config>)')
    parser.add_argument(
        '--amp', action='store_true',
        help='mixed precision: float16 on a GPU, bfloat16 on a CPU')
    parser.add_argument(
        '--auto-scale-lr', action='store_true',
        help="scale the learning rate by the config's auto_scale_lr")
    parser.add_argument(
        '--resume', nargs='?', const='auto', metavar='CHECKPOINT',
        help='go on from this checkpoint; without one, from the newest '
        'whole checkpoint in the work folder')


def add_test_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of an evaluation."""
    _add_run(parser)
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--work-dir', help='folder of the log and metrics')
    parser.add_argument(
        '--out', help='dump the predictions to this .pkl file')
    parser.add_argument(
        '--show', action='store_true', help='show the predictions')
    parser.add_argument(
        '--show-dir', help='write painted images to this folder below the '
        "run's own")
    parser.add_argument(
        '--wait-time', type=float, default=2,
        help='seconds an image stays with --show')
    parser.add_argument(
        '--tta', action='store_true',
        help="test-time augmentation, by the config's tta_model and "
        'tta_pipeline')


def _parse(add_arguments: Callable[[argparse.ArgumentParser], None],
           argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(argv)


# --------------------------------------------------------------- the config
def load_config(args: argparse.Namespace) -> Config:
    """The config of a run: file, ``--cfg-options``, launcher, work folder.

    Raises:
        FileNotFoundError: Neither a file nor a shipped config.
        ValueError: The config has no model.
    """
    path = args.config if os.path.isfile(args.config) else config_path(
        args.config)
    cfg = Config.fromfile(path)
    cfg.launcher = args.launcher
    if args.cfg_options:
        _warn_of_unread(cfg, args.cfg_options)
        cfg.merge_from_dict(args.cfg_options)
    if 'model' not in cfg:
        raise ValueError(f'the config {path} has no model')
    if args.work_dir:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = os.path.join('work_dirs', Path(path).stem)
    return cfg


def _refuse_unwritable(folder: str) -> None:
    """Makes the work folder; raises before anything is built or written."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(
            error.errno, f'{error.strerror}: logs and checkpoints cannot be '
            f'written to the work folder {folder}; make it writable, or name '
            'another one with --work-dir') from error


def _warn_of_unread(cfg: Config, options: dict[str, Any]) -> None:
    """A misspelt key would be added to the config and change nothing."""
    read = {*cfg, *inspect.signature(Runner.__init__).parameters, *READ_HERE}
    for key in options:
        name = key.split('.')[0]
        if name in read:
            continue
        near = difflib.get_close_matches(name, read, n=1)
        warnings.warn(
            f'--cfg-options {key}: the config has no {name!r} and the runner '
            'reads none, so it may change nothing'
            + (f'; did you mean {near[0]!r}?' if near else ''), stacklevel=3)


def _use_amp(cfg: Config) -> None:
    if get_device() == 'cpu':
        cfg.optim_wrapper.type = 'mmrank.BFloat16OptimWrapper'
        for key in ('loss_scale', 'dtype'):
            cfg.optim_wrapper.pop(key, None)
    else:
        cfg.optim_wrapper.type = 'AmpOptimWrapper'
        cfg.optim_wrapper.setdefault('loss_scale', 'dynamic')


def _scale_lr(cfg: Config) -> None:
    settings = cfg.get('auto_scale_lr', {})
    if 'base_batch_size' not in settings:
        raise ValueError(
            '--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=...) '
            f'in the config; it has auto_scale_lr={dict(settings)}')
    cfg.auto_scale_lr.enable = True


def _resume(cfg: Config, resume: str | None) -> None:
    """Chooses the checkpoint to go on from; without one the run starts."""
    automatic = resume == 'auto' or (
        resume is None and cfg.get('resume') and not cfg.get('load_from'))
    if automatic:
        newest = find_last_readable(cfg.work_dir)
        cfg.resume = newest is not None
        cfg.load_from = newest or cfg.get('load_from')
    elif resume is not None:
        cfg.resume, cfg.load_from = True, resume
    if cfg.get('load_from'):
        refuse_unreadable(cfg.load_from)


def _write_atomically(cfg: Config) -> None:
    hook = cfg.get('default_hooks', {}).get('checkpoint')
    if (hook and hook.get('type') in PLAIN_HOOKS
            and not hook.get('backend_args')
            and not hook.get('file_client_args')):
        hook.type = 'mmrank.AtomicCheckpointHook'


class _ResumeCheck(Hook):
    """Stops a run that resumes a checkpoint of another model.

    MMEngine loads what fits of the weights; an optimizer state that does not
    fit fails in the first step, without a name.
    """

    def before_train(self, runner: Any) -> None:
        if not runner._resume:
            return
        wrapper = runner.optim_wrapper
        parts = wrapper.values() if isinstance(
            wrapper, OptimWrapperDict) else [wrapper]
        states = {parameter: state for part in parts
                  for parameter, state in part.optimizer.state.items()}
        for name, parameter in runner.model.named_parameters():
            state = states.get(parameter, {})
            for key in ('momentum_buffer', 'exp_avg'):
                saved = state.get(key)
                if saved is not None and saved.shape != parameter.shape:
                    raise ValueError(
                        f'{name} has shape {tuple(parameter.shape)}, but '
                        f'{tuple(saved.shape)} in the checkpoint that is '
                        'resumed, which is of another model: resume it with '
                        'the config that it was trained with, or start from '
                        'its weights alone, with --cfg-options load_from=...')


# ------------------------------------------------------------ the processes
def start_processes(cfg: Config) -> None:
    """Joins the other processes over gloo on a machine without a GPU.

    MMEngine's launcher would call ``torch.cuda.set_device`` and wrap the
    model for a GPU. The runner takes a group that is there already, and the
    wrapper that the config names; one of the config's own is kept.
    """
    if get_device() != 'cpu':
        return
    _refuse_sharding(cfg)
    if cfg.launcher == 'none':
        return
    _read_launcher(cfg.launcher)
    _join_group(cfg)
    wrapper = dict(cfg.get('model_wrapper_cfg') or {})
    if wrapper.get('type') in PLAIN_WRAPPERS:
        wrapper['type'] = 'mmrank.CPUDistributedDataParallel'
        wrapper.setdefault('find_unused_parameters',
                           cfg.get('find_unused_parameters', False))
    cfg.model_wrapper_cfg = wrapper


def _join_group(cfg: Config) -> None:
    if dist.is_initialized():
        return
    settings = (cfg.get('env_cfg') or {}).get('dist_cfg') or {}
    dist.init_process_group('gloo', timeout=datetime.timedelta(
        seconds=settings.get('timeout', 1800)))


def _read_launcher(launcher: str) -> None:
    """Sets what torch.distributed reads, from slurm's and MPI's names."""
    names = {
        'slurm': ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'),
        'mpi': ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE',
                'OMPI_COMM_WORLD_LOCAL_RANK'),
        'pytorch': ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'),
    }[launcher]
    for name, theirs in zip(('RANK', 'WORLD_SIZE', 'LOCAL_RANK'), names):
        if theirs not in os.environ:
            raise ValueError(
                f'--launcher {launcher} reads {theirs}, which is not set; '
                'start the processes with tools/dist_train.sh (pytorch), '
                'tools/slurm_train.sh (slurm) or mpirun (mpi)')
        os.environ[name] = os.environ[theirs]
    if launcher == 'slurm' and 'MASTER_ADDR' not in os.environ:
        nodes = os.environ.get('SLURM_NODELIST', 'localhost')
        listed = subprocess.run(
            ['scontrol', 'show', 'hostname', nodes], check=True,
            capture_output=True, text=True)
        os.environ['MASTER_ADDR'] = listed.stdout.split()[0]
    os.environ.setdefault('MASTER_ADDR', '127.0.0.1')
    os.environ.setdefault('MASTER_PORT', '29500')


def _refuse_sharding(cfg: Config) -> None:
    strategy = (cfg.get('strategy') or {}).get('type', '')
    wrapper = (cfg.get('model_wrapper_cfg') or {}).get('type') or ''
    named = next((name for name in (str(strategy), str(wrapper))
                  if 'FSDP' in name or 'FullySharded' in name
                  or 'DeepSpeed' in name or 'Colossal' in name), None)
    if named:
        raise ValueError(
            f'{named} shards the model over GPUs, of which this machine has '
            "none: PyTorch's sharding asks for an accelerator. Leave "
            'strategy, runner_type and model_wrapper_cfg out to train with '
            'data parallel CPU processes.')


def _build_runner(cfg: Config) -> Runner:
    builder = RUNNERS.build if 'runner_type' in cfg else Runner.from_cfg
    return builder(cfg)


def _check_class_names(runner: Runner) -> None:
    if not any(isinstance(hook, ClassNamesCheckHook)
               for hook in runner.hooks):
        runner.register_hook(ClassNamesCheckHook())


# ---------------------------------------------------------------- the tools
def train(argv: list[str] | None = None) -> Any:
    """Trains by a config; the flags are those of ``tools/train.py``.

    Returns:
        The runner, after training.
    """
    return run_training(_parse(add_train_arguments, argv))


def run_training(args: argparse.Namespace) -> Any:
    """Trains as these arguments say; returns the runner."""
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = load_config(args)
    _refuse_unwritable(cfg.work_dir)
    if args.amp:
        _use_amp(cfg)
    if args.auto_scale_lr:
        _scale_lr(cfg)
    _resume(cfg, args.resume)
    _write_atomically(cfg)
    start_processes(cfg)
    with loading_safely(), naming_faults(cfg):
        runner = _build_runner(cfg)
        runner.register_hook(_ResumeCheck())
        _check_class_names(runner)
        runner.train()
    return runner


def test(argv: list[str] | None = None) -> dict[str, float]:
    """Evaluates a checkpoint; the flags are those of ``tools/test.py``.

    Returns:
        The metrics.
    """
    return run_evaluation(_parse(add_test_arguments, argv))


def run_evaluation(args: argparse.Namespace) -> dict[str, float]:
    """Evaluates as these arguments say; returns the metrics."""
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = load_config(args)
    _refuse_unwritable(cfg.work_dir)
    refuse_unreadable(args.checkpoint)
    cfg.load_from, cfg.resume = args.checkpoint, False
    if args.out and not args.out.endswith(('.pkl', '.pickle')):
        raise ValueError(f'--out {args.out} must end in .pkl or .pickle')
    if args.show or args.show_dir:
        _draw(cfg, args)
    if args.tta:
        _augment(cfg)
    start_processes(cfg)
    with loading_safely(), naming_faults(cfg):
        runner = _build_runner(cfg)
        _check_class_names(runner)
        if args.out:
            runner.test_evaluator.metrics.append(DumpResults(args.out))
        metrics: dict[str, float] = runner.test()
    return metrics


def _draw(cfg: Config, args: argparse.Namespace) -> None:
    hook = cfg.get('default_hooks', {}).get('visualization')
    if not hook:
        raise ValueError(
            '--show and --show-dir need default_hooks.visualization in the '
            "config, such as dict(type='DetVisualizationHook')")
    hook.draw = True
    if args.show:
        hook.show, hook.wait_time = True, args.wait_time
    if args.show_dir:
        hook.test_out_dir = args.show_dir


def _augment(cfg: Config) -> None:
    missing = [key for key in ('tta_model', 'tta_pipeline') if key not in cfg]
    if missing:
        raise ValueError(f'--tta needs {" and ".join(missing)} in the config')
    cfg.model = dict(**cfg.tta_model, module=cfg.model)
    dataset = cfg.test_dataloader.dataset
    while 'dataset' in dataset:
        dataset = dataset.dataset
    dataset.pipeline = cfg.tta_pipeline
