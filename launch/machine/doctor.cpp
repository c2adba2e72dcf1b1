#include "launch/machine/doctor.h"

#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "launch/job/failure.h"
#include "launch/job/rank_facts.h"
#include "launch/machine/break_even_file.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "sparse/kernels/break_even.h"

namespace shoal {

NLOHMANN_JSON_SERIALIZE_ENUM(Finding::Verdict, {{Finding::Verdict::kOk, "ok"},
                                                {Finding::Verdict::kWarn, "warn"},
                                                {Finding::Verdict::kFail, "fail"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, host, name, verdict, text, fix, code);

namespace {

using SortedJson = nlohmann::json;

struct Trip {
  bool is_right = true;  ///< what arrived here is the previous rank's pattern
  double seconds = 1e9;  ///< the shortest of some rounds
};

/// Sends `bytes` of a rank-specific pattern to the next rank, several times.
Trip pass_on(Communicator& world, int64_t bytes) {
  const int64_t size = world.size();
  const int64_t previous = (world.rank() + size - 1) % size;
  RowCounts send(static_cast<size_t>(size)), receive(static_cast<size_t>(size));
  send[static_cast<size_t>((world.rank() + 1) % size)] = bytes;
  receive[static_cast<size_t>(previous)] = bytes;
  const auto pattern_of = [&](int64_t rank) {
    return torch::arange(bytes, torch::kInt64).add_(rank * 31).remainder_(251).to(torch::kUInt8);
  };
  const torch::Tensor in = pattern_of(world.rank()), expected = pattern_of(previous);
  Trip trip;
  for (int round = 0; round < 5; ++round) {
    torch::Tensor out = torch::zeros({bytes}, torch::kUInt8);
    world.barrier();
    const auto start = std::chrono::steady_clock::now();
    world.start_all_to_all(in, send, out, receive).wait();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    trip.seconds = std::min(trip.seconds, taken.count());
    trip.is_right = trip.is_right && at::equal(out, expected);
  }
  return trip;
}

Finding ring(Communicator& world) {
  constexpr int64_t kLargeBytes = 4 << 20;
  Finding finding{.name = "ring"};
  if (world.size() == 1) {
    finding.text = "one rank; start under mpirun to test messages";
    return finding;
  }
  const Trip small = pass_on(world, 8);
  const Trip odd = pass_on(world, 100003);
  const Trip large = pass_on(world, kLargeBytes);
  torch::Tensor sum = torch::full({1}, world.rank() + 1, torch::kInt64);
  all_reduce(world, sum);
  const bool is_good = small.is_right && odd.is_right && large.is_right &&
                       sum.item<int64_t>() == world.size() * (world.size() + 1) / 2;
  const std::string bad_ranks =
      join_words(gather_text(world, is_good ? "" : " " + std::to_string(world.rank())), "");
  torch::Tensor slowest = torch::tensor({small.seconds, large.seconds}, torch::kFloat64);
  all_reduce(world, slowest, ReduceOp::kMax);
  finding.text =
      fmt::format("{}; slowest trip {:.1f} us, {:.2f} GB/s", counted(world.size(), "rank"),
                  slowest[0].item<double>() * 1e6, kLargeBytes / slowest[1].item<double>() * 1e-9);
  if (!bad_ranks.empty()) {
    finding.text += "; wrong data on ranks" + bad_ranks;
    finding.fail(ExitCode::kInternal,
                 "look for mixed MPI libraries (`ldd $(which shoal)` on each machine)");
  }
  return finding;
}

/// Checks that all ranks run one build, and lists their hosts.
Finding ranks(Communicator& world) {
  std::string build;
  for (const auto& [name, value] : installation_facts()) build += " " + name + " " + value;
  std::map<std::string, int64_t> ranks_of_host;
  for (const std::string& host : gather_text(world, host_name())) ++ranks_of_host[host];
  std::map<std::string, std::string> ranks_of_build;
  int64_t rank = 0;
  for (const std::string& other : gather_text(world, build)) {
    ranks_of_build[other] += fmt::format(" {}", rank++);
  }
  Finding finding{.name = "ranks"};
  for (const auto& [host, count] : ranks_of_host) {
    finding.text += fmt::format("{}{} on {}", finding.text.empty() ? "" : ", ", count, host);
  }
  if (ranks_of_build.size() == 1) return finding;
  finding.fail(ExitCode::kVersionSkew, "install the same build on every machine");
  for (const auto& [build_name, members] : ranks_of_build) {
    finding.text += fmt::format("; build{}: ranks{}", build_name, members);
  }
  return finding;
}

}  // namespace

void Finding::warn(const std::string& next_step) {
  verdict = Verdict::kWarn;
  fix = next_step;
}

void Finding::fail(ExitCode would_end_with, const std::string& next_step) {
  verdict = Verdict::kFail;
  code = would_end_with;
  fix = next_step;
}

std::vector<Finding> examine_world(Communicator& world) { return {ranks(world), ring(world)}; }

std::vector<Finding> examine_all(const LaunchInfo& launch, Communicator& world) {
  std::vector<Finding> own;
  if (launch.local_rank == 0) {
    for (const auto& found : {examine_build(), examine_machine(launch), examine_gpu()}) {
      own.insert(own.end(), found.begin(), found.end());
    }
    for (Finding& finding : own) finding.host = host_name();
  }
  std::vector<Finding> all;
  for (const std::string& text : gather_text(world, json_text(SortedJson(own)))) {
    for (const SortedJson& value : SortedJson::parse(text)) all.push_back(value.get<Finding>());
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
    lines += fmt::format("{:<4}  {:<{}}  {}{}{}\n", SortedJson(finding.verdict).get<std::string>(),
                         finding.name, width,
                         hosts.size() > 1 && !finding.host.empty() ? finding.host + ": " : "",
                         finding.text, finding.fix.empty() ? "" : "; fix: " + finding.fix);
  }
  return lines;
}

std::string to_json(const std::vector<Finding>& findings) {
  SortedJson checks = SortedJson::array();
  for (const Finding& finding : findings) checks.emplace_back(finding).erase("code");
  const int code = static_cast<int>(exit_code_of(findings));
  return json_text(SortedJson{{"ok", code == 0}, {"exit_code", code}, {"checks", checks}});
}

ExitCode exit_code_of(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    if (finding.verdict == Finding::Verdict::kFail) return finding.code;
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

ExitCode calibrate(const LaunchInfo& launch, std::ostream& out) {
  if (launch.cache_folder.empty()) {
    throw DataError("there is no cache folder for what is measured", "set XDG_CACHE_HOME or HOME");
  }
  if (launch.world > 1) {
    throw Error(ExitCode::kUsage,
                "doctor --calibrate measures one process, and was started as several",
                fmt::format("start it without a launcher, with the threads of a rank: "
                            "OMP_NUM_THREADS={} shoal doctor --calibrate",
                            choose_threads(std::nullopt, launch)));
  }
  set_up_torch(std::nullopt, /*deterministic=*/false, launch);
  const BreakEvens measured = measure_break_evens();
  const std::string path = break_even_path(launch.cache_folder);
  write_break_evens(path, processor_model(), measured);
  out << fmt::format(
      "{}: sparse kernels are faster below these densities, with 1 token, some and many:\n",
      counted(choose_threads(std::nullopt, launch), "thread"));
  for (const auto& [name, even] :
       {std::pair{"rows", measured.rows}, std::pair{"diagonals", measured.diagonals},
        std::pair{"blocks", measured.blocks}}) {
    out << fmt::format("  {:<9} {:.2f} {:.2f} {:.2f}\n", name, even.one, even.few, even.many);
  }
  out << "kept in " << path << '\n' << std::flush;
  return ExitCode::kOk;
}

}  // namespace shoal
