"""Detects objects in images, by MMDetection's own inferencer."""

from __future__ import annotations

import argparse

from mmrank.files import loading_safely, refuse_unreadable

from .images import add_model, existing_config, find_images


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, images, output."""
    add_model(parser)
    parser.add_argument('images', nargs='+', help='image files or one folder')
    parser.add_argument('--out-dir', default='outputs',
                        help='pictures go to vis/, boxes to preds/')
    parser.add_argument('--score-thr', type=float, default=.3,
                        help='boxes below are not drawn (default: 0.3)')


def run(args: argparse.Namespace) -> int:
    """Writes pictures and boxes."""
    from mmrank.apis import DetInferencer
    paths = find_images(args.images)[0]
    refuse_unreadable(args.checkpoint)
    with loading_safely():
        inferencer = DetInferencer(
            existing_config(args.config), args.checkpoint,
            None if args.device == 'auto' else args.device)
    inferencer(
        paths,
        batch_size=args.batch_size,
        pred_score_thr=args.score_thr,
        out_dir=args.out_dir,
        no_save_pred=False,
        print_result=False)
    return 0
