"""Checks a tree of a retrieval benchmark against the published counts.

    python tools/analysis_tools/verify_retrieval_dataset.py cub data/CUB_200_2011
    python tools/analysis_tools/verify_retrieval_dataset.py sop DIR --images

Exits with 1 if a count differs, a class is in training and test, or an image
is missing; ``--images`` also decodes every image, to find damaged ones.
"""  # noqa: E501

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path

if importlib.util.find_spec('mmrank') is None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.datasets import (
    CarsDataset,
    CUBDataset,
    InShopDataset,
    LoadImage,
    RetrievalDataset,
    StanfordOnlineProductsDataset,
)

KINDS: dict[str, type[RetrievalDataset]] = {
    'cub': CUBDataset,
    'cars': CarsDataset,
    'sop': StanfordOnlineProductsDataset,
    'inshop': InShopDataset,
}


def verify(kind: str, root: str, decode: bool) -> list[str]:
    """Prints the counts of every split; returns what is wrong."""
    data_set, faults, classes = KINDS[kind], [], {}
    print('split     images (published)   classes (published)')
    for split in data_set.splits:
        data = data_set(root, split)
        data.full_init()
        classes[split] = set(data.metainfo['classes'])
        counts = len(data), len(classes[split])
        images, number = data_set.published[split]
        print(f'{split:8} {counts[0]:7} ({images:6})        '
              f'{counts[1]:7} ({number:6})')
        if counts != (images, number):
            faults.append(f'{split}: {counts[0]} images of {counts[1]} '
                          f'classes instead of {images} of {number}')
        faults += image_faults(data, decode)
    shared = classes['train'] & classes['test']
    if shared:
        faults.append(f'{len(shared)} classes are in training and test, '
                      f'such as {sorted(shared)[0]!r}')
    return faults


def image_faults(data: RetrievalDataset, decode: bool) -> list[str]:
    """Missing, and if asked for damaged, images of a split."""
    paths = [data.get_data_info(i)['img_path'] for i in range(len(data))]
    faults = [f'missing: {path}' for path in paths
              if not os.path.exists(path)]
    if decode:
        load = LoadImage()
        for path in paths:
            try:
                load(dict(img_path=path))
            except FileNotFoundError:
                pass  # told above
            except ValueError as error:
                faults.append(str(error))
    return faults


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('kind', choices=KINDS)
    parser.add_argument('data_root')
    parser.add_argument('--images', action='store_true',
                        help='also decode every image')
    args = parser.parse_args()
    try:
        faults = verify(args.kind, args.data_root, args.images)
    except (FileNotFoundError, ValueError) as error:
        faults = [str(error)]
    for fault in faults[:20]:
        print(f'FAULT {fault}')
    if len(faults) > 20:
        print(f'... and {len(faults) - 20} more')
    print('as published' if not faults else f'{len(faults)} faults')
    return int(bool(faults))


if __name__ == '__main__':
    sys.exit(main())
