"""What is measured: at full size on a GPU; tiny, so that an emulator runs every line of this, with TSR_GPU_SMALL=1."""
from dataclasses import dataclass


@dataclass(frozen=True)
class TrainedModel:
    family: str
    shape: dict
    batch: int
    seq: int
    steps: int  # a round
    mfu: float  # wanted

    def description(self):
        return self.family + ":" + ",".join(f"{key}={value}" for key, value in self.shape.items())


@dataclass(frozen=True)
class DecodedModel:
    name: str
    shape: dict
    prompt: int
    tokens: int
    limit: int  # seconds a run

    def description(self):
        return "llama:" + ",".join(f"{key}={value}" for key, value in self.shape.items())


@dataclass(frozen=True)
class Sizes:
    small: bool
    gpt2: TrainedModel
    llama: TrainedModel
    decoded: tuple
    text_model: str  # learns the documentation's text, byte by byte
    text_steps: int
    text_batch: int
    text_seq: int


LLAMA_1B5 = dict(L=28, C=2048, H=16, KV=8, F=5632, V=32000, T=2048)
LLAMA_7B = dict(L=32, C=4096, H=32, KV=32, F=11008, V=32000, T=2048)

FULL = Sizes(
    small=False,
    gpt2=TrainedModel("gpt2", dict(L=12, C=768, H=12, V=50257, T=1024), batch=32, seq=1024, steps=20, mfu=0.50),
    llama=TrainedModel("llama", LLAMA_1B5, batch=4, seq=2048, steps=12, mfu=0.55),
    decoded=(DecodedModel("1.5B", LLAMA_1B5, prompt=1024, tokens=128, limit=18),
             DecodedModel("7B", LLAMA_7B, prompt=1024, tokens=96, limit=30)),
    text_model="llama:L=4,C=256,H=4,KV=4,F=704,V=256,T=256", text_steps=200, text_batch=16, text_seq=256)

_TINY = dict(L=2, C=64, H=2, KV=1, F=96, V=256, T=64)
SMALL = Sizes(
    small=True,
    gpt2=TrainedModel("gpt2", dict(L=2, C=64, H=2, V=256, T=64), batch=2, seq=32, steps=2, mfu=0.50),
    llama=TrainedModel("llama", _TINY, batch=2, seq=32, steps=2, mfu=0.55),
    decoded=(DecodedModel("1.5B", _TINY, prompt=20, tokens=6, limit=60),
             DecodedModel("7B", _TINY, prompt=20, tokens=6, limit=60)),
    text_model="llama:L=1,C=32,H=2,KV=1,F=64,V=256,T=32", text_steps=4, text_batch=2, text_seq=16)
