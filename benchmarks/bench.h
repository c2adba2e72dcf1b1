#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

/// What every benchmark program shares: interleaved timing and a JSON report.
///
/// Contenders run in turns (A B C A B C ...) inside one process, so that a slow spell of the
/// machine hits all of them; results are medians, and what is reported is a ratio of one run.
namespace shoal::bench {

/// One contender: a name and the work of one call.
struct Contender {
  std::string name;
  std::function<void()> call;
};

/// Microseconds a call, over the rounds.
struct Timing {
  std::string name;
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  int64_t rounds = 0;
};

struct TimingOptions {
  int64_t rounds = 30;         ///< timed turns of each contender
  int64_t warm_up_rounds = 3;  ///< turns before, not counted
  int64_t calls_per_round = 1;
};

/// The middle value; the mean of the two middle ones for even counts. Throws on an empty list.
inline double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("median of no values");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Seconds `calls` calls take.
inline double seconds_of(const std::function<void()>& call, int64_t calls) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Microseconds of one call.
inline double us_of(const std::function<void()>& call) { return 1e6 * seconds_of(call, 1); }

/// Summary of the microseconds of each round.
inline Timing summarise(const std::string& name, const std::vector<double>& round_us) {
  const auto [least, most] = std::minmax_element(round_us.begin(), round_us.end());
  return {name, median(round_us), *least, *most, static_cast<int64_t>(round_us.size())};
}

/// A contender that times itself, e.g. in another process: microseconds of one call.
struct TimedContender {
  std::string name;
  std::function<double()> call_us;
};

/// Lets the contenders take turns; results in their order.
inline std::vector<Timing> take_turns(const std::vector<TimedContender>& contenders, int64_t rounds,
                                      int64_t warm_up_rounds) {
  std::vector<std::vector<double>> round_us(contenders.size());
  for (int64_t round = -warm_up_rounds; round < rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      const double us = contenders[i].call_us();
      if (round >= 0) round_us[i].push_back(us);
    }
  }
  std::vector<Timing> timings;
  for (size_t i = 0; i < contenders.size(); ++i) {
    timings.push_back(summarise(contenders[i].name, round_us[i]));
  }
  return timings;
}

/// Times all contenders in turns; results in their order.
inline std::vector<Timing> time_interleaved(const std::vector<Contender>& contenders,
                                            const TimingOptions& options = {}) {
  const int64_t calls = options.calls_per_round;
  std::vector<TimedContender> timed;
  for (const Contender& contender : contenders) {
    timed.push_back({contender.name, [&contender, calls] {
                       return seconds_of(contender.call, calls) * 1e6 / static_cast<double>(calls);
                     }});
  }
  return take_turns(timed, options.rounds, options.warm_up_rounds);
}

/// The processor's name as the system gives it.
inline std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

/// The name of the first GPU as its driver gives it; empty where there is none.
inline std::string gpu_model() {
  std::error_code ignored;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    std::ifstream info(gpu.path() / "information");
    for (std::string line; std::getline(info, line);) {
      if (line.rfind("Model:", 0) != 0) continue;
      return line.substr(std::min(line.size(), line.find_first_not_of(" \t", 6)));
    }
  }
  return "";
}

/// Rows of a benchmark, with what is needed to judge them later: hardware, date, command.
class Report {
 public:
  Report(const std::string& benchmark, int argc, char** argv) {
    std::string command;
    for (int i = 0; i < argc; ++i) command.append(i > 0 ? " " : "").append(argv[i]);
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    root_ = {{"benchmark", benchmark},
             {"command", command},
             {"date", date},
             {"hardware", {{"cpu", cpu_model()}, {"cores", std::thread::hardware_concurrency()}}},
             {"rows", nlohmann::json::array()}};
    if (const std::string gpu = gpu_model(); !gpu.empty()) root_["hardware"]["gpu"] = gpu;
  }

  /// A fact about the run as a whole, e.g. threads or dtype.
  void note(const std::string& key, nlohmann::json value) { root_[key] = std::move(value); }

  /// One measured case; `values` is an object.
  void add(nlohmann::json values) { root_["rows"].push_back(std::move(values)); }

  bool empty() const { return root_["rows"].empty(); }

  /// Writes the JSON; an empty path writes nothing. Throws if the file cannot be written.
  void write(const std::string& path) const {
    if (path.empty()) return;
    std::ofstream file(path);
    file << root_.dump(2) << '\n';
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  nlohmann::json root_;
};

}  // namespace shoal::bench
