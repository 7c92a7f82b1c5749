"""A file or folder is there whole, or as it was before."""

import os
import re
import stat
from pathlib import Path

import pytest

from mmrank.files import whole_folder, write_whole

PACKAGE = Path(__file__).parents[2] / 'mmrank'


@pytest.fixture(params=[0o022, 0o077, 0o002])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def rights(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_folders_have_the_rights_that_the_umask_gives(
        tmp_path, umask):
    with write_whole(tmp_path / 'a') as file:
        file.write(b'1')
    with whole_folder(tmp_path / 'b') as folder:
        (folder / 'c').touch()
    assert rights(tmp_path / 'a') == 0o666 & ~umask
    assert rights(tmp_path / 'b') == 0o777 & ~umask


def test_what_fails_leaves_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / 'a').write_text('before')
    (tmp_path / 'b').mkdir()
    (tmp_path / 'b' / 'old').touch()
    with pytest.raises(KeyError), write_whole(tmp_path / 'a') as file:
        file.write(b'half')
        raise KeyError
    with pytest.raises(KeyError), whole_folder(
            tmp_path / 'b', replace=True) as folder:
        (folder / 'new').touch()
        raise KeyError
    assert (tmp_path / 'a').read_text() == 'before'
    assert {p.name for p in tmp_path.rglob('*')} == {'a', 'b', 'old'}


def test_a_folder_is_replaced_only_on_demand(tmp_path):
    (tmp_path / 'b').mkdir()
    (tmp_path / 'b' / 'old').touch()
    with pytest.raises(OSError), whole_folder(tmp_path / 'b'):
        pass
    with whole_folder(tmp_path / 'b', replace=True) as folder:
        (folder / 'new').touch()
    assert [p.name for p in tmp_path.rglob('*')] == ['b', 'new']


@pytest.mark.parametrize('what, home', [
    (r'os\.(replace|rename|umask)\(|mkstemp|mkdtemp', 'files/whole.py'),
    (r'\btorch\.load\(|[^_.]load_checkpoint\(|allow_pickle=True|'
     r'pickle\.loads?\(', 'files/checkpoints.py'),
    (r'\bis_model_wrapper\(', 'engine/bare_model.py'),
    (r'(?<!class )\bCollectives\(\)', 'state/collectives.py')])
def test_one_place_knows_how(what, home):
    """Renaming into place, unpickling, unwrapping, the process group."""
    found = {
        str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob('*.py')
        if re.search(what, path.read_text())}
    assert found <= {home}
