#!/usr/bin/env python3
"""training_losses.py TESSERA [--only WORD] [--steps N]: losses of training against TRL, PEFT and PyTorch.

Random models of two families are trained on the same few rows, 30 steps of AdamW with clipping, by `tessera train` and by TRL's
SFTTrainer, which is left as it is: completions alone, assistants' turns alone, whole texts, packed rows; all parameters, and
adapters that PEFT made and both sides load (LoRA, rsLoRA, DoRA, LoRA+, PiSSA, patterns). TRL runs in f32 and in f64. The largest
difference of a step's loss from f64 must be at most 1e-4, or twice PyTorch's own in f32 where that is more. Each step is all
rows, so that their order means nothing; packed, they are one row here, whose loss is that of the same rows side by side, as no
document sees another. Exits with 1 where a loss differs. Needs torch, transformers, trl, peft and datasets (PyPI); never part of
`./dev test`."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import datasets  # noqa: E402: after the environment
import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402
from peft.optimizers import create_loraplus_optimizer  # noqa: E402
from training_data import make_tokenizer, message  # noqa: E402

END = "<|im_end|>"
# The learnt part of an answer ends with its end of turn, in TRL as here.
TEMPLATE = ("{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
            "{%- if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
            "{%- else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
            "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
SHAPE = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
         "max_position_embeddings": 256, "initializer_range": 0.1, "head_dim": 16}
SEQ, RATIO = 96, 16.0
CHATS = [[message("user", question), message("assistant", answer)] + more for question, answer, more in (
    ("What color is the sky?", "It is blue.", []),
    ("Why is grass green?", "Nobody said why.", [message("user", "Why?"), message("assistant", "The answer is green.")]),
    ("Is it green or blue?", "Where grass grows, green.", []),
    ("What grows?", "Grass grows where the sky is blue.", []))]
ROWS = {
    "text": [{"text": text} for text in ("The sky is blue.", "Grass grows where nobody said why.", "It is green or blue, and the answer is it.")],
    "completion": [{"prompt": "The sky is", "completion": " blue and green."}, {"prompt": "Grass", "completion": " grows where it is."},
                   {"prompt": "What color is the answer? It", "completion": " is blue."}],
    "assistant": [{"messages": chat} for chat in CHATS],
}
ROWS["packed"] = ROWS["text"]
# what of LoraConfig
ADAPTERS = {
    "LoRA": {"target_modules": "all-linear", "lora_alpha": 16},
    "rsLoRA": {"target_modules": "all-linear", "lora_alpha": 8, "use_rslora": True},
    "DoRA": {"target_modules": "all-linear", "lora_alpha": 16, "use_dora": True},
    "LoRA+": {"target_modules": "all-linear", "lora_alpha": 8},
    "PiSSA": {"target_modules": "all-linear", "lora_alpha": 8, "init_lora_weights": "pissa"},
    "patterns": {"target_modules": ["q_proj", "v_proj", "down_proj"], "rank_pattern": {"down_proj": 4}, "lora_alpha": 16,
                 "alpha_pattern": {"layers.1.self_attn.q_proj": 4}, "modules_to_save": ["lm_head", "embed_tokens"]},
}
CASES = [("llama", kind, "full") for kind in ROWS] + [("llama", "completion", name) for name in ADAPTERS]
CASES += [("qwen3", "assistant", name) for name in ("full", "LoRA", "DoRA", "PiSSA")] + [("qwen3", "packed", "LoRA")]


def rate_of(method):
    return 1e-3 if method in ("full", "LoRA+") else 4e-3


def decay_of(method):
    """transformers' Trainer decays magnitudes; here no vector is decayed."""
    return 0.0 if method == "DoRA" else 0.01


class Reference(trl.SFTTrainer):
    """Notes each step's loss with all its digits."""

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.__dict__.setdefault("losses", []).append(float(loss))
        return loss


class Run:
    def __init__(self, folder, family, kind, method, steps):
        self.folder, self.kind, self.method, self.steps = pathlib.Path(folder), kind, method, steps
        self.rows = ROWS[kind]
        self.base, self.adapter = self.folder / "base", self.folder / "adapter"
        self.tokenizer = make_tokenizer(self.base, END)
        self.tokenizer.chat_template = TEMPLATE
        torch.manual_seed(3)
        config = transformers.AutoConfig.for_model(family, vocab_size=len(self.tokenizer), eos_token_id=self.tokenizer.eos_token_id,
                                                   bos_token_id=None, pad_token_id=self.tokenizer.pad_token_id, **SHAPE)
        transformers.AutoModelForCausalLM.from_config(config).float().save_pretrained(self.base)
        if method != "full":
            torch.manual_seed(5)
            model = peft.get_peft_model(self.opened_base(), peft.LoraConfig(task_type="CAUSAL_LM", r=8, **ADAPTERS[method]))
            model.save_pretrained(self.adapter)

    def opened_base(self, dtype=torch.float32):
        return transformers.AutoModelForCausalLM.from_pretrained(self.base, attn_implementation="eager", dtype=dtype)

    def theirs(self, dtype):
        model = self.opened_base()
        if self.method != "full":
            model = peft.PeftModel.from_pretrained(model, self.adapter, is_trainable=True)
        model = model.to(dtype)
        rate, decay = rate_of(self.method), decay_of(self.method)
        optimizer = None
        if self.method == "LoRA+":
            optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=rate, loraplus_lr_ratio=RATIO, loraplus_weight_decay=decay,
                                                  betas=(0.9, 0.999), eps=1e-8)
        settings = trl.SFTConfig(
            output_dir=str(self.folder / "run"), max_steps=self.steps, per_device_train_batch_size=len(self.rows), learning_rate=rate,
            lr_scheduler_type="constant", warmup_steps=0, weight_decay=decay, max_grad_norm=1.0, optim="adamw_torch", bf16=False,
            gradient_checkpointing=False, use_cpu=True, report_to="none", save_strategy="no", logging_strategy="no", max_length=SEQ,
            disable_tqdm=True, dataloader_pin_memory=False,
            **({"completion_only_loss": True} if self.kind == "completion" else {}),
            **({"assistant_only_loss": True} if self.kind == "assistant" else {}))
        trainer = Reference(model=model, args=settings, train_dataset=datasets.Dataset.from_list(self.rows),
                            processing_class=self.tokenizer, **({"optimizers": (optimizer, None)} if optimizer else {}))
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        return trainer.losses

    def ours(self, tessera):
        data, template = self.folder / "rows.jsonl", self.folder / "template.jinja"
        data.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        template.write_text(TEMPLATE)
        packed = self.kind == "packed"
        words = [tessera, "train", self.base, "--data", data, "--template", template, "--seq", SEQ * (2 if packed else 1), "--batch",
                 1 if packed else len(self.rows), "--steps", self.steps, "--lr", rate_of(self.method), "--warmup", 0, "--weight-decay",
                 decay_of(self.method), "--mask", self.kind if self.kind in ("completion", "assistant") else "all", "--eval-fraction", 0,
                 "--json", "--quiet"]
        words += ["--packing", "bfd"] if packed else []
        words += ["--adapter", self.adapter] if self.method != "full" else []
        words += ["--lora-plus-ratio", RATIO] if self.method == "LoRA+" else []
        run = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if run.returncode != 0:
            raise RuntimeError(run.stderr.strip())
        return json.loads(run.stdout)["losses"]


def largest(found, wanted):
    return max(abs(a - b) for a, b in zip(found, wanted, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tessera")
    parser.add_argument("--only", default="", help="cases with this word in their name")
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, trl {trl.__version__}, peft {peft.__version__}")
    print(f"{'model':8}{'rows':12}{'method':10}{'first':>8}{'last':>8}{'ours - f64':>13}{'torch f32 - f64':>17}", flush=True)
    failed = 0
    for family, kind, method in CASES:
        if args.only and args.only not in (family, kind, method):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                run = Run(folder, family, kind, method, args.steps)
                exact, single, ours = run.theirs(torch.float64), run.theirs(torch.float32), run.ours(args.tessera)
            except Exception as error:  # of any of three projects: the next case says its own
                print(f"{family:8}{kind:12}{method:10}{type(error).__name__}: {error}"[:400], flush=True)
                failed += 1
                continue
        own, theirs = largest(ours, exact), largest(single, exact)
        holds = own <= max(1e-4, 2 * theirs) and exact[-1] < exact[0]
        failed += not holds
        print(f"{family:8}{kind:12}{method:10}{exact[0]:8.4f}{exact[-1]:8.4f}{own:13.1e}{theirs:17.1e}{'' if holds else '  FAILED'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
