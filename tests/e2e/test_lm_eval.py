"""lm-evaluation-harness against the running service, and on the Hugging Face model."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install -e '.[lm-eval]'")
pytestmark = pytest.mark.slow

TEXTS = Path(__file__).parents[3] / "shared" / "data" / "instruct.jsonl"
ASKED, LENGTH = 12, 120
"""Questions, and characters of a text. Each question has three wrong answers."""


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of two tasks: which answer belongs to a question, and the perplexity of texts."""
    if not TEXTS.is_file():
        pytest.skip(f"{TEXTS} is not there")
    rows = [json.loads(line) for line in TEXTS.read_text().splitlines()[: 4 * ASKED]]
    answers = [row["response"][:LENGTH] for row in rows]
    questions = [
        {"question": row["prompt"][:LENGTH], "choices": answers[at::ASKED], "gold": 0}
        for at, row in enumerate(rows[:ASKED])
    ]
    texts = [{"text": answer} for answer in answers[:ASKED]]
    made = {
        "choice": {
            "output_type": "multiple_choice",
            "doc_to_text": "{{question}}\n",
            "doc_to_choice": "choices",
            "doc_to_target": "gold",
            "target_delimiter": "",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        },
        "text": {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
        },
    }
    for name, rows in (("choice", questions), ("text", texts)):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}}
        task = {"task": f"local_{name}", "test_split": "test"} | data | made[name]
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(task))
    return tmp_path


def test_the_figures_are_those_of_the_hugging_face_model(
    base, tiny_bundle, tasks, tmp_path, monkeypatch
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    model = tmp_path / "model"
    for part in ("target", "tokenizer"):
        shutil.copytree(tiny_bundle.part(part), model, dirs_exist_ok=True)

    def figures(kind: str, **arguments: object) -> dict[str, dict[str, float]]:
        found = simple_evaluate(
            model=kind,
            model_args=arguments,
            tasks=["local_choice", "local_text"],
            task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
            device="cpu",
            batch_size=1,
            bootstrap_iters=0,
        )
        return {
            task: {name: value for name, value in measured.items() if isinstance(value, float)}
            for task, measured in found["results"].items()
        }

    expected = figures("hf", pretrained=str(model), dtype="float32", max_length=256)
    served = figures(
        "local-completions",
        model="tiny",
        base_url=f"{base}/completions",
        tokenizer=str(model),
        num_concurrent=2,
        max_length=256,
    )
    assert served.keys() == expected.keys() == {"local_choice", "local_text"}
    for task, measured in expected.items():
        assert served[task] == pytest.approx(measured, rel=1e-4), task
