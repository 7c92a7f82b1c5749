"""ProxyISALoss: state, order and schedule, step by step."""

import math

import pytest
import torch
import torch.nn.functional as F
from mmengine.logging import MessageHub

from mmrank.functional import proxy_anchor_loss
from mmrank.models.losses import ProxyISALoss


class SlowProxyISA:
    """The published procedure with dicts, lists and loops."""

    def __init__(self, num_classes, size, V, k=.9, tau=1.5,  # noqa: N803
                 h=.15, lam=.1, alpha=32., delta=.1, queue_start=2,
                 weighting_start=3):
        self.n = [0] * num_classes
        self.learned = [1.] * num_classes
        self.queue = []
        self.size, self.k, self.V, self.tau, self.h = size, k, V, tau, h
        self.lam, self.alpha, self.delta = lam, alpha, delta
        self.queue_start, self.weighting_start = queue_start, weighting_start

    def effective(self, c):
        beta = (self.V - 1) / self.V
        return (1 - beta**self.n[c]) / (1 - beta)

    def nu(self, c):
        return 1 / (1 + math.log(1 + self.effective(c)))

    def sigma(self, c):
        return 1 + (1 + math.exp(-self.tau)) * (self.nu(c) - 1) / (
            1 + math.exp(self.V - self.tau - self.effective(c)))

    def bound(self, c):
        eta = (1 + self.k * (1 - self.learned[c])) * self.nu(c) + self.lam
        return self.learned[c] - eta

    def step(self, embeddings, labels, proxies, now):
        labels = labels.tolist()
        cosines = (F.normalize(embeddings) @ F.normalize(proxies).t()).tolist()
        weighting = now >= self.weighting_start
        clean, attract, attract_w, repel, repel_w = [], 0, 0, 0, 0
        for b, c in enumerate(labels):
            if not weighting or cosines[b][c] >= self.bound(c):
                clean.append(b)
        for c in range(len(self.n)):
            own, own_w, other, other_w = [], [], [], []
            for b, label in enumerate(labels):
                s = cosines[b][c]
                if label == c:
                    w = 1.
                    if weighting:
                        inside = self.bound(c) <= s <= self.learned[c]
                        w = self.sigma(c) + inside
                    own.append(math.exp(self.alpha * (self.delta - s) * w))
                    own_w.append(w)
                else:
                    w = 1.
                    if s < self.bound(c):
                        w = 1 / max(1., self.effective(c))
                    other.append(math.exp(self.alpha * (s + self.delta) * w))
                    other_w.append(w)
            if own:
                attract += math.log(1 + sum(own))
                attract_w += sum(own_w) / len(own_w)
            repel += math.log(1 + sum(other))
            repel_w += sum(other_w) / len(other_w)
        if now >= self.queue_start:
            for b in clean:
                self.queue.append((F.normalize(embeddings[b], dim=0),
                                   labels[b]))
            self.queue = self.queue[-self.size:]
        for b in clean:
            self.n[labels[b]] += 1
        if now >= self.queue_start:
            for c in set(labels):
                mine = [
                    torch.dot(x, F.normalize(proxies[c], dim=0)).item()
                    for x, label in self.queue if label == c
                ]
                if mine:
                    self.learned[c] = self.h * sum(mine) / len(mine)
        return attract / attract_w + repel / repel_w


@pytest.mark.parametrize('size', [200, 10])
def test_forty_steps_equal_the_slow_procedure(size):
    torch.manual_seed(1)
    num_classes, width = 4, 6
    proxies = torch.randn(num_classes, width)
    fast = ProxyISALoss(num_classes, width, memory_size=size, V=20.)
    slow = SlowProxyISA(num_classes, size, V=20.)
    outliers = 0
    for step in range(40):
        epoch = step // 6
        labels = torch.randint(0, num_classes, (7, ))
        labels[:2] = torch.tensor([0, 1])
        pull = torch.where(torch.rand(7, 1) < .2, -2., 1.)
        embeddings = pull * proxies[labels] + torch.randn(7, width)
        fast.set_epoch(epoch)
        found = fast(embeddings, labels, proxies=proxies)
        before = sum(slow.n)
        expected = slow.step(embeddings, labels, proxies, epoch)
        outliers += 7 - (sum(slow.n) - before)
        assert found.item() == pytest.approx(expected, rel=1e-4)
        assert fast.counts.tolist() == slow.n
        assert fast.learned.tolist() == pytest.approx(slow.learned, abs=1e-6)
        kept, kept_labels = fast.queue.read()
        assert kept_labels.tolist() == [label for _, label in slow.queue]
        if slow.queue:
            torch.testing.assert_close(
                kept, torch.stack([x for x, _ in slow.queue]))
        proxies = proxies + .05 * torch.randn_like(proxies)
    assert outliers > 10, 'the script must filter something'


def unit(*cosines):
    """Embeddings with these cosines to the proxy e_0, in the e_0-e_2 plane."""
    return torch.tensor([[s, 0., (1 - s * s)**.5] for s in cosines])


def test_a_scripted_sequence_has_the_values_computed_by_hand():
    """V = 2: beta = 1/2, E = 2 (1 - 2^-n); two classes, proxies e_0, e_1."""
    proxies = torch.eye(3)[:2]
    loss = ProxyISALoss(
        2, 3, V=2., tau=1., h=.5, k=1., margin_lambda=.1, memory_size=4,
        by_epoch=False, queue_start=1, weighting_start=2)

    # step 0, before the queue: counted, not enqueued, S stays 1
    zero = torch.tensor([0, 0])
    first = loss(unit(.8, .6), zero, proxies=proxies)
    assert first.item() == pytest.approx(proxy_anchor_loss(
        unit(.8, .6), zero, proxies).item())
    assert loss.counts.tolist() == [2, 0]
    assert loss.learned.tolist() == [1., 1.]
    assert len(loss.queue) == 0

    # step 1, the queue fills: n_0 = 3, S_0 = .5 (.8 + 0) / 2 = .2; nothing
    # is filtered yet
    loss(unit(.8), zero[:1], proxies=proxies)
    assert loss.queue.read()[1].tolist() == [0]
    assert loss.learned.tolist() == pytest.approx([.4, 1.])
    loss.steps.fill_(1)
    loss(unit(0.), zero[:1], proxies=proxies)
    assert loss.counts.tolist() == [4, 0]
    assert loss.learned.tolist() == pytest.approx([.2, 1.])

    # step 2: E = 2 (1 - 1/16) = 1.875, nu = 1 / (1 + log 2.875) = .486369,
    # sigma = 1 + (1 + e^-1)(nu - 1) / (1 + e^(2 - 1 - 1.875)) = .504126,
    # eta = (1 + .8) nu + .1 = .975464, S_out = .2 - eta = -.775464
    effective, nu = 1.875, 1 / (1 + math.log(2.875))
    assert nu == pytest.approx(.486369, abs=1e-6)
    sigma = 1 + (1 + math.exp(-1)) * (nu - 1) / (1 + math.exp(1 - effective))
    assert sigma == pytest.approx(.504126, abs=1e-6)
    eta = 1.8 * nu + .1
    assert eta == pytest.approx(.975464, abs=1e-6)
    # easy, informative, outlier; none is a negative of class 1's proxy below
    # its bound, since E_1 = 0 makes 1 / max(1, E_1) = 1 anyway
    cosines = .5, .1, -.9
    omega = sigma, 1 + sigma, sigma
    terms = [
        math.exp(32 * (.1 - s) * w) for s, w in zip(cosines, omega)
    ]
    attract = math.log(1 + sum(terms)) / (sum(omega) / 3)
    # class 0 has no negatives (mean weight 1), class 1 three of cosine 0
    repel = math.log(1 + 3 * math.exp(3.2)) / 2
    found = loss(unit(*cosines), torch.zeros(3, dtype=torch.int64),
                 proxies=proxies)
    assert found.item() == pytest.approx(attract + repel, rel=1e-5)
    # the outlier is neither counted nor remembered
    assert loss.counts.tolist() == [6, 0]
    assert loss.queue.read()[1].tolist() == [0, 0, 0, 0]
    assert loss.queue.read()[0][:, 0].tolist() == pytest.approx(
        [.8, 0., .5, .1])
    assert loss.learned[0].item() == pytest.approx(.5 * 1.4 / 4)

    # step 3: the queue drops its oldest, and class 1 meets its own proxy;
    # as negatives of class 0 (E = 2 (1 - 2^-6) = 1.96875) those below
    # S_out = .175 - eta weigh 1 / E
    nu = 1 / (1 + math.log(2.96875))
    bound = .175 - (1 + .825) * nu - .1
    batch = torch.tensor([[-.95, .3, 0.], [.2, .9, 0.]])
    batch = F.normalize(batch)
    assert batch[0, 0] < bound < batch[1, 0]
    weights = 1 / 1.96875, 1.
    # class 1: n = 0, so E = 0, nu = sigma = 1, S = 1, eta = 1.1, S_out = -.1
    own = [math.exp(32 * (.1 - s) * 2) for s in batch[:, 1].tolist()]
    attract = math.log(1 + sum(own)) / 2
    other = [
        math.exp(32 * (s + .1) * w)
        for s, w in zip(batch[:, 0].tolist(), weights)
    ]
    repel = math.log(1 + sum(other)) / (sum(weights) / 2 + 1)
    found = loss(batch, torch.tensor([1, 1]), proxies=proxies)
    assert found.item() == pytest.approx(attract + repel, rel=1e-5)
    assert loss.queue.read()[1].tolist() == [0, 0, 1, 1]
    assert loss.counts.tolist() == [6, 2]
    assert loss.learned.tolist() == pytest.approx(
        [.175, .5 * batch[:, 1].mean().item()])


def isa(**kwargs):
    kwargs = dict(memory_size=6, by_epoch=False) | kwargs
    return ProxyISALoss(3, 4, **kwargs)


def batch(n=5):
    return torch.randn(n, 4), torch.randint(0, 3, (n, ))


def state(loss):
    return {name: t.clone() for name, t in loss.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_evaluation_neither_reads_nor_fills_the_state():
    loss, proxies = isa(), torch.randn(3, 4)
    for _ in range(6):
        loss(*batch(), proxies=proxies)
    before = state(loss)
    embeddings, labels = batch()
    found = loss.eval()(embeddings, labels, proxies=proxies)
    assert_same(before, state(loss))
    torch.testing.assert_close(
        found, proxy_anchor_loss(embeddings, labels, proxies))


def test_five_and_five_steps_equal_ten(tmp_path):
    proxies = torch.randn(3, 4)
    batches = [batch() for _ in range(10)]
    straight, first = isa(), isa()
    expected = [straight(*b, proxies=proxies) for b in batches]
    for b in batches[:5]:
        first(*b, proxies=proxies)
    torch.save(first.state_dict(), tmp_path / 'loss.pth')
    second = isa()
    second.load_state_dict(
        torch.load(tmp_path / 'loss.pth', weights_only=True))
    found = [second(*b, proxies=proxies) for b in batches[5:]]
    assert torch.equal(torch.stack(found), torch.stack(expected[5:]))
    assert_same(state(second), state(straight))


def test_reset_forgets_everything():
    loss, proxies = isa(), torch.randn(3, 4)
    for _ in range(5):
        loss(*batch(), proxies=proxies)
    loss.reset()
    assert_same(state(loss), state(isa()))


def test_before_its_start_the_queue_stays_empty_and_no_sample_is_dropped():
    loss, proxies = isa(queue_start=10, weighting_start=10), torch.eye(3, 4)
    for _ in range(10):
        loss(-proxies, torch.arange(3), proxies=proxies)
    assert len(loss.queue) == 0
    assert loss.counts.tolist() == [10] * 3
    assert loss.learned.tolist() == [1.] * 3
    loss(-proxies, torch.arange(3), proxies=proxies)
    assert loss.counts.tolist() == [10] * 3, 'now these are outliers'


def test_the_epoch_comes_from_the_message_hub():
    loss, proxies = isa(by_epoch=True), torch.randn(3, 4)
    hub = MessageHub.get_instance('proxy_isa_epoch')
    lengths = []
    for epoch in range(4):
        hub.update_info('epoch', epoch)
        loss(*batch(2), proxies=proxies)
        lengths.append(len(loss.queue))
    assert lengths[:3] == [0, 0, 2]


def test_an_unknown_epoch_is_refused_not_guessed():
    MessageHub.get_instance('proxy_isa_no_epoch')
    with pytest.raises(ValueError, match='set_epoch'):
        isa(by_epoch=True)(*batch(), proxies=torch.randn(3, 4))


def test_an_iteration_loop_with_a_schedule_in_epochs_is_warned_about():
    hub = MessageHub.get_instance('proxy_isa_iterations')
    hub.update_info('epoch', 0)
    hub.update_info('max_epochs', 1)
    with pytest.warns(UserWarning, match='by_epoch=False'):
        isa(by_epoch=True)(*batch(), proxies=torch.randn(3, 4))


def test_nothing_not_finite_is_remembered():
    loss, proxies = isa(), torch.randn(3, 4)
    loss.steps.fill_(2)
    embeddings, labels = batch()
    embeddings[1, 2] = torch.nan
    embeddings[3] = torch.inf
    loss(embeddings, labels, proxies=proxies)
    assert loss.counts.sum() == len(loss.queue) == 3
    assert loss.learned.isfinite().all()


def test_an_empty_batch_changes_nothing_but_the_step():
    loss, proxies = isa(), torch.randn(3, 4, requires_grad=True)
    loss.steps.fill_(9)
    before = state(loss)
    embeddings = torch.empty(0, 4, requires_grad=True)
    value = loss(embeddings, torch.empty(0, dtype=torch.int64),
                 proxies=proxies)
    value.backward()
    assert value.item() == 0 and proxies.grad is not None
    before['steps'] += 1
    assert_same(before, state(loss))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_inputs_get_half_precision_gradients(dtype):
    loss = isa()
    loss.steps.fill_(9)
    embeddings = torch.randn(5, 4, dtype=dtype, requires_grad=True)
    proxies = torch.randn(3, 4, requires_grad=True)
    for _ in range(2):
        value = loss(embeddings, torch.arange(5) % 3, proxies=proxies)
    value.backward()
    assert value.dtype == torch.float32
    assert embeddings.grad.dtype == dtype and embeddings.grad.isfinite().all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16,
                                   torch.float64])
def test_a_model_cast_to_another_dtype_still_fills_its_state(dtype):
    loss = ProxyISALoss(3, 4, memory_size=7, by_epoch=False, queue_start=0,
                        weighting_start=1).to(dtype)
    proxies = torch.randn(3, 4).to(dtype)
    for _ in range(3):
        value = loss(torch.randn(6, 4).to(dtype), torch.arange(6) % 3,
                     proxies=proxies)
        assert value.isfinite()
    assert loss.learned.dtype == dtype and loss.learned.any()
    assert len(loss.queue) == 7


def test_the_loss_weight_only_multiplies():
    proxies, (embeddings, labels) = torch.randn(3, 4), batch()
    plain = isa()(embeddings, labels, proxies=proxies)
    assert isa(loss_weight=.5)(
        embeddings, labels, proxies=proxies).item() == pytest.approx(
            plain.item() / 2)


@pytest.mark.parametrize('wrong, named', [
    (dict(V=1.), 'V must be'),
    (dict(alpha=0.), 'alpha'),
    (dict(h=-1.), "'h'"),
    (dict(memory_size=0), 'memory_size'),
    (dict(queue_start=4, weighting_start=3), 'queue_start'),
    (dict(distributed='both'), 'distributed'),
])
def test_values_out_of_range_are_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        isa(**wrong)


def test_proxies_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r'num_classes=3.*\(5, 4\)'):
        isa()(*batch(), proxies=torch.randn(5, 4))
    with pytest.raises(ValueError, match='needs proxies'):
        isa()(*batch())


def test_statistics_are_numbers():
    loss, proxies = isa(), torch.randn(3, 4)
    for _ in range(4):
        loss(*batch(), proxies=proxies)
    numbers = loss.statistics()
    assert numbers['queue_length'] == 6
    assert all(math.isfinite(number) for number in numbers.values())


@pytest.mark.parametrize('mode', [torch.no_grad, torch.inference_mode])
def test_a_loss_without_gradient_leaves_no_trace_in_the_state(mode):
    loss = ProxyISALoss(2, 2, memory_size=8, by_epoch=False, queue_start=0,
                        weighting_start=0)
    proxies, labels = torch.eye(2), torch.tensor([0, 1])
    before = {name: value.clone()
              for name, value in loss.state_dict().items()}
    with mode():
        loss(proxies, labels, proxies=proxies)
    for name, value in loss.state_dict().items():
        assert torch.equal(value, before[name]), name
    loss(proxies, labels, proxies=proxies)
    assert loss.queue.count == 2
