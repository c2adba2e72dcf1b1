#!/usr/bin/env bash
# check --memory estimates a rank's memory within 15 % of its peak, for models of six kinds.
source "$(dirname "$0")/common.sh"

# Runs the program and appends the most memory that it held, in KiB.
cat >measured <<EOF
#!/usr/bin/env python3
import os, resource, subprocess, sys
code = subprocess.call(["$program"] + sys.argv[1:])
open("$PWD/peaks", "a").write("%d\n" % resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
EOF
chmod +x measured

# compare NAME RANKS RECIPE [key=value ...]
compare() {
  local name=$1 count=$2
  shift 2
  "$program" check "$@" --memory --json --world "$count" >estimate.json
  rm -f peaks
  local train=(train "$@" "run.name=$name" run.on_existing=overwrite train.log_every=2step)
  if [ "$count" -eq 1 ]; then
    ./measured "${train[@]}" >"$name.txt" 2>&1 || fail "$name: $(cat "$name.txt")"
  else
    SHOAL_PROGRAM=$PWD/measured "$root/launch/run" -n "$count" "${train[@]}" >"$name.txt" 2>&1 ||
      fail "$name: $(cat "$name.txt")"
  fi
  python3 - "$name" <<'EOF' || fail "$name: the estimate is off"
import json, sys
checked = json.load(open("estimate.json"))
estimate = checked["memory_bytes"]
assert "not_measured" not in checked, checked["not_measured"]
# Resident memory counts the pages of mapped files, which are in no sum.
estimate["sum"] += checked["page_cache_bytes"]
peak = max(int(line) for line in open("peaks")) * 1024
off = estimate["sum"] / peak - 1
print("%-12s estimated %7.1f MiB, measured %7.1f MiB, %+5.1f %%" %
      (sys.argv[1], estimate["sum"] / 2**20, peak / 2**20, 100 * off))
if abs(off) > 0.15:
    print("  " + ", ".join("%s %.1f" % (k, v / 2**20) for k, v in estimate.items()))
    sys.exit(1)
EOF
}

shapes="{source: shapes, image_size: 32, classes: 10, train: {samples: 2048}, valid: {samples: 64}}"
plain="{source: shapes, image_size: 32, classes: 10, train: {samples: 2048}, valid: {samples: 64}, \
normalise: {mean: [0, 0, 0], std: [1, 1, 1]}}"
short=(train.duration=4step evaluate.every=never run.device=cpu)
python3 -c 'print("It was the best of times, it was the worst of times. " * 4000)' >train.txt
head -c 20000 train.txt >valid.txt
echo "Once more." >>valid.txt
text=(data.path=. "data.train.files=[train.txt]" "data.valid.files=[valid.txt]")

compare sparse_mlp 2 "$root/configs/quickstart.yaml" "${short[@]}" train.batch=128
compare vit 1 "$root/configs/vit/tiny_cifar10_moe.yaml" "data=$shapes" "${short[@]}" \
  parallel.expert_ranks=1
compare gpt2 1 "$root/configs/gpt2/tiny_wikitext2_bytes_moe.yaml" "${text[@]}" "${short[@]}" \
  parallel.expert_ranks=1
compare hspmn 1 "$root/configs/hspmn/tiny_wikitext2_bytes.yaml" "${text[@]}" "${short[@]}"
compare denoise 1 "$root/configs/denoise/cifar10.yaml" "data=$plain" "${short[@]}"
compare padst 1 "$root/configs/padst/tiny_cifar10_vit_rigl.yaml" "data=$shapes" "${short[@]}" \
  sparsity.permutation.name=learned
