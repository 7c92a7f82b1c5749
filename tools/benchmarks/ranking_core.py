"""Time and memory of the ranking losses against the textbook version.

    python tools/benchmarks/ranking_core.py [--cases small|all] [--out DIR]

The textbook version (``tests/oracles.py``) ranks by a double argsort, ranks
the relevant items by a second one, and ranks again in the backward pass.
"lean" is a version for one list whose second ranking is of the relevant items
only.

One thread. Times are processor times of forward and backward, the median of
interleaved rows of runs in one process. Memory is the highest resident set
beyond the inputs, each in a process of its own. Writes ``ranking_core.json``,
``.md`` and ``.png``.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ['OMP_NUM_THREADS'] = '1'
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.append(str(Path(__file__).resolve().parents[1]))  # measuring

import torch  # noqa: E402
from measuring import cost, report  # noqa: E402
from measuring.record import command, record  # noqa: E402

from mmrank.functional import (  # noqa: E402
    blackbox_ap_loss,
    blackbox_map_loss,
    blackbox_recall_loss,
)
from tests import oracles  # noqa: E402

SEED = 0
SETTINGS = dict(margin=.15, lambda_val=.5)
# name: n, P / n, measured runs, and the wanted time and memory ratios
LISTS = {
    '100k, 1 %': (100_000, .01, 11, 8, 2),
    '320k, 1 %': (320_000, .01, 5, 10, 2),
    '1M, 1 %': (1_000_000, .01, 3, 10, 3),
    '10M, 0.1 %': (10_000_000, .001, 1, 12, 3),
    '100M, 0.01 %': (100_000_000, .0001, 1, None, None),
}
# name: measured runs, and the wanted time and memory ratios
OTHERS = {
    'mAP, 32k x 20, memory 7': (1, 8, 2),
    'recall, 128 x 512': (15, 3, None),
    'mAP, 8k x 1203': (1, 20, None),
}
Variants = tuple[torch.Tensor, dict[str, Callable[[], torch.Tensor]]]


def make(case: str) -> Variants:
    """The scores that get a gradient, and the losses by variant."""
    torch.manual_seed(SEED)
    if case in LISTS:
        n, share = LISTS[case][:2]
        return make_list(n, int(n * share))
    if case == 'recall, 128 x 512':
        return make_recall()
    return make_map(case)


def make_list(n: int, num_positives: int) -> Variants:
    scores = torch.randn(n, requires_grad=True)
    relevance = torch.zeros(n, dtype=torch.bool)
    relevance[torch.randint(n, (num_positives, ))] = True
    return scores, dict(
        ours=lambda: blackbox_ap_loss(scores, relevance, **SETTINGS),
        textbook=lambda: oracles.argsort_losses(
            scores, relevance, **SETTINGS),
        lean=lambda: oracles.argsort_ap_loss(scores, relevance, **SETTINGS),
        sort=lambda: scores.detach().sort().values)


def make_map(case: str) -> Variants:
    lvis = '1203' in case
    n, classes = (8192, 1203) if lvis else (32_768, 20)
    # a quarter foreground; classes uniform, or long-tailed as in LVIS
    shares = 1 / torch.arange(1., classes + 1) if lvis else \
        torch.ones(classes)

    def draw(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = shares.multinomial(rows, replacement=True)
        labels[torch.rand(rows) < .75] = classes
        return (torch.randn(rows, classes),
                labels[:, None] == torch.arange(classes))

    scores, relevance = draw(n)
    scores.requires_grad_()
    if lvis:
        return scores, dict(
            ours=lambda: blackbox_map_loss(scores, relevance, **SETTINGS),
            textbook=lambda: oracles.argsort_map_loss_by_class(
                scores, relevance, **SETTINGS))
    memory = draw(7 * n)
    return scores, dict(
        ours=lambda: blackbox_map_loss(
            scores, relevance, memory_scores=memory[0],
            memory_relevance=memory[1], **SETTINGS),
        textbook=lambda: oracles.argsort_map_loss(
            scores, relevance, memory=memory, **SETTINGS))


def make_recall() -> Variants:
    # batch of 128, memory of 3 batches, 4 images a class
    labels = torch.arange(512) // 4
    similarity = torch.randn(128, 512, requires_grad=True)
    relevance = labels[:128, None] == labels
    return similarity, dict(
        ours=lambda: blackbox_recall_loss(similarity, relevance, **SETTINGS),
        textbook=lambda: oracles.argsort_recall_loss(
            similarity, relevance, **SETTINGS))


def step(scores: torch.Tensor, loss: Callable[[], torch.Tensor]) -> None:
    value = loss()
    if value.requires_grad:
        value.backward()
        scores.grad = None


def measure_times(case: str) -> dict[str, float]:
    """Median seconds of every variant, their runs interleaved."""
    scores, variants = make(case)
    repeats = (LISTS[case][2] if case in LISTS else OTHERS[case][0])
    if case.startswith(('10M', '100M')):
        del variants['lean']
    if case.startswith('100M'):
        variants = dict(ours=variants['ours'])
    return interleaved(scores, variants, repeats)


def interleaved(scores: torch.Tensor,
                variants: dict[str, Callable[[], torch.Tensor]],
                repeats: int) -> dict[str, float]:
    """The median of ``repeats`` runs in a row, in three interleaved rounds.

    A row starts with unmeasured runs, so that none pays for the state in
    which another variant left the cache and the allocator.
    """
    jobs = {name: functools.partial(step, scores, loss)
            for name, loss in variants.items()}
    times = cost.interleaved(
        jobs, repeats, rounds=3 if repeats > 1 else 1,
        warmup=min(repeats, 3), clock=time.process_time)
    return {name: statistics.median(each) for name, each in times.items()}


def measure_memory(case: str, variant: str) -> int:
    """Bytes beyond the inputs at the highest point of one step."""
    small, losses = make_list(999, 9)
    step(small, losses['ours'])  # loads what is loaded once
    scores, variants = make(case)
    with cost.Peak() as peak:
        step(scores, variants[variant])
    return peak.above


def in_a_process(measure: Callable, *arguments: object) -> object:
    """Its result; this process must run no backward itself, to be forked."""
    with multiprocessing.get_context('fork').Pool(1) as pool:
        return pool.apply(measure, arguments)


def measure_rows(cases: list[str]) -> Iterator[dict]:
    print(f'{"case":26}{"ours":>11}{"textbook":>11}{"ratio":>8}{"lean":>8}'
          f'{"wanted":>8}{"memory":>10}{"ratio":>8}{"wanted":>8}')
    for case in cases:
        wanted = LISTS[case][3:] if case in LISTS else OTHERS[case][1:]
        times = in_a_process(measure_times, case)
        row = dict(case=case, seconds=times, wanted=wanted)
        row['bytes'] = dict(ours=in_a_process(measure_memory, case, 'ours'))
        if 'textbook' in times and wanted[1]:
            row['bytes']['textbook'] = in_a_process(
                measure_memory, case, 'textbook')
        print(format_row(row), flush=True)
        yield row


def format_row(row: dict) -> str:
    case, ours, textbook, *ratios, size, memory, wanted = cells(row)
    return (f'{case:26}{ours:>11}{textbook:>11}'
            + ''.join(f'{each:>8}' for each in ratios)
            + f'{size:>10}{memory:>8}{wanted:>8}')


def cells(row: dict) -> list[str]:
    times, size = row['seconds'], row['bytes']

    def text(value: float | None, form: str, unit: str = '') -> str:
        return '-' if value is None else format(value, form) + unit

    def ratio(of: dict, name: str) -> str:
        return text(of[name] / of['ours'] if name in of else None, '.1f')

    textbook = times['textbook'] * 1e3 if 'textbook' in times else None
    time_wanted, memory_wanted = row['wanted']
    return [
        row['case'], text(times['ours'] * 1e3, '.1f', ' ms'),
        text(textbook, '.1f', ' ms'), ratio(times, 'textbook'),
        ratio(times, 'lean'), text(time_wanted, '.0f'),
        text(size['ours'] / 2**20, '.1f', ' MB'), ratio(size, 'textbook'),
        text(memory_wanted, '.0f')]


def measure_growth() -> list[dict]:
    """Times at doubling n with a fixed number of positives."""
    points = []
    for exponent in range(14, 22):
        n = 1 << exponent
        scores, variants = make_list(n, 1000)
        names = ['ours', 'sort'] + ['textbook'] * (exponent <= 20)
        points.append(dict(n=n, **interleaved(
            scores, {name: variants[name] for name in names}, 5)))
    return points


def growth_of(points: list[dict]) -> list[float]:
    return [b['ours'] / a['ours'] for a, b in zip(points, points[1:])]


def profile(case: str) -> dict:
    """Operator calls of one step, and the share of each kind's own time."""
    scores, variants = make(case)
    step(scores, variants['ours'])
    own: dict[str, float] = {}
    for _ in range(9):
        with torch.profiler.profile() as recorded:
            step(scores, variants['ours'])
        events = recorded.key_averages()
        # the least of several: other processes interrupt some of them
        for event in events:
            own[event.key] = min(own.get(event.key, math.inf),
                                 event.self_cpu_time_total)
    longest = sorted(own, key=lambda key: -own[key])[:10]
    return dict(
        calls=sum(event.count for event in events),
        shares={key: own[key] / sum(own.values()) for key in longest})


def plot(points: list[dict], path: Path) -> None:
    plt = report.pyplot()
    figure, axes = plt.subplots(figsize=(6, 4.5), layout='constrained')
    labels = dict(textbook='textbook: argsorts', sort='one torch.sort',
                  ours='mmrank')
    for name, label in labels.items():
        known = [point for point in points if name in point]
        axes.loglog([point['n'] for point in known],
                    [point[name] for point in known], 'o-', label=label)
    axes.set(xlabel='ranked items n (1000 relevant)',
             ylabel='seconds, forward and backward, one thread',
             title='AP loss: time against n')
    axes.grid(True, which='both', alpha=.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def write_table(facts: dict, rows: list[dict], points: list[dict],
                profiles: dict[str, dict], path: Path) -> None:
    """The table as Markdown."""
    growth = growth_of(points)
    head = ('n, relevant', 'mmrank', 'textbook', 'ratio', 'ratio to lean',
            'wanted', 'memory', 'memory ratio', 'wanted')
    lines = ['# The ranking core against the textbook', '']
    lines += [f'- {key}: {value}' for key, value in facts.items()]
    lines += ['', report.table(head, map(cells, rows))]
    lines += [
        '', 'Growth of the time when n doubles at 1000 relevant items: '
        + ', '.join(f'{value:.2f}' for value in growth)
        + ' (wanted: below 2.4).', '', '![time against n](ranking_core.png)',
        '', '## What bounds it', '',
        f'At n = {points[0]["n"]} and 1000 relevant items a step takes '
        f'{points[0]["ours"] * 1e3:.1f} ms: the fixed cost of its operator '
        'calls, which bounds the ratios of short lists. Own time of the '
        'operators, the least of nine profiled steps; nested calls count:']
    for case, found in profiles.items():
        lines += ['', f'{case}, {found["calls"]} calls: ' + ', '.join(
            f'{name} {share:.0%}' for name, share in found['shares'].items())]
    path.write_text('\n'.join(lines) + '\n')


def describe() -> dict:
    return dict(
        record(command(__file__)), seed=SEED,
        load=f'{os.getloadavg()[0]:.1f} in the minute before, ours excluded')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--cases', choices=['small', 'all'], default='all',
                        help='small leaves out 10M and 100M')
    parser.add_argument('--out', type=Path, default=ROOT / 'docs/benchmarks')
    options = parser.parse_args()
    torch.set_num_threads(1)
    # the longest last
    cases = sorted([*LISTS, *OTHERS],
                   key=lambda case: case.startswith(('10M', '100M')))
    if options.cases == 'small':
        cases = [case for case in cases if not case.startswith(('10M',
                                                                '100M'))]
    facts = describe()
    print('\n'.join(f'{key}: {value}' for key, value in facts.items()))
    points = in_a_process(measure_growth)
    profiles = {case: in_a_process(profile, case)
                for case in ('100k, 1 %', '1M, 1 %')}
    print('growth when n doubles at 1000 relevant items:',
          ' '.join(f'{value:.2f}' for value in growth_of(points)),
          '(wanted: < 2.4)', flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / 'ranking_core'
    plot(points, path.with_suffix('.png'))
    rows: list[dict] = []
    for row in measure_rows(cases):
        # after each: what a broken run has measured is not lost
        rows.append(row)
        path.with_suffix('.json').write_text(json.dumps(
            dict(**facts, rows=rows, growth=points, profiles=profiles),
            indent=1) + '\n')
        write_table(facts, rows, points, profiles, path.with_suffix('.md'))


if __name__ == '__main__':
    main()
