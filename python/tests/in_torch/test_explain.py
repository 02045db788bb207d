"""What explain says of models: where nodes run, why not in Sterna, FLOPs, breaks; as text and as a page."""

import html.parser

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F

import sterna.torch

pytestmark = pytest.mark.filterwarnings("ignore")


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x, breaks=False):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        if breaks:
            torch._dynamo.graph_break("the test wants one")
        place = torch.arange(x.shape[1])
        mask = (place[:, None] >= place) & (place[:, None] - place < 32)
        made = F.scaled_dot_product_attention(q, k, v, mask)
        return torch.special.erfinv(torch.tanh(self.out(made.transpose(1, 2).flatten(2))))


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(2, 256, 32)


def test_inference(x):
    with torch.no_grad():
        found = sterna.torch.explain(torch.nn.Sequential(Block(), Block()), x)
    (graph,) = found.graphs
    assert (graph.role, found.share, found.breaks) == ("inference", 1.0, {})
    # The products of a layer by their dims, and those of the two steps of attention.
    assert graph.flops == 2 * (2 * 512 * 32 * (96 + 32) + 2 * 2 * 2 * 4 * 256 * 256 * 8)
    assert graph.flops_in_sterna == graph.flops
    attention = [part for part in graph.partitions if any("scaled_dot_product" in op for op in part.ops)]
    assert len(attention) == 2
    assert all(part.skips_tiles and part.kinds.count("MatMul") >= 2 and part.plan for part in attention)
    assert [(one.op, one.count, one.reason) for one in graph.kept] == [
        ("erfinv", 2, "no row for aten.erfinv.default")
    ]


def test_gradients(x):
    model = Block()
    found = sterna.torch.explain(model, x)
    assert [graph.role for graph in found.graphs] == ["forward", "backward"]
    assert all(graph.flops > 0 for graph in found.graphs) and found.share == 1.0
    assert all(parameter.grad is None for parameter in model.parameters())
    inner = Block()
    found = sterna.torch.explain(lambda given: inner(given).sum(), x)
    assert [graph.role for graph in found.graphs] == ["forward", "backward"]


def test_breaks(x):
    with torch.no_grad():
        found = sterna.torch.explain(Block(), x, breaks=True)
    assert len(found.graphs) == 2 and sum(found.breaks.values()) == 1
    assert "the test wants one" in "".join(found.breaks)
    assert "1 graph break" in found.heading() and "graph break, 1 ×" in str(found)


def test_what_torch_keeps():
    with torch.no_grad():
        found = sterna.torch.explain(lambda x: torch.relu(x @ x), torch.ones(4, 4, device="meta"))
    (graph,) = found.graphs
    assert (found.share, graph.partitions) == (0.0, [])
    assert {(one.op, one.reason) for one in graph.kept} == {
        ("mm", "a tensor lies on a device"),
        ("relu", "a tensor lies on a device"),
    }
    found = sterna.torch.explain(lambda x: torch.fft.fft(x @ x).real, torch.ones(4, 4, dtype=torch.float64))
    assert found.share == 0.0
    assert found.graphs[0].kept[0].op == "mm" and found.graphs[0].kept[0].flops == 128


def test_nothing():
    found = sterna.torch.explain(lambda x: None, torch.ones(2))
    assert (found.graphs, found.share) == ([], 1.0)


def test_text(x):
    with torch.no_grad():
        text = str(sterna.torch.explain(torch.nn.Sequential(Block(), Block()), x)).splitlines()
    assert text[:2] == ["1 graph, 100.0% of FLOPs in Sterna", ""]
    assert text[2].startswith("graph 0, inference: ") and text[2].endswith("partitions, 100.0% of FLOPs in Sterna")
    assert any(line.startswith("  2 partitions (80.0%, skips tiles): ") and "scaled_dot" in line for line in text)
    assert text[-1] == "  in torch: 2 × erfinv: no row for aten.erfinv.default"


class Page(html.parser.HTMLParser):
    """Reads a page, checks that tags close in order, and that nothing comes from elsewhere."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        assert not {"src", "href"} & {name for name, _ in attributes}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_pages(x):
    with torch.no_grad():
        found = sterna.torch.explain(Block(), x, breaks=True)
    found.breaks["<b>&"] = 1
    page = Page(found.to_html())
    text = " ".join(page.text)
    assert "<b>&" in text and "skips tiles" in text and "erfinv" in text and "classes of tiles" in text
    Page(found._repr_html_())
