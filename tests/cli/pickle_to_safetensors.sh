#!/usr/bin/env bash
# Pickles of PyTorch become safetensors; what is none, or holds code, is refused and leaves nothing.
# $1 is a Python with torch and safetensors, the working directory an empty scratch.
set -euo pipefail
python=$1
convert="$(dirname "$0")/../../launch/pickle_to_safetensors"

fail() { echo "$*" >&2; exit 1; }
refuse() {  # TEXT ARGUMENTS: the conversion fails with the text
  local text=$1
  shift
  "$python" "$convert" "$@" 2>errors && fail "not refused: $*"
  grep -qF -- "$text" errors || fail "expected '$text': $(cat errors)"
}

"$python" - <<'END'
import collections, torch
weights = {"module._orig_mod.module.a": torch.ones(2, 3).t(), "b": torch.zeros(4), "epoch": 3}
torch.save(weights, "plain.pth")
torch.save({"rng": torch.zeros(5), "state_dict": {"model": weights}}, "nested.pth")
torch.save({"model": weights, "model_ema": weights, "epoch": 1}, "two.pth")
torch.save([1, 2], "list.pth")
class Code:
    def __reduce__(self):
        return print, ("run",)
torch.save({"a": Code()}, "code.pth")
END
for name in plain nested; do
  "$python" "$convert" $name.pth $name.safetensors 2>/dev/null
  "$python" -c "
from safetensors.torch import load_file
shapes = {n: list(t.shape) for n, t in load_file('$name.safetensors').items()}
assert shapes == {'a': [3, 2], 'b': [4]}, shapes"
done
"$python" "$convert" two.pth two.safetensors --key model_ema 2>/dev/null
before=$(ls -A)
refuse 'is there already' plain.pth plain.safetensors
refuse 'model or model_ema' two.pth other
refuse "'epoch' is a int" two.pth other --key epoch
refuse "there is no 'none'" two.pth other --key none
refuse 'holds a list' list.pth other
refuse 'is no pickle of tensors' code.pth other
refuse 'No such file' gone.pth other
refuse 'other/x' plain.pth other/x
rm errors
[ "$(ls -A)" = "$before" ] || fail "a refusal left something: $(ls -A)"
mkdir fake
echo '__version__ = "2.9.1"' >fake/torch.py
mkdir fake/safetensors
: >fake/safetensors/__init__.py
echo 'save_file = None' >fake/safetensors/torch.py
PYTHONPATH=fake refuse 'install 2.10 or newer' plain.pth other
