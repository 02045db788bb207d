"""Small models of convolutions and norms of batches, in both layouts, against eager torch."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

import sterna.torch

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh")]


class Residual(nn.Module):
    """Two convolutions with norms, beside the image or what one of one element makes of it."""

    def __init__(self, width, to, stride=1):
        super().__init__()
        self.one, self.two = nn.Conv2d(width, to, 3, stride, 1, bias=False), nn.Conv2d(to, to, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(to) for _ in range(2))
        is_same = stride == 1 and width == to
        self.beside = nn.Identity() if is_same else nn.Sequential(nn.Conv2d(width, to, 1, stride, bias=False), nn.BatchNorm2d(to))

    def forward(self, x):
        y = torch.relu(self.norms[0](self.one(x)))
        return torch.relu(self.norms[1](self.two(y)) + self.beside(x))


class Inverted(nn.Module):
    """More channels, a kernel for each of them, and fewer channels again."""

    def __init__(self, width, to, stride):
        super().__init__()
        wide = 4 * width
        self.parts = nn.Sequential(
            nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, to, 1, bias=False), nn.BatchNorm2d(to),
        )  # fmt: skip

    def forward(self, x):
        y = self.parts(x)
        return x + y if x.shape == y.shape else y


class Next(nn.Module):
    """A kernel for each channel, a norm of the channels and a layer of two products, as ConvNeXt has them."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(functional.gelu(self.up(y)))).permute(0, 3, 1, 2)


class Sound(nn.Module):
    """The first layers of Whisper, and a layer of products."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv1d(20, 32, 3, padding=1), nn.Conv1d(32, 32, 3, stride=2, padding=1)
        self.out = nn.Linear(32, 8)

    def forward(self, x):
        x = functional.gelu(self.two(functional.gelu(self.one(x))))
        return self.out(x.permute(0, 2, 1))


class Pyramid(nn.Module):
    """Half the size and back by a transposed convolution, in three groups of channels."""

    def __init__(self):
        super().__init__()
        self.down, self.norm = nn.Conv2d(6, 12, 4, 2, 1, groups=3), nn.BatchNorm2d(12)
        self.up, self.out = nn.ConvTranspose2d(12, 6, 2, 2, groups=3), nn.Conv2d(12, 4, 1)

    def forward(self, x):
        return self.out(torch.cat([x, self.up(functional.silu(self.norm(self.down(x))))], 1))


STEM = nn.Conv2d(3, 40, 7, 2, 3, bias=False), nn.BatchNorm2d(40), nn.ReLU(), nn.MaxPool2d(3, 2, 1)

MODELS = {
    "resnet": (
        lambda: nn.Sequential(
            *copy.deepcopy(STEM), Residual(40, 40), Residual(40, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5)
        ),
        (4, 3, 32, 32),
    ),
    "mobilenet": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(), Inverted(8, 8, 1), Inverted(8, 12, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
        ),
        (4, 3, 32, 32),
    ),
    "convnext": (lambda: nn.Sequential(nn.Conv2d(3, 32, 4, 4), Next(32), Next(32)), (3, 3, 32, 32)),
    "sound": (Sound, (3, 20, 50)),
    "pyramid": (Pyramid, (3, 6, 16, 16)),
    "video": (
        lambda: nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.Conv3d(8, 4, (1, 3, 3))),
        (2, 4, 5, 8, 8),
    ),
}  # fmt: skip


def made(name, is_last):
    """A model and a function that gives images for it."""
    torch.manual_seed(0)
    make, shape = MODELS[name]
    memory = torch.channels_last if is_last and len(shape) == 4 else torch.contiguous_format
    model = make().to(memory_format=memory)
    return model, lambda batch=shape[0]: torch.randn(batch, *shape[1:]).to(memory_format=memory)


def trained(model, function, images):
    """Losses of some steps, and gradients of the first one."""
    # Gradients that are all but 0 decide on no step.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-4)
    losses, grads = [], []
    for x in images:
        optimizer.zero_grad()
        loss = (function(x) - 0.5).square().mean()
        loss.backward()
        losses.append(loss.detach())
        grads = grads or [one.grad.clone() for one in model.parameters()]
        optimizer.step()
    return losses, grads


CASES = [(name, is_last) for name, (_, shape) in MODELS.items() for is_last in (False, True) if len(shape) == 4 or not is_last]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_training(case):
    model, images = made(*case)
    other = copy.deepcopy(model)
    given = [images() for _ in range(6)]
    wanted = trained(model, model, given)
    found = trained(other, torch.compile(other, backend=sterna.torch.backend), given)
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0], wanted[0], rtol=2e-3, atol=1e-4)
    torch.testing.assert_close(list(other.buffers()), list(model.buffers()), rtol=5e-3, atol=5e-4)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_inference(case):
    model, images = made(*case)
    with torch.no_grad():
        for _ in range(2):
            model(images())
        model.eval()
        function = torch.compile(model, backend=sterna.torch.backend, dynamic=True)
        for batch in (4, 1, 3, 4):
            x = images(batch)
            torch.testing.assert_close(function(x), model(x), rtol=1e-4, atol=1e-5, check_stride=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_norms_that_keep_their_statistics(case):
    """Gradients of a model in evaluation."""
    model, images = made(*case)
    model.eval()
    other, x = copy.deepcopy(model), images()
    wanted, found = trained(model, model, [x]), trained(other, torch.compile(other, backend=sterna.torch.backend), [x])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_autocast(name):
    """No farther from f32 than torch is."""
    model, images = made(name, False)
    x = images()
    with torch.no_grad():
        model.eval()
        exact = model(x)
        with torch.autocast("cpu", torch.bfloat16):
            wanted = model(x)
            found = torch.compile(model, backend=sterna.torch.backend)(x)
    assert found.dtype == wanted.dtype
    of_ours, of_torch = ((one.float() - exact).abs().max() for one in (found, wanted))
    assert of_ours <= 1.5 * of_torch + 4e-3 * exact.abs().max()


def test_weights_that_change_between_calls():
    model, images = made("resnet", False)
    model.eval()
    x = images()
    with torch.no_grad():
        function = torch.compile(model, backend=sterna.torch.backend)
        for _ in range(3):
            torch.testing.assert_close(function(x), model(x), rtol=1e-4, atol=1e-5)
            for one in model.parameters():
                one.mul_(1.1)


@pytest.mark.parametrize("is_last", (False, True))
def test_convolutions_run_in_sterna(is_last):
    model, images = made("resnet", is_last)
    with torch.no_grad():
        found = sterna.torch.explain(model.eval(), images())
    assert found.share == 1.0, str(found)
