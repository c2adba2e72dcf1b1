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

/// One interval of training for the console. Rates cover the interval, other values its last step.
struct Progress {
  int64_t step = 0, total_steps = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  double items_per_second = 0;  ///< all ranks
  std::string unit = "img";     ///< name of an item
  int64_t ranks = 1;
  std::optional<double> dropped_share;  ///< share of the routed choices, mean of the MoE layers
  std::optional<double> load_max_over_mean;  ///< largest over the MoE layers
  std::vector<std::string> layers;           ///< LayerLog::Report::shown: `attend 41.2%`
  std::optional<double> all_to_all_ms;  ///< this rank's waiting for exchanges, a step; not on GPUs
  double data_wait_share = 0;           ///< share of the interval's time
  std::optional<double> mfu;  ///< mean of all ranks; unset where FLOPs or peak are not known
  int64_t memory_bytes = 0;   ///< resident set of this rank
  double seconds_left = 0;
  bool is_measured = true;  ///< false in the first interval: only step and time are set
  std::string activity;     ///< activity that delays steps, `evaluation 35%`; else ""
};

/// Progress of an activity as text, `evaluation 35%`.
std::string share_done(const std::string& what, int64_t done, int64_t total);

/// Line for a log, `step 50/1560 loss 1.8342 lr 1.2e-03 |g| 0.91 3120 img/s (1560/rank) …`
std::string progress_line(const Progress& progress);

/// Line for a terminal, with a bar, in at most `columns` columns. Leaves out what does not fit,
/// least important values first; keeps step and time left.
std::string live_line(const Progress& progress, int64_t columns);

/// Rank 0's progress on standard error: on a terminal one line with a bar, rewritten in place;
/// elsewhere one line for each interval, so that log files stay readable.
class Console {
 public:
  using Clock = std::chrono::steady_clock;
  /// `terminal`: rewrite in place; `width`: columns, unless the stream's terminal reports its own;
  /// `period`: least time between pulses.
  Console(std::FILE* stream, bool terminal, int64_t width,
          Clock::duration period = std::chrono::seconds(1));
  void show(const Progress& progress);
  /// Puts in the bar's place what `line` makes of the columns there are: on a terminal, once a
  /// period at most. Does nothing elsewhere.
  void pulse(const std::function<std::string(int64_t columns)>& line);
  /// Erases the bar.
  void clear();
  /// Prints a line above the bar.
  void print(const std::string& line);
  /// Keeps the bar and starts a new line.
  void finish();
  /// Sets a callback for the first failed write, with the reason; the text itself is lost.
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

/// The columns of the terminal that a file descriptor is; nothing if it is none.
std::optional<int64_t> terminal_columns(int file);

/// A console on standard error. `columns`: width of the terminal to which a launcher forwards
/// standard error; default: detected here.
Console make_console(std::optional<int64_t> columns = std::nullopt);

}  // namespace shoal
