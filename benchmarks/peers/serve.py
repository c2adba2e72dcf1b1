"""How the peers talk to the program that starts them. Ends the peer with code 69 without PyTorch."""
import json
import math
import sys
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    sys.exit(69)

# As Shoal computes on GPUs: float32 means float32, also in convolutions and in sums of bfloat16.
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def synchronise(device):
    """Waits until the device has done what it was given."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def read_tensors(file):
    """Those that the program has written for its peer, by name."""
    dtypes = {"Float": torch.float32, "Long": torch.int64}
    with open(file["path"], "rb") as stream:
        return {name: torch.frombuffer(bytearray(stream.read(math.prod(sizes) * dtypes[dtype].itemsize)),
                                       dtype=dtypes[dtype]).view(sizes)
                for name, sizes, dtype in file["tensors"]}


def serve(answer):
    """Writes `ready`, then answers each line of JSON with one; sets the number of threads itself."""
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if isinstance(question, dict) and "threads" in question:
            torch.set_num_threads(question["threads"])
            reply = question["threads"]
        else:
            reply = answer(question)
        print(json.dumps(reply), flush=True)
