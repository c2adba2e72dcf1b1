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

/// What the console shows of training, at a logged step. Rates cover the interval since the
/// previous logged step; other values are those of the step.
struct Progress {
  int64_t step = 0, total_steps = 0;
  double loss = 0, lr = 0, grad_norm = 0;  ///< lr: learning rate
  double items_per_second = 0;             ///< over all ranks
  std::string unit = "img";                ///< name of an item, such as `img`
  int64_t ranks = 1;
  std::optional<double> dropped_share;       ///< share of tokens' choices, mean of the MoE layers
  std::optional<double> load_max_over_mean;  ///< experts' loads; largest of the MoE layers
  std::vector<std::string> layers;           ///< further values of layers: `attend 41.2%`
  std::optional<double> all_to_all_ms;       ///< ms a step that this rank waits; unset on GPUs
  double data_wait_share = 0;  ///< share of the interval's time spent waiting for data
  std::optional<double> mfu;   ///< model FLOPs utilisation, mean of all ranks; unset: not known
  int64_t memory_bytes = 0;    ///< resident memory of this rank
  double seconds_left = 0;
  bool is_measured = true;  ///< false before the first logged step: only step and time are set
  std::string activity;     ///< what steps wait for, `evaluation 35%`; "": nothing
};

/// Formats the progress of an activity: `evaluation 35%`.
std::string share_done(const std::string& what, int64_t done, int64_t total);

/// Line for a log, `step 50/1560 loss 1.8342 lr 1.2e-03 |g| 0.91 3120 img/s (1560/rank) …`
std::string progress_line(const Progress& progress);

/// Line for a terminal, with a bar unless `has_bar` is false, in at most `columns` columns. Leaves
/// out what does not fit, least important values first, but never step, activity and time left.
std::string live_line(const Progress& progress, int64_t columns, bool has_bar = true);

/// Shows rank 0's progress on standard error, a line for each logged step. On a terminal these
/// lines and all others stay above a bar, which is rewritten in place; elsewhere there is no bar.
class Console {
 public:
  using Clock = std::chrono::steady_clock;
  /// `terminal`: rewrite the line in place. `width`: columns, unless the stream is a terminal that
  /// reports its own. `period`: least time between pulses.
  Console(std::FILE* stream, bool terminal, int64_t width,
          Clock::duration period = std::chrono::seconds(1));
  /// Writes the line of a logged step, on a terminal no wider than that, and redraws the bar.
  void show(const Progress& progress);
  /// Shows progress between logged steps: on a terminal, draws line(columns) in place of the bar,
  /// once a period at most. Does nothing elsewhere.
  void pulse(const std::function<std::string(int64_t columns)>& line);
  /// Erases the bar.
  void clear();
  /// Prints a line above the bar.
  void print(const std::string& line);
  /// Sets a callback for the first failed write, with the reason; the text itself is lost.
  void when_lost(std::function<void(const std::string& why)> tell) { tell_lost_ = std::move(tell); }

 private:
  void rewrite(const std::string& above, const std::string& bar);
  int64_t columns() const;
  void write(const std::string& text);

  std::FILE* stream_;
  bool terminal_;
  int64_t width_;
  Clock::duration period_;
  Clock::time_point last_drawn_;
  std::string bar_;  ///< what stands on the terminal's last line; "": nothing
  std::function<void(const std::string&)> tell_lost_;
};

/// Columns of the terminal that a file descriptor refers to; nullopt if it is no terminal.
std::optional<int64_t> terminal_columns(int file);

/// A console on standard error. `columns`: width of the terminal to which a launcher forwards
/// standard error; default: detected here.
Console make_console(std::optional<int64_t> columns = std::nullopt);

}  // namespace shoal
