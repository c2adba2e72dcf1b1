#!/usr/bin/env bash
# The importer for Weights & Biases, into modules that stand in for wandb and yaml: recipe, steps in order,
# every number of metrics.jsonl, the summary; what is missing is named.
source "$(dirname "$0")/common.sh"
importer=$root/launch/metrics_to_wandb

mkdir -p stand_in/wandb
cat >stand_in/wandb/__init__.py <<'END'
import json
calls = open("calls.jsonl", "w")
def note(**call):
    calls.write(json.dumps(call) + "\n")
class Summary:
    def update(self, values):
        note(call="summary", values=values)
class Run:
    summary = Summary()
    def log(self, values, step):
        note(call="log", values=values, step=step)
    def finish(self):
        note(call="finish")
        calls.close()
def init(**arguments):
    note(call="init", **arguments)
    return Run()
END
# wandb brings PyYAML along; here it hands on the text.
cat >stand_in/yaml.py <<'END'
def safe_load(file):
    return {"text": file.read()}
END

expect 0 "$program" train "$tiny" run.root=. run.name=run train.duration=6step train.log_every=2step \
  evaluate.every=4step parallel.expert_ranks=1
printf '{"step":7,"lo' >>run/metrics.jsonl  # being written
PYTHONPATH=stand_in expect 0 "$importer" run --project trials
python3 - <<'END'
import json
calls = [json.loads(line) for line in open("calls.jsonl")]
records = [json.loads(line) for line in open("run/metrics.jsonl") if line.endswith("\n")]
first, logs, summary, last = calls[0], calls[1:-2], calls[-2], calls[-1]
assert (first["call"], first["project"], first["name"]) == ("init", "trials", "run"), first
assert first["config"] == {"text": open("run/resolved.yaml").read()}, first
assert [call["step"] for call in logs] == [record["step"] for record in records]
assert {4, 6} == {r["step"] for r in records if "event" in r}, records
for call, record in zip(logs, records):
    group = "evaluate/" if "event" in record else "train/"
    wanted = {group + key: value for key, value in record.items()
              if key != "step" and isinstance(value, (int, float))}
    assert len(wanted) >= 4 and call["values"] == wanted, (call, wanted)
assert summary["values"]["steps"] == 6 and last == {"call": "finish"}, calls[-2:]
END

PYTHONPATH=stand_in expect 1 "$importer" absent
grep -q "metrics_to_wandb: .*absent/metrics.jsonl" output || fail "not named: $(cat output)"
PYTHONPATH=stand_in expect 0 "$importer" run --name other
grep -q '"name": "other"' calls.jsonl || fail "--name: $(head -n 1 calls.jsonl)"
