"""Checkout, editable install and wheel: configs and tools come along."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import mmrank
from mmrank import environment
from mmrank.shipped import config_names, shipped_folder

ROOT = Path(__file__).resolve().parents[1]
NAME = 'rambo/faster-rcnn_r18_fpn_ce_digits.py'
USER_CONFIG = f"""
_base_ = __import__('mmrank').config_path('{NAME}')
train_cfg = dict(max_epochs=77)
"""
GLYPHS = 'proxy_anchor/proxy-anchor_small_glyphs.py'
# a moment of training: a few classes, no validation
SHORT = f"""
_base_ = __import__('mmrank').config_path('{GLYPHS}')
train_cfg = dict(max_epochs=1, val_begin=9)
train_dataloader = dict(
    batch_size=16, num_workers=0, persistent_workers=False,
    dataset=dict(indices=64))
"""
READ = """
import sys
from mmengine.config import Config
import mmrank
cfg = Config.fromfile(sys.argv[1])
assert cfg.train_cfg.max_epochs == 77, cfg.train_cfg
assert cfg.model.type.endswith('FasterRCNN'), cfg.model.type
print(mmrank.__file__, mmrank.config_path(sys.argv[2]))
"""
BUILD = """
import setuptools.build_meta as backend, sys
print(getattr(backend, 'build_' + sys.argv[1])(sys.argv[2]))
"""


def run(*command: object, cwd: Path, python: Path | str = sys.executable):
    variables = {name: value for name, value in os.environ.items()
                 if name != 'PYTHONPATH'}
    done = subprocess.run([str(python), *map(str, command)], cwd=cwd,
                          env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope='module')
def source(tmp_path_factory) -> Path:
    """A copy of what the checkout ships: builds leave files behind."""
    folder = tmp_path_factory.mktemp('source')
    keep = shutil.ignore_patterns(
        '.git', '.venv*', 'work_dirs', 'data', 'build', 'dist', '.mim',
        '*.egg-info', '__pycache__', 'tests', '.*_cache')
    shutil.copytree(ROOT, folder / 'mmrank', ignore=keep)
    return folder / 'mmrank'


@pytest.fixture(scope='module')
def stack_venv(tmp_path_factory):
    """Makes environments that see this one's packages, not the checkout."""
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name) / 'venv'
        run('-m', 'venv', '--without-pip', folder, cwd=folder.parent)
        python = folder / 'bin/python'
        site = Path(run('-c', 'import sysconfig;'
                        'print(sysconfig.get_paths()["purelib"])',
                        cwd=folder, python=python).strip())
        (site / 'stack.pth').write_text(sysconfig.get_paths()['purelib'])
        return python
    return make


def install(python: Path, *what: object, cwd: Path) -> None:
    run('-m', 'pip', '--python', python, 'install', '-q', '--no-deps',
        '--no-index', '--no-build-isolation', *what, cwd=cwd)


def reads_a_users_config(python: Path, folder: Path) -> list[str]:
    (folder / 'mine.py').write_text(USER_CONFIG)
    (folder / 'read.py').write_text(READ)
    return run('read.py', 'mine.py', NAME, cwd=folder, python=python).split()


def test_wheel_carries_configs_and_tools_and_trains_by_name(
        source, stack_venv, tmp_path):
    run('-c', BUILD, 'wheel', tmp_path, cwd=source)
    wheel, = tmp_path.glob('*.whl')
    names = zipfile.ZipFile(wheel).namelist()
    for name in [f'configs/{name}' for name in config_names()] + [
            'tools/train.py', 'tools/dist_train.sh', 'model-index.yml']:
        assert f'mmrank/.mim/{name}' in names
    assert not [name for name in names if name.startswith(('tests', 'tools'))]

    python = stack_venv('wheel')
    install(python, wheel, cwd=tmp_path)
    module, path = reads_a_users_config(python, tmp_path)
    assert str(python.parent.parent) in module
    assert path.endswith(f'mmrank/.mim/configs/{NAME}')
    (tmp_path / 'short.py').write_text(SHORT)
    run('-m', 'mmrank', 'train', 'short.py', '--work-dir', 'run',
        cwd=tmp_path, python=python)
    assert (tmp_path / 'run/epoch_1.pth').is_file()
    assert NAME in run('-m', 'mmrank', 'configs', cwd=tmp_path, python=python)


def test_editable_install_inherits_from_another_directory(
        source, stack_venv, tmp_path):
    python = stack_venv('editable')
    install(python, '-e', source, cwd=tmp_path)
    module, path = reads_a_users_config(python, tmp_path)
    assert module == str(source / 'mmrank/__init__.py')
    assert path == str(source / 'configs' / NAME)
    # where OpenMIM looks
    assert (source / 'mmrank/.mim/tools/train.py').is_file()


def test_sdist_builds_the_same_wheel(source, tmp_path):
    run('-c', BUILD, 'sdist', tmp_path, cwd=source)
    archive, = tmp_path.glob('*.tar.gz')
    with tarfile.open(archive) as tar:
        names = {name.split('/', 1)[-1] for name in tar.getnames()}
    for name in ('LICENSE', f'configs/{NAME}', 'tools/train.py', 'setup.py',
                 'tools/setup_env.sh', 'requirements/maintained.txt'):
        assert name in names


def test_model_index_imports_every_metafile_and_their_configs_exist():
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
    there = {path.relative_to(ROOT).as_posix()
             for path in ROOT.glob('configs/*/metafile.yml')}
    assert set(index) == there
    for name in index:
        for model in yaml.safe_load((ROOT / name).read_text())['Models']:
            assert (ROOT / model['Config']).is_file(), model


def test_nothing_pulls_torch_or_mmcv_behind_the_users_back():
    metadata = run(ROOT / 'setup.py', '--quiet', '--version', cwd=ROOT)
    assert metadata.strip().endswith(mmrank.__version__)
    text = (ROOT / 'setup.py').read_text()
    required = text[text.index('install_requires'):].split(']')[0]
    assert not any(name in required for name in ('torch', 'mmcv', 'mmengine',
                                                 'mmdet'))


@pytest.mark.parametrize('near', ['faster-rcnn_r18_fpn_ce_digits.py',
                                  'rambo/faster-rcnn_r18_fpn_ce_digit.py'])
def test_mistyped_config_name_lists_the_near_one(near):
    with pytest.raises(FileNotFoundError, match=f'did you mean .*{NAME}'):
        mmrank.config_path(near)


def test_configs_of_a_stranger_beside_an_install_are_not_taken(
        tmp_path, monkeypatch):
    from mmrank import shipped
    package = tmp_path / 'site-packages/mmrank'
    (package / '.mim/configs').mkdir(parents=True)
    (package.parent / 'configs').mkdir()
    monkeypatch.setattr(shipped, 'PACKAGE', package)
    assert shipped_folder('configs') == package / '.mim/configs'
    with pytest.raises(FileNotFoundError, match='came without its tools'):
        shipped_folder('tools')


# ------------------------------------------------------------- the stack
STACK = {'torch': '2.9.1', 'onedl-mmengine': '0.10.12', 'numpy': '2.2.6',
         'onedl-mmcv': '2.3.6', 'onedl-mmdetection': '3.5.1'}
OLD = {'torch': '2.1.2+cpu', 'mmengine': '0.10.7', 'mmcv': '2.1.0',
       'mmdet': '3.3.0', 'numpy': '1.26.4'}


def fails_at(module: str, error: Exception):
    def load(name: str) -> None:
        if name == module:
            raise error
    return load


@pytest.mark.parametrize('stack', [STACK, OLD])
def test_a_working_stack_has_no_problem(stack):
    assert environment.find_problem(stack.get, fails_at('', OSError())) is None


@pytest.mark.parametrize('stack, change, found, command', [
    (STACK, {'torch': None}, 'no torch', 'torch==2.9.1 torchvision==0.24.1'),
    (STACK, {'torch': '2.14.0'}, 'torch 2.14.0', 'torch==2.9.1'),
    (OLD, {'mmcv': None}, 'no mmcv', '--no-build-isolation mmcv==2.1.0'),
    (OLD, {'mmengine': '0.7.0'}, 'mmengine 0.7.0', 'mmengine==0.10.7'),
    (OLD, {'numpy': '2.1.0'}, 'numpy 2.1.0 beside torch 2.1.2', 'numpy<2'),
    (OLD, {'mmcv': '2.2.0'}, 'mmcv 2.2.0 beside mmdet', 'mmcv==2.1.0'),
    (STACK, {'mmcv': '2.1.0'}, 'overwrite each other as mmcv',
     'uninstall -y onedl-mmcv mmcv'),
])
def test_a_wrong_version_gets_what_was_found_needed_and_the_command(
        stack, change, found, command):
    problem = environment.find_problem({**stack, **change}.get,
                                 fails_at('', OSError()))
    assert found in problem.found
    assert command in problem.command
    assert str(problem).splitlines()[1].startswith('needed: ')


@pytest.mark.parametrize('module, error, found, command', [
    ('mmcv.ops', ModuleNotFoundError("No module named 'mmcv._ext'"),
     'operators do not load', '--no-binary onedl-mmcv onedl-mmcv==2.3.6'),
    ('mmcv.ops', ImportError('undefined symbol: _ZN2at4_ops5zeros'),
     'undefined symbol', '--no-build-isolation --force-reinstall'),
    ('cv2', ImportError('libGL.so.1: cannot open shared object file'),
     'libGL.so.1', 'opencv-python-headless<5'),
    ('mmdet', AssertionError(), 'mmdet does not import (AssertionError)',
     'onedl-mmdetection==3.5.1'),
])
def test_a_part_that_does_not_import_gets_its_command(
        module, error, found, command):
    problem = environment.find_problem(STACK.get, fails_at(module, error))
    assert found in problem.found
    assert command in problem.command


def test_versions_named_by_the_check_are_the_pinned_ones():
    for stack, pins in environment.PINS.items():
        text = (ROOT / 'requirements' / f'{stack}.txt').read_text()
        for pin in ' '.join(pins.values()).replace("'", '').split():
            assert pin in text, f'{pin} is not in requirements/{stack}.txt'


# ------------------------------------------------------------ the scripts
def shell(script: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ['bash', '-c', f'source tools/setup_env.sh; {script}'], cwd=ROOT,
        env={**os.environ, 'STACK': 'maintained', **variables},
        capture_output=True, text=True)


def test_python_that_has_the_stack_is_used_as_it_is():
    done = shell('ensure_environment && echo "$PYTHON"',
                 PYTHON=sys.executable)
    assert done.stdout.strip() == sys.executable, done.stderr


def test_unknown_stack_is_refused_with_the_choices():
    done = shell('ensure_environment', STACK='nightly')
    assert done.returncode == 1
    assert 'STACK=nightly is unknown; choose maintained or upstream' \
        in done.stderr


FAKE = """#!/usr/bin/env bash
# an interpreter whose pip is stopped at its first install, then works
case "$*" in
    *'import torch, mmcv.ops, mmdet'*)
        [[ $0 == */venvs/* ]] && [ -f "$STATE/installed" ] ;;
    *'import mmcv.ops'*) [ -f "$STATE/installed" ] ;;
    *'version_info'*) exit 0 ;;
    *'-m venv'*) mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python"
        echo venv >> "$STATE/calls" ;;
    *'-m pip -V'*) exit 0 ;;
    *'-m pip'*) echo "$*" >> "$STATE/calls"
        if [ ! -f "$STATE/stopped" ]; then touch "$STATE/stopped"; exit 1
        fi
        case "$*" in *mmcv*) touch "$STATE/installed" ;; esac ;;
    -V) echo Python 3.11.0 ;;
esac
"""


@pytest.fixture
def fake(tmp_path):
    path = tmp_path / 'python3'
    path.write_text(FAKE)
    path.chmod(0o755)
    return dict(PYTHON=str(path), STATE=str(tmp_path), PYTHONPATH='',
                MMRANK_VENVS=str(tmp_path / 'venvs'))


def test_interrupted_installation_goes_on_and_a_finished_one_is_reused(
        fake, tmp_path):
    make = 'ensure_environment && echo "$PYTHON"'
    first = shell(make, MMRANK_WHEELS='', **fake)
    assert first.returncode == 1
    assert 'Run the same command again' in first.stderr
    second = shell(make, MMRANK_WHEELS=str(tmp_path), **fake)
    assert second.returncode == 0, second.stderr
    assert 'completing' in second.stderr
    calls = (tmp_path / 'calls').read_text()
    assert calls.count('venv\n') == 1
    assert f'--find-links {tmp_path} onedl-mmcv==2.3.6' in calls
    third = shell(make, **fake)
    assert 'using' in third.stderr and third.stdout == second.stdout
    assert (tmp_path / 'calls').read_text() == calls, 'nothing is installed'


def test_missing_wheel_leads_to_a_compile_that_says_how_long_it_takes(
        fake, tmp_path):
    (tmp_path / 'stopped').touch()
    done = shell('MAX_JOBS=1 ensure_environment',
                 STACK='upstream', MMRANK_WHEELS='', **fake)
    assert done.returncode == 0, done.stderr
    assert 'about half an hour' in done.stderr
    calls = (tmp_path / 'calls').read_text()
    assert '--no-build-isolation --no-binary mmcv mmcv==2.1.0' in calls
    assert 'torch==2.1.2 torchvision==0.16.2' in calls
