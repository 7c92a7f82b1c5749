import pytest
from mmengine.config import Config

from .loading import load_tool

SHIPPED = 'proxy_anchor/proxy-anchor_r18_folder.py'


@pytest.fixture
def main():
    return load_tool('print_config.py').main


def test_prints_a_shipped_config_with_what_it_inherits(main, capsys):
    main([SHIPPED, '--cfg-options', 'model.head.num_classes=7'])
    printed = Config.fromstring(capsys.readouterr().out, '.py')
    assert printed.model.head.num_classes == 7
    assert printed.default_scope == 'mmrank'


def test_writes_a_config_that_equals_the_printed_one(main, tmp_path, capsys):
    file = tmp_path / 'whole.py'
    main([SHIPPED, '--save-path', str(file)])
    main([SHIPPED])
    printed = capsys.readouterr().out.split('\n', 1)[1]
    assert Config.fromfile(file).to_dict() == Config.fromstring(
        printed, '.py').to_dict()


def test_a_misspelt_name_is_answered_with_near_ones(main):
    with pytest.raises(FileNotFoundError, match='r18_folder'):
        main(['proxy_anchor/proxy-anchor_r18_folders.py'])
