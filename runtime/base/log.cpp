#include "runtime/base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <ctime>
#include <utility>

#include "runtime/base/error.h"

namespace shoal {
namespace {

/// spdlog itself would write each failure to standard error.
void tell_once(spdlog::logger& logger, const std::string& path, const Log::Echo& echo) {
  logger.set_error_handler(
      [path, echo, is_told = std::make_shared<std::atomic_flag>()](const std::string& why) {
        if (!echo || is_told->test_and_set()) return;
        echo(fmt::format("warning: the log '{}' cannot be written, lines are lost: {}", path, why));
      });
}

std::shared_ptr<spdlog::logger> open_file(const std::string& path, int64_t rank,
                                          const Log::Echo& echo) {
  if (path.empty()) return nullptr;
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    auto logger = std::make_shared<spdlog::logger>(fmt::format("rank {}", rank), sink);
    logger->set_level(spdlog::level::debug);
    logger->flush_on(spdlog::level::debug);
    tell_once(*logger, path, echo);
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e [%n] %l: %v");
    return logger;
  } catch (const spdlog::spdlog_ex& error) {
    throw StorageError(fmt::format("log file '{}': {}", path, error.what()));
  }
}

std::string host_and_zone() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"unknown host"};
  std::array<char, 16> zone{};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::strftime(zone.data(), zone.size(), "%z", &local);
  return fmt::format("on {}, process {}, times are UTC{}", host.data(), getpid(), zone.data());
}

}  // namespace

Log::Log(const std::string& path, int64_t rank, Echo echo)
    : file_(open_file(path, rank, echo)), rank_(rank), echo_(std::move(echo)) {
  detail(host_and_zone());
}

void Log::show(const std::string& text) {
  if (rank_ == 0 && echo_) echo_(text);
}

void Log::info(const std::string& text) {
  if (file_) file_->info("{}", text);
  show(text);
}

void Log::detail(const std::string& text) {
  if (file_) file_->debug("{}", text);
}

void Log::warn(const std::string& text) {
  if (file_) file_->warn("{}", text);
  show("warning: " + text);
}

void Log::error(const std::string& text) {
  if (file_) file_->error("{}", text);
  show("error: " + text);
}

}  // namespace shoal
