#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shoal {

/// One interval of training as the console shows it. Rates cover the interval, the rest its last
/// step.
struct Progress {
  int64_t step = 0, total_steps = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  double items_per_second = 0;  ///< all ranks
  std::string unit = "img";     ///< of items
  int64_t ranks = 1;
  std::optional<double> dropped_share;       ///< of the routed choices, mean of the MoE layers
  std::optional<double> load_max_over_mean;  ///< the largest of the MoE layers
  /// Share of the tokens beside the anchors that attended; unset without gates and in skipped
  /// steps.
  std::optional<double> gate_rate;
  std::optional<double> all_to_all_ms;  ///< per step, waiting for exchanges, this rank; not on GPUs
  double data_wait_share = 0;           ///< of the interval's time
  std::optional<double> mfu;            ///< of all ranks; unset where FLOPs or peak are not known
  int64_t memory_bytes = 0;             ///< resident set of this rank
  double seconds_left = 0;
  bool is_measured = true;  ///< false before the first interval's end: only step and time are known
  std::string activity;     ///< what steps wait for, `evaluation 35%`; else ""
};

/// `evaluation 35%`.
std::string share_done(const std::string& what, int64_t done, int64_t total);

/// `step 50/1560 loss 1.8342 lr 1.2e-03 |g| 0.91 3120 img/s (1560/rank) …`
std::string progress_line(const Progress& progress);

/// For a terminal: a bar and the line, in at most `columns` columns. What does not fit is left out,
/// from the least important on; step and time left stay.
std::string live_line(const Progress& progress, int64_t columns);

/// `1h02m`, `3m20s`, `12s`.
std::string human_seconds(double seconds);
/// `37 B`, `1.5 KiB`, `512 MiB`, `1.2 GiB`.
std::string human_bytes(double bytes);

/// Rows of cells as text, columns aligned, the first row underlined.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

/// A nlohmann::json value as text, on one line or indented by `indent` blanks a level. Bytes that
/// are not UTF-8, as names of files and texts of libraries may hold, become U+FFFD.
template <typename Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Rank 0's progress on standard error: on a terminal one line that is rewritten in place, with a
/// bar; elsewhere one line an interval, so that log files stay readable.
class Console {
 public:
  using Clock = std::chrono::steady_clock;
  /// `terminal`: rewrite in place; `width`: columns of the terminal, unless the stream's terminal
  /// itself knows how many it has; `period`: of pulses.
  Console(std::FILE* stream, bool terminal, int64_t width,
          Clock::duration period = std::chrono::seconds(1));
  void show(const Progress& progress);
  /// On a terminal, once a period at most: puts in the bar's place what `line` makes of the columns
  /// there are. Elsewhere nothing.
  void pulse(const std::function<std::string(int64_t columns)>& line);
  /// Wipes the bar.
  void clear();
  /// Prints a whole line above the bar.
  void print(const std::string& line);
  /// Leaves the bar where it is and starts a new line.
  void finish();
  /// `tell` is called once, with the reason, when something cannot be written; it is dropped.
  void when_lost(std::function<void(const std::string& why)> tell) { tell_lost_ = std::move(tell); }

 private:
  void draw(const std::string& line);
  int64_t columns() const;
  void write(const std::string& text);

  std::FILE* stream_;
  bool terminal_;
  int64_t width_;
  Clock::duration period_;
  Clock::time_point last_drawn_;
  bool bar_shown_ = false;
  std::function<void(const std::string&)> tell_lost_;
};

/// Width in columns of the terminal behind a file descriptor; nothing if it is not a terminal.
std::optional<int64_t> terminal_columns(int file);

/// A console on standard error. `columns`: those of the terminal that a launcher hands standard
/// error on to; none: it is looked for here.
Console make_console(std::optional<int64_t> columns = std::nullopt);

/// Resident memory of this process, from /proc.
int64_t resident_bytes();

}  // namespace shoal
