"""The model card as Markdown, drawn from its figures so that the two cannot disagree."""

from typing import Any

BARS = {
    "loops at temperature 0": ("0.0", "loop_share", 0.20, "at most"),
    "loops at temperature 0.8": ("0.8", "loop_share", 0.05, "at most"),
    "stops by itself within 256 tokens, temperature 0": ("0.0", "stop_share", 0.80, "at least"),
    "draft MAT at 4 draft tokens, temperature 0": ("0.0", "mat", 2.6, "at least"),
}

HEAD = """# The demo model family

A Llama target ({target}), a draft model ({draft}), heads (Medusa's, EAGLE's, EAGLE-3's) and their
tokenizer (byte-level BPE, 4,096 tokens), trained from nothing on a CPU with `specadapt train`. It
exists so that every part of SpecAdapt can be run, measured and tested without a download; it is
far too small to be relied on for facts.

Every figure below comes from `specadapt train card` and `train measure-heads` on held rows ({rows}
rows, up to {per_domain} a domain, references of 8 to 200 tokens, averages weigh domains equally).
Tokens seen by the target: {tokens:,}.

## How it was made

```
{commands}
```

Target: next-token cross-entropy, prompts weighing a quarter of answers, Muon for matrices and
AdamW for the rest, learning rate constant and then linear to zero. Draft: cross-entropy on the
corpus, then distilled (KL from the target's distribution) in two runs on answers that the target
itself wrote at temperatures 0 and 0.8 and on the corpus's: seven minutes, and then the half hour
above, on 2.8 M tokens of answers. Heads: the target's distribution, on 8,000 answers that it wrote
and on the corpus's, while the target stays as it is.

The target has seen a third of the 40 M tokens that it was meant to see, which take two cores three
to five hours. Training goes on from these weights with `specadapt train target --start
bundles/demo/target --work runs/target-2`; the draft and all that was measured are made again then.

## Data and licences

| source | licence | rows it gives |
|---|---|---|
| GSM8K, GPTeacher, BIG-Bench Hard, OctoPack | MIT | math, tool_use, logic, edit, others |
| Natural Questions (open), LLaMA-Factory, self-instruct | Apache-2.0 | qa, general, edit |
| MBPP, MGSM (google-research) | CC-BY-4.0, attributed here | code, edit, translation |
| Schema-Guided Dialogue (Google Research) | CC-BY-SA-4.0, attributed here | dialogue |
| reasoning-gym tasks, generated | Apache-2.0 (the generators) | math, logic |
| own generators (`training/demo_corpus`) | Apache-2.0 | all domains but dialogue |
| Python standard library and permissively licensed packages | PSF, MIT, BSD, Apache-2.0 | code |

Rows are split by the text underneath before
anything is fitted; held rows are never trained on.
"""


def render(card: dict[str, Any], commands: list[str]) -> str:
    """The README.md of a bundle from what `measure_family` returned."""
    shapes = card["shapes"]
    parts = [
        HEAD.format(
            target=_shape(shapes["target"]),
            draft=_shape(shapes["draft"]),
            rows=card["rows"],
            per_domain=card["per_domain"],
            tokens=card["tokens_seen"],
            commands="\n".join(commands),
        ),
        "## Where it stands\n",
        _bars(card),
        "## Held loss, loops, stopping and draft acceptance by domain\n",
        "MAT: tokens per target step, bonus included, 4 draft tokens. Alpha: the chance that a "
        "draft token is accepted, given that all before it were.\n",
        _domains(card),
        "## Draft before and after its last distillation\n",
        _drafts(card),
        "## Heads: MAT at temperature 0, each method as it is served\n",
        _heads(card),
        "## Examples at temperature 0, as they came\n",
        _examples(card["examples"]),
    ]
    return "\n".join(parts)


def _shape(shape: dict[str, int]) -> str:
    return (
        f"{shape['layers']} layers of {shape['hidden']}, {shape['heads']} heads, "
        f"{shape['kv_heads']} KV head, {shape['parameters'] / 1e6:.1f} M parameters"
    )


def _bars(card: dict[str, Any]) -> str:
    lines = ["| what | bar | measured | |", "|---|---|---|---|"]
    for what, (temperature, key, bar, side) in BARS.items():
        value = card["temperatures"][temperature][key]
        met = value <= bar if side == "at most" else value >= bar
        lines.append(f"| {what} | {side} {bar:g} | {value:.3f} | {'met' if met else 'not met'} |")
    return "\n".join(lines) + "\n"


def _domains(card: dict[str, Any]) -> str:
    cold, warm, hot = (card["temperatures"][t]["by_domain"] for t in ("0.0", "0.8", "1.0"))
    lines = [
        "| domain | loss | loops T=0 | loops T=0.8 | stops T=0 | stops T=0.8 "
        "| MAT T=0 | alpha T=0 | MAT T=1 | alpha T=1 |",
        "|---|" + "---|" * 9,
    ]
    for domain, figures in cold.items():
        cells = [
            card["held_loss"].get(domain),
            figures["loop_share"],
            warm[domain]["loop_share"],
            figures["stop_share"],
            warm[domain]["stop_share"],
            figures["mat"],
            figures["alpha"],
            hot[domain]["mat"],
            hot[domain]["alpha"],
        ]
        lines.append(f"| {domain} | " + " | ".join(_number(c) for c in cells) + " |")
    return "\n".join(lines) + "\n"


def _drafts(card: dict[str, Any]) -> str:
    before = card.get("before_distillation")
    if before is None:
        return "Not measured.\n"
    after = card["temperatures"]["0.0"]["by_domain"]
    lines = ["| domain | MAT before | MAT after |", "|---|---|---|"]
    for domain, mat in before["mat_by_domain"].items():
        lines.append(f"| {domain} | {mat:.2f} | {after[domain]['mat']:.2f} |")
    mean = card["temperatures"]["0.0"]["mat"]
    lines.append(f"| mean | {before['mat']:.2f} | {mean:.2f} |")
    return "\n".join(lines) + "\n"


def _heads(card: dict[str, Any]) -> str:
    heads = card.get("heads")
    if heads is None:
        return "Not measured.\n"
    lines = ["| domain | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for domain in next(iter(heads.values()))["mat_by_domain"]:
        cells = [f"{own['mat_by_domain'][domain]:.2f}" for own in heads.values()]
        lines.append(f"| {domain} | " + " | ".join(cells) + " |")
    lines.append("| mean | " + " | ".join(f"{own['mat']:.2f}" for own in heads.values()) + " |")
    return "\n".join(lines) + "\n"


def _examples(examples: list[dict[str, str]]) -> str:
    blocks = []
    for e in examples:
        blocks.append(f"### {e['domain']}\n")
        for label in ("prompt", "answer", "reference"):
            blocks.append(f"{label.capitalize()}:\n\n{_quoted(e[label])}\n")
    return "\n".join(blocks)


def _quoted(text: str) -> str:
    fence = "~~~~"
    return f"{fence}\n{text.strip() or '(empty)'}\n{fence}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
