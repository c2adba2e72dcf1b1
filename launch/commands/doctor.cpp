#include "launch/commands/doctor.h"

#include <ATen/ops/equal.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "launch/job/failure.h"
#include "launch/job/rank_facts.h"
#include "launch/report/json_text.h"
#include "runtime/base/build_info.h"
#include "runtime/base/text.h"
#include "runtime/device/device.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using SortedJson = nlohmann::json;
using Verdict = Finding::Verdict;

constexpr std::array kVerdictNames = {"ok", "warn", "fail"};

SortedJson to_value(const Finding& finding) {
  return {{"host", finding.host},
          {"name", finding.name},
          {"verdict", kVerdictNames[static_cast<size_t>(finding.verdict)]},
          {"text", finding.text},
          {"fix", finding.fix},
          {"code", static_cast<int>(finding.code)}};
}

Finding from_value(const SortedJson& value) {
  Finding finding;
  finding.host = value.at("host");
  finding.name = value.at("name");
  finding.text = value.at("text");
  finding.fix = value.at("fix");
  finding.code = static_cast<ExitCode>(value.at("code").get<int>());
  const std::string verdict = value.at("verdict");
  const auto* name = std::find(kVerdictNames.begin(), kVerdictNames.end(), verdict);
  finding.verdict = static_cast<Verdict>(name - kVerdictNames.begin());
  return finding;
}

/// Model names of the GPUs that the driver knows.
std::vector<std::string> gpu_models(const MachinePlaces& places) {
  std::vector<std::string> models;
  std::error_code ignored;
  for (fs::directory_iterator gpu(places.proc + "/driver/nvidia/gpus", ignored), end; gpu != end;
       gpu.increment(ignored)) {
    std::ifstream information(gpu->path() / "information");
    std::string model = "unknown model";
    std::getline(information, model);
    const size_t begin = model.find_first_not_of(" \t", model.find(':') + 1);
    models.push_back(begin == std::string::npos ? model : model.substr(begin));
  }
  // Containers may show a GPU's device file without the driver's folder.
  if (models.empty() && fs::exists(places.dev + "/nvidia0")) models.push_back("unnamed GPU");
  return models;
}

Finding plugin(const MachinePlaces& places, bool has_gpu) {
  const std::string path = places.plugin_path.empty() ? cuda_plugin_path() : places.plugin_path;
  Finding finding{.name = "cuda_plugin", .verdict = has_gpu ? Verdict::kFail : Verdict::kOk};
  finding.code = has_gpu ? ExitCode::kTopology : ExitCode::kOk;
  if (!fs::exists(path)) {
    finding.text = "not built";
    finding.fix = has_gpu ? "install the CUDA 13.0 toolkit, run launch/setup and build again" : "";
    return finding;
  }
  try {
    load_cuda_plugin(path);
    finding.text = "loads, built with CUDA " + build_info().cuda_toolkit;
    finding.verdict = Verdict::kOk;
    finding.code = ExitCode::kOk;
  } catch (const Error& error) {
    finding.text = error.what();
    finding.fix = error.hint();
    if (!has_gpu) finding.verdict = Verdict::kWarn;
  }
  return finding;
}

Finding nccl(bool has_gpu) {
  Finding finding{.name = "nccl"};
  // Never closed: the plug-in may use it.
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    finding.text = "not found";
    if (has_gpu) {
      finding.verdict = Verdict::kWarn;
      finding.fix = "run launch/setup; without it a job uses one GPU";
    }
    return finding;
  }
  int version = 0;
  auto* get_version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  if (get_version != nullptr) get_version(&version);
  finding.text = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return finding;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Sends `bytes` of this rank's pattern to the next rank; true if the previous one's arrive.
bool pass_on(Communicator& world, int64_t bytes) {
  const int64_t size = world.size();
  const int64_t previous = (world.rank() + size - 1) % size;
  RowCounts send(static_cast<size_t>(size)), receive(static_cast<size_t>(size));
  send[static_cast<size_t>((world.rank() + 1) % size)] = bytes;
  receive[static_cast<size_t>(previous)] = bytes;
  const auto pattern_of = [&](int64_t rank) {
    return torch::arange(bytes, torch::kInt64).add_(rank * 31).remainder_(251).to(torch::kUInt8);
  };
  const torch::Tensor in = pattern_of(world.rank());
  torch::Tensor out = torch::zeros({bytes}, torch::kUInt8);
  world.start_all_to_all(in, send, out, receive).wait();
  return at::equal(out, pattern_of(previous));
}

/// Seconds of one trip to the next rank, the best of some.
double trip_seconds(Communicator& world, int64_t bytes) {
  const int64_t size = world.size();
  RowCounts send(static_cast<size_t>(size)), receive(static_cast<size_t>(size));
  send[static_cast<size_t>((world.rank() + 1) % size)] = bytes;
  receive[static_cast<size_t>((world.rank() + size - 1) % size)] = bytes;
  const torch::Tensor in = torch::zeros({bytes}, torch::kUInt8);
  const torch::Tensor out = torch::zeros({bytes}, torch::kUInt8);
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    world.barrier();
    const auto start = std::chrono::steady_clock::now();
    world.start_all_to_all(in, send, out, receive).wait();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

Finding ring(Communicator& world) {
  constexpr int64_t kSmallBytes = 8;
  constexpr int64_t kLargeBytes = 4 << 20;
  Finding finding{.name = "ring"};
  if (world.size() == 1) {
    finding.text = "one rank; start under mpirun to test messages";
    return finding;
  }
  bool is_good = true;
  for (const int64_t bytes : {kSmallBytes, INT64_C(100003), kLargeBytes}) {
    is_good = pass_on(world, bytes) && is_good;
  }
  torch::Tensor sum = torch::full({1}, world.rank() + 1, torch::kInt64);
  all_reduce(world, sum);
  is_good = is_good && sum.item<int64_t>() == world.size() * (world.size() + 1) / 2;
  const std::string mine =
      fmt::format("{} {:.9f} {:.9f}", is_good ? 1 : 0, trip_seconds(world, kSmallBytes),
                  trip_seconds(world, kLargeBytes));
  std::string bad_ranks;
  double latency_s = 0, transfer_s = 0;
  const std::vector<std::string> all = gather_text(world, mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    double small = 0, large = 0;
    int good = 0;
    std::sscanf(all[rank].c_str(), "%d %lf %lf", &good, &small, &large);
    if (good == 0) bad_ranks += " " + std::to_string(rank);
    latency_s = std::max(latency_s, small);
    transfer_s = std::max(transfer_s, large);
  }
  finding.text =
      fmt::format("{}; slowest trip {:.1f} us, {:.2f} GB/s", counted(world.size(), "rank"),
                  latency_s * 1e6, kLargeBytes / transfer_s * 1e-9);
  if (!bad_ranks.empty()) {
    finding.verdict = Verdict::kFail;
    finding.code = ExitCode::kInternal;
    finding.text += "; wrong data on ranks" + bad_ranks;
    finding.fix = "look for mixed MPI libraries (`ldd $(which shoal)` on each machine)";
  }
  return finding;
}

/// Whether all ranks run one build, and who they are.
Finding ranks(Communicator& world) {
  std::string build;
  for (const auto& [name, value] : installation_facts()) build += " " + name + " " + value;
  const std::string mine = SortedJson{{"host", host_name()}, {"build", build}}.dump();
  std::map<std::string, int64_t> ranks_of_host;
  std::map<std::string, std::string> ranks_of_build;
  const std::vector<std::string> all = gather_text(world, mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const SortedJson value = SortedJson::parse(all[rank]);
    ++ranks_of_host[value.at("host")];
    ranks_of_build[value.at("build")] += " " + std::to_string(rank);
  }
  Finding finding{.name = "ranks"};
  for (const auto& [host, count] : ranks_of_host) {
    finding.text += fmt::format("{}{} on {}", finding.text.empty() ? "" : ", ", count, host);
  }
  if (ranks_of_build.size() == 1) return finding;
  finding.verdict = Verdict::kFail;
  finding.code = ExitCode::kVersionSkew;
  finding.fix = "install the same build on every machine";
  for (const auto& [build_name, members] : ranks_of_build) {
    finding.text += fmt::format("; build{}: ranks{}", build_name, members);
  }
  return finding;
}

}  // namespace

std::vector<Finding> examine_gpu(const MachinePlaces& places) {
  const std::vector<std::string> models = gpu_models(places);
  Finding gpu{.name = "gpu", .text = models.empty() ? "none; training runs on the CPU" : ""};
  for (const std::string& model : models) gpu.text += (gpu.text.empty() ? "" : ", ") + model;
  return {gpu, plugin(places, !models.empty()), nccl(!models.empty())};
}

std::vector<Finding> examine_world(Communicator& world) { return {ranks(world), ring(world)}; }

std::vector<Finding> examine_all(const LaunchInfo& launch, Communicator& world) {
  SortedJson mine = SortedJson::array();
  if (launch.local_rank == 0) {
    std::vector<Finding> found = examine_build();
    for (Finding& finding : examine_machine(launch)) found.push_back(std::move(finding));
    for (Finding& finding : examine_gpu()) found.push_back(std::move(finding));
    for (Finding& finding : found) {
      finding.host = host_name();
      mine.push_back(to_value(finding));
    }
  }
  std::vector<Finding> all;
  for (const std::string& text : gather_text(world, json_text(mine))) {
    for (const SortedJson& value : SortedJson::parse(text)) all.push_back(from_value(value));
  }
  for (Finding& finding : examine_world(world)) all.push_back(std::move(finding));
  return all;
}

std::string to_lines(const std::vector<Finding>& findings) {
  std::set<std::string> hosts;
  size_t width = 0;
  for (const Finding& finding : findings) {
    if (!finding.host.empty()) hosts.insert(finding.host);
    width = std::max(width, finding.name.size());
  }
  std::string lines;
  for (const Finding& finding : findings) {
    lines += fmt::format("{:<4}  {:<{}}  {}{}{}\n",
                         kVerdictNames[static_cast<size_t>(finding.verdict)], finding.name, width,
                         hosts.size() > 1 && !finding.host.empty() ? finding.host + ": " : "",
                         finding.text, finding.fix.empty() ? "" : "; fix: " + finding.fix);
  }
  return lines;
}

std::string to_json(const std::vector<Finding>& findings) {
  SortedJson checks = SortedJson::array();
  for (const Finding& finding : findings) {
    SortedJson value = to_value(finding);
    value.erase("code");
    checks.push_back(std::move(value));
  }
  const int code = static_cast<int>(exit_code_of(findings));
  return json_text(
      SortedJson{{"ok", code == 0}, {"exit_code", code}, {"checks", std::move(checks)}});
}

ExitCode exit_code_of(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kFail) return finding.code;
  }
  return ExitCode::kOk;
}

ExitCode doctor(bool as_json, const LaunchInfo& launch, std::ostream& out) {
  const std::unique_ptr<Communicator> world = make_world(launch);
  return run_on_ranks(*world, [&] {
    const std::vector<Finding> findings = examine_all(launch, *world);
    if (world->rank() == 0) {
      out << (as_json ? to_json(findings) + "\n" : to_lines(findings)) << std::flush;
    }
    return exit_code_of(findings);
  });
}

}  // namespace shoal
