"""What is an image, what is a class, and which picture is in a file."""

import os
import struct
import zlib

import numpy as np
import pytest
from mmengine.logging import MMLogger
from PIL import Image, ImageOps

from mmrank.apis import list_images
from mmrank.datasets import FolderRetrievalDataset, LoadImage
from mmrank.files.images import find_images

RED = (200, 30, 30)


def draw(path, colour=RED, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (8, 6), colour).save(path, **options)
    return path


def read(path, mode='RGB'):
    return np.asarray(LoadImage(mode)(dict(img_path=str(path)))['img'])


def both(tree):
    """What training and what inference read, and the classes."""
    data = FolderRetrievalDataset(str(tree))
    trained = [data.get_data_info(i)['img_path'] for i in range(len(data))]
    assert trained == list_images(tree)
    names = [os.path.relpath(path, tree) for path in trained]
    return data.metainfo['classes'], names


@pytest.fixture
def lines(monkeypatch):
    """The messages of the log."""
    found = []
    monkeypatch.setattr(
        MMLogger, 'callHandlers', lambda self, record: found.append(record))
    monkeypatch.setattr('mmrank.files.images._logged', set())
    return lambda: [one.getMessage() for one in found]


@pytest.mark.parametrize('hidden', [
    '.ipynb_checkpoints/0.png', '__MACOSX/0.png', '.git/a/b/0.png',
    '.thumbnails/0.JPG'])
def test_n02_hidden_folders_are_no_classes(tmp_path, lines, hidden):
    for name in ('a/0.png', 'b/0.png', hidden):
        draw(tmp_path / name)
    assert both(tmp_path) == (('a', 'b'), ['a/0.png', 'b/0.png'])
    [line] = lines()  # of two readers
    assert '1 hidden' in line and hidden.split('/')[0] in line


@pytest.mark.parametrize('name, content', [
    ('._0.png', bytes(4096)), ('.DS_Store', b'Bud1'),
    ('Thumbs.db', b'\xd0\xcf\x11\xe0'), ('desktop.ini', b'[.ShellClassInfo]'),
    ('.0.png.swp', b'b0VIM')])
def test_n03_files_of_file_managers_are_no_images(tmp_path, name, content):
    draw(tmp_path / 'a/0.png')
    (tmp_path / 'a' / name).write_bytes(content)
    assert both(tmp_path) == (('a', ), ['a/0.png'])


@pytest.mark.parametrize('nested', [
    'a/day/1.png', 'a/b/c/d/1.png', 'a/a/1.png', 'a/0.png.d/1.png'])
def test_n04_nested_images_belong_to_the_top_folder(tmp_path, nested):
    draw(tmp_path / 'a/0.png')
    draw(tmp_path / nested)
    assert both(tmp_path) == (('a', ), sorted(
        ['a/0.png', nested], key=lambda name: name.split('/')))


def test_n04_links_are_followed_but_not_in_circles(tmp_path, lines):
    tree = tmp_path / 'tree'
    draw(tmp_path / 'elsewhere/1.png')
    draw(tree / 'a/0.png')
    (tree / 'b').symlink_to(tmp_path / 'elsewhere')
    (tree / 'a/up').symlink_to(tree)
    (tree / 'a/self').symlink_to(tree / 'a')
    (tree / 'a/gone.png').symlink_to(tree / 'nothing.png')
    assert both(tree) == (('a', 'b'), ['a/0.png', 'b/1.png'])
    assert '2 linked in a circle' in lines()[0]
    assert '1 linked to nothing (a/gone.png)' in lines()[0]


def test_n05_every_format_that_is_read_is_found(tmp_path):
    names = ['2.tif', '3.webp', '4.PNG', '5.bmp', '6.JPEG', '7.Tiff',
             '8.gif', '9.ppm', '9.jp2']
    for name in names:
        draw(tmp_path / 'a' / name)
    classes, found = both(tmp_path)
    assert found == sorted(f'a/{name}' for name in names)
    for name in found:
        assert abs(read(tmp_path / name).astype(int) - RED).max() < 9, name


def test_n05_what_is_left_out_is_counted_and_named_once(tmp_path, lines):
    draw(tmp_path / 'a/0.png')
    draw(tmp_path / 'loose.png')
    for name in ('a/notes.txt', 'a/0.png.bak', 'a/README'):
        (tmp_path / name).write_text('words')
    FolderRetrievalDataset(str(tmp_path)).full_init()
    FolderRetrievalDataset(str(tmp_path)).full_init()
    [line] = lines()
    assert '3 no image (a/0.png.bak, a/README, a/notes.txt)' in line
    assert '1 in no class folder (loose.png)' in line


def test_n05_suffixes_may_still_be_chosen(tmp_path):
    draw(tmp_path / 'a/0.PNG')
    draw(tmp_path / 'a/1.jpg')
    data = FolderRetrievalDataset(str(tmp_path), extensions=['.png'])
    assert len(data) == 1
    assert find_images(tmp_path, ['.JPG']).images == ['a/1.jpg']


def exif(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    return block


@pytest.mark.parametrize('length', [7, 12, 19, 25])
def test_n07_a_cut_exif_block_costs_no_picture(tmp_path, length):
    block = b'Exif\0\0' + exif(6).tobytes()[6:]
    path = draw(tmp_path / '0.jpg', exif=block[:length])
    assert read(path).shape in ((6, 8, 3), (8, 6, 3))
    assert abs(read(path).astype(int) - RED).max() < 9


def chunk(kind, content):
    body = kind + content
    return struct.pack('>I', len(content)) + body + struct.pack(
        '>I', zlib.crc32(body))


@pytest.mark.parametrize('damage', [
    chunk(b'zTXt', b'key\0\0' + b'no zlib'),
    chunk(b'iTXt', b'key\0\1\0\0\0' + zlib.compress(bytes(2 * 1024**2))),
    chunk(b'eXIf', b'II*\0\xff\xff'),
    chunk(b'tEXt', b'x' * 300)[:-1] + b'!'])
def test_n07_a_damaged_block_of_a_png_gives_the_picture_or_one_line(
        tmp_path, damage):
    whole = draw(tmp_path / '0.png').read_bytes()
    path = tmp_path / '1.png'
    path.write_bytes(whole[:33] + damage + whole[33:])
    try:
        assert (read(path) == RED).all()
    except ValueError as error:
        assert '1.png' in str(error) and '\n' not in str(error)


def test_n07_an_error_names_the_file_and_its_item(tmp_path):
    for index in range(3):
        draw(tmp_path / f'a/{index}.png')
    (tmp_path / 'a/1.png').write_bytes(b'')
    data = FolderRetrievalDataset(
        str(tmp_path), pipeline=[dict(type='mmrank.LoadImage')])
    with pytest.raises(ValueError, match=r'item 1: .*1\.png.*is empty'):
        data[1]


def test_n07_corrupt_images_are_skipped_and_counted_by_option(
        tmp_path, lines):
    for index in range(4):
        draw(tmp_path / f'a/{index}.png')
    (tmp_path / 'a/1.png').write_bytes(b'GIF89a')
    (tmp_path / 'a/2.png').unlink()
    load = dict(type='mmrank.LoadImage', skip_corrupt=True)
    data = FolderRetrievalDataset(str(tmp_path), pipeline=[load])
    data.full_init()
    (tmp_path / 'a/3.png').write_bytes(b'')
    for _ in range(3):
        assert data[1]['img_path'].endswith('0.png')
        assert data[2]['img_path'].endswith('0.png')
    skipped = [line for line in lines() if line.startswith('skipped')]
    assert len(skipped) == 2
    assert skipped[-1].startswith('skipped, 2 so far')
    assert any('1.png' in line for line in skipped)


def test_n09_16_bit_grey_is_divided_by_257(tmp_path):
    values = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)
    values[-1, -1] = 65535
    wanted = np.rint(values / 257)
    for name in ('0.png', '0.tif', '0.pgm'):
        Image.fromarray(values).save(tmp_path / name)
        assert (read(tmp_path / name, 'L') == wanted).all(), name
        assert (read(tmp_path / name)[..., 1] == wanted).all(), name


def test_n09_floats_up_to_one_are_multiplied_by_255(tmp_path):
    values = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    Image.fromarray(values).save(tmp_path / '0.tif')
    assert (read(tmp_path / '0.tif', 'L').ravel() == np.arange(256)).all()


@pytest.mark.parametrize('values, told', [
    (np.array([[-5, 300]], np.float32), r'float32 .* from -5\.0 to 300\.0'),
    (np.array([[0, 70000]], np.int32), r'int32 .* from 0 to 70000'),
    (np.array([[-1, 200]], np.int32), r'int32 .* from -1 to 200'),
    (np.array([[0, np.nan]], np.float32), r'float32 .* nan'),
    (np.array([[0, 1.01]], np.float32), r'from 0\.0 to 1\.0')])
def test_n09_another_range_is_refused_and_named(tmp_path, values, told):
    Image.fromarray(values).save(tmp_path / 'odd.tif')
    with pytest.raises(ValueError, match=r'odd\.tif.*' + told):
        read(tmp_path / 'odd.tif')


def empty_png(width, height):
    head = struct.pack('>IIBBBBB', width, height, 8, 0, 0, 0, 0)
    return (b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head)
            + chunk(b'IDAT', zlib.compress(b'')) + chunk(b'IEND', b''))


def test_n10_too_many_pixels_say_what_to_do(tmp_path):
    path = tmp_path / 'huge.png'
    path.write_bytes(empty_png(20000, 20000))
    limit = Image.MAX_IMAGE_PIXELS
    with pytest.raises(ValueError, match=r'huge\.png.*20000 x 20000 .*limit '
                       rf'of {2 * limit}.*max_pixels'):
        read(path)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_n10_the_limit_can_be_raised_and_lowered(tmp_path, monkeypatch):
    path = draw(tmp_path / '0.png')
    facts = dict(img_path=str(path))
    with pytest.raises(ValueError, match='8 x 6 .*limit of 47'):
        LoadImage(max_pixels=47)(facts)
    assert LoadImage(max_pixels=48)(facts)['img'].size == (8, 6)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 20)
    with pytest.raises(ValueError, match='limit of 40'):
        LoadImage()(facts)
    assert LoadImage(max_pixels=48)(facts)['img'].size == (8, 6)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', None)
    assert LoadImage()(facts)['img'].size == (8, 6)


@pytest.mark.parametrize('content', [
    lambda whole: b'', lambda whole: whole[:len(whole) // 2],
    lambda whole: whole[:4], lambda whole: bytes(len(whole)),
    lambda whole: b'<html>404</html>'])
def test_n17_the_good_one_is_read_and_the_bad_ones_are_named(
        tmp_path, content):
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (40, 40, 3), np.uint8))
    for suffix in ('jpg', 'png', 'webp', 'bmp'):
        good, bad = tmp_path / f'good.{suffix}', tmp_path / f'bad.{suffix}'
        image.save(good)
        bad.write_bytes(content(good.read_bytes()))
        assert read(good).shape == (40, 40, 3)
        with pytest.raises(ValueError, match=rf'bad\.{suffix}.*cannot be'):
            read(bad)


def test_palettes_with_transparency_show_white(tmp_path):
    image = Image.new('P', (4, 4), 1)
    image.putpalette([*RED, 0, 0, 0])
    image.putpixel((0, 0), 0)
    image.save(tmp_path / '0.png', transparency=0)
    assert (read(tmp_path / '0.png')[0, 0] == 255).all()
    assert (read(tmp_path / '0.png')[1, 1] == 0).all()
    Image.new('RGBA', (4, 4), (0, 0, 0, 0)).save(tmp_path / '1.png')
    assert (read(tmp_path / '1.png') == 255).all()
    Image.new('LA', (4, 4), (0, 255)).save(tmp_path / '2.png')
    assert (read(tmp_path / '2.png', 'L') == 0).all()


@pytest.mark.parametrize('orientation', range(1, 9))
def test_the_orientation_flag_is_followed(tmp_path, orientation):
    stored = Image.fromarray(
        np.arange(48, dtype=np.uint8).reshape(6, 8) * 5).convert('RGB')
    stored.save(tmp_path / '0.png', exif=exif(orientation))
    flagged = Image.open(tmp_path / '0.png')
    wanted = np.asarray(ImageOps.exif_transpose(flagged))
    assert (read(tmp_path / '0.png') == wanted).all()
    assert wanted.shape[:2] == ((8, 6) if orientation > 4 else (6, 8))


@pytest.mark.parametrize('suffix', ['gif', 'tif', 'webp', 'png'])
def test_of_several_frames_the_first_is_read(tmp_path, suffix):
    frames = [Image.new('RGB', (8, 6), c) for c in (RED, 'blue', 'green')]
    path = tmp_path / f'0.{suffix}'
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert abs(read(path).astype(int) - RED).max() < 9


def test_cmyk_is_read_as_it_was_written(tmp_path):
    image = Image.new('RGB', (8, 8), RED).convert('CMYK')
    for name in ('0.jpg', '0.tif'):
        image.save(tmp_path / name)
        assert abs(read(tmp_path / name).astype(int) - RED).max() < 9
