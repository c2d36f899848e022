"""Models that no package at hand brings, as factories for ``--torch``; torch is imported when one is called.

GNMT-4: Wu et al. 2016 with four layers a side (an encoder whose first layer reads both ways, attention, a decoder of
LSTMs that reads the context in every layer). DLRM: Naumov et al. 2019. NCF: He et al. 2017.
"""


def gnmt4(*, vocabulary: int = 32_317, width: int = 1024):
    """A sequence-to-sequence LSTM with additive attention; takes source and target tokens."""
    from torch import cat, nn, tanh

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
            self.score = nn.Linear(width, 1, bias=False)

        def forward(self, query, keys):
            scores = self.score(tanh(self.query(query).unsqueeze(2) + self.key(keys).unsqueeze(1))).squeeze(3)
            return scores.softmax(dim=-1) @ keys

    class Gnmt(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
            self.both_ways = nn.LSTM(width, width, batch_first=True, bidirectional=True)
            self.encoder = nn.ModuleList(
                [nn.LSTM(2 * width if layer == 0 else width, width, batch_first=True) for layer in range(3)]
            )
            self.attention = Attention()
            self.first = nn.LSTM(width, width, batch_first=True)
            self.decoder = nn.ModuleList([nn.LSTM(2 * width, width, batch_first=True) for _ in range(3)])
            self.classifier = nn.Linear(width, vocabulary)

        def forward(self, source, target):
            memory = self.both_ways(self.source(source))[0]
            for layer, lstm in enumerate(self.encoder):
                given = lstm(memory)[0]
                memory = given + memory if layer else given
            state = self.first(self.target(target))[0]
            context = self.attention(state, memory)
            for layer, lstm in enumerate(self.decoder):
                given = lstm(cat([state, context], dim=-1))[0]
                state = given + state if layer else given
            return self.classifier(state)

    return Gnmt()


def small_gnmt():
    """The same with few words and narrow."""
    return gnmt4(vocabulary=100, width=16)


def dlrm(*, rows: int = 1_000_000, num_tables: int = 26, width: int = 128):
    """Dense features and one bag of indices a table; takes ``[b, 13]`` and ``[b, 26]``; gives one score a sample."""
    import torch
    from torch import nn

    class Dlrm(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(num_tables)])
            self.bottom = nn.Sequential(
                nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()
            )
            pairs = (num_tables + 1) * num_tables // 2
            self.top = nn.Sequential(
                nn.Linear(width + pairs, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)
            )
            self.places = [(i, j) for i in range(num_tables + 1) for j in range(i)]

        def forward(self, dense, indices):
            low = self.bottom(dense)
            bags = [table(indices[:, at : at + 1]) for at, table in enumerate(self.tables)]
            rows = torch.stack([low, *bags], dim=1)
            products = torch.bmm(rows, rows.transpose(1, 2))
            left, right = torch.tensor(self.places, device=products.device).unbind(1)
            return self.top(torch.cat([low, products[:, left, right]], dim=1))

    return Dlrm()


def small_dlrm():
    """The same with few rows and four tables."""
    return dlrm(rows=50, num_tables=4, width=16)


def ncf(*, users: int = 138_493, items: int = 26_744, width: int = 64):
    """Products and a perceptron of a user's and an item's factors; takes two columns of indices."""
    import torch
    from torch import nn

    class Ncf(nn.Module):
        def __init__(self):
            super().__init__()
            self.user_product, self.item_product = nn.Embedding(users, width), nn.Embedding(items, width)
            self.user, self.item = nn.Embedding(users, 2 * width), nn.Embedding(items, 2 * width)
            self.perceptron = nn.Sequential(
                nn.Linear(4 * width, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, width), nn.ReLU()
            )
            self.score = nn.Linear(2 * width, 1)

        def forward(self, user, item):
            product = self.user_product(user) * self.item_product(item)
            deep = self.perceptron(torch.cat([self.user(user), self.item(item)], dim=-1))
            return self.score(torch.cat([product, deep], dim=-1))

    return Ncf()


def small_cnn():
    """Two residual blocks, one of them grouped and strided, with batch norms, pooling and ten classes."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width, wider, stride, groups):
            super().__init__()
            self.first = nn.Sequential(
                nn.Conv2d(width, wider, 3, stride, 1, groups=groups, bias=False), nn.BatchNorm2d(wider), nn.ReLU(True)
            )
            self.second = nn.Sequential(nn.Conv2d(wider, wider, 3, 1, 1, bias=False), nn.BatchNorm2d(wider))
            self.short = nn.Conv2d(width, wider, 1, stride, bias=False)

        def forward(self, image):
            return (self.second(self.first(image)) + self.short(image)).relu_()

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.MaxPool2d(2), Block(16, 16, 1, 1), Block(16, 32, 2, 4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def layers_beside(what="", *, num_layers=8):
    """Layers alike in a list, and one thing that the loop over them decides by their number.

    Args:
        what: "product" runs one more after every fourth, "tokens" drops every second after one, "wiring" gives one what
            came before its predecessor, "twice" has each layer twice in the list; empty for a plain loop.
        num_layers: of the list.
    """
    from torch import nn

    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            own = [nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU()) for _ in range(num_layers)]
            self.layers = nn.ModuleList([each for each in own for _ in range(2)] if what == "twice" else own)
            self.extra, self.head = nn.Linear(16, 16), nn.Linear(16, 8)

        def forward(self, hidden):
            before = hidden
            for number, layer in enumerate(self.layers):
                given = before if (what, number) == ("wiring", 5) else hidden
                before, hidden = hidden, layer(given)
                if what == "product" and number % 4 == 3:
                    hidden = self.extra(hidden)
                if (what, number) == ("tokens", 5):
                    hidden = hidden[:, ::2]
            return self.head(hidden)

    return Layers()


def lists_within_lists(*, num_blocks=6):
    """Blocks alike, each with parts alike that no product stands between, whose code asks what values there are."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(5)])

        def forward(self, hidden):
            for part in self.parts:
                hidden = hidden + part(hidden)
            return hidden.clamp(-1, 1) if torch.isinf(hidden).any() else hidden

    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block() for _ in range(num_blocks)])
            # torch.FloatTensor asks for no device.
            self.head = nn.Parameter(torch.FloatTensor(16, 8))

        def forward(self, hidden):
            for block in self.blocks:
                hidden = block(hidden)
            return hidden @ self.head

    return Blocks()
