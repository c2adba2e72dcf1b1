#include "launch/runs/runs.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "launch/recipe/recipe.h"
#include "launch/runs/run_data.h"
#include "launch/runs/run_folder.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "runtime/base/json_text.h"
#include "runtime/base/text.h"
#include "runtime/files/data_file.h"
#include "runtime/records/flat_record.h"
#include "runtime/yaml/yaml_reader.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::vector<std::string> kColumns{"name", "state", "step", "total_steps", "metric", "score",
                                        "time", "ranks", "size", "change",      "note"};

Json value_at(const Json& object, const char* key) { return object.value(key, Json()); }

/// Adds the last step, and the score of the last evaluation: reads as much of the file's end as
/// holds one.
void read_end_of_metrics(const std::string& path, Json& run) {
  std::error_code failed;
  const auto size = static_cast<int64_t>(fs::file_size(path, failed));
  if (failed) return;
  std::ifstream file(path, std::ios::binary);
  const std::string metric = run["metric"].is_string() ? run["metric"] : "";
  FlatRecord record;
  int64_t begin = size, most = 1 << 12;
  do {
    begin = std::max<int64_t>(0, size - (most *= 16));
    std::string text(static_cast<size_t>(size - begin), '\0');
    file.seekg(begin).read(text.data(), size - begin);
    text.erase(0, begin == 0 ? 0 : text.find('\n') + 1);
    text.erase(text.rfind('\n') + 1);  // a line that is cut, or being written
    for (const std::string& line : split(text, '\n')) {
      if (!record.parse(line)) run["note"] = "metrics.jsonl has broken lines";
      const double step = record.number("step", NAN), score = record.number(metric, NAN);
      if (step >= 0 && step < 1e15) run["step"] = static_cast<int64_t>(step);
      if (record.text("event") == "eval" && std::isfinite(score)) run["score"] = score;
    }
  } while (begin > 0 && !metric.empty() && run["score"].is_null());
}

/// Adds what the records of a run or attempt say. Their names end in `attempt`; `changed`: time of
/// the last write, in seconds since 1970.
void read_records(const std::string& attempt, int64_t changed, Json& run) {
  constexpr int64_t kMostSilence = 3600;  // a job writes to its lock every few seconds
  const std::string path = run["path"];
  std::vector<std::string> problems;
  const Json env = read_object(path + "/env.json" + attempt, problems);
  const Json summary = read_object(path + "/summary.json" + attempt, problems);
  const Json starts = value_at(env, "starts");
  const bool has_start = starts.is_array() && !starts.empty() && starts.back().is_object();
  const Json start = has_start ? starts.back() : Json::object();
  run["total_steps"] = value_at(start, "total_steps");
  run["metric"] = value_at(start, "score");
  run["ranks"] = value_at(env, "world");
  for (const Json& one : starts) {
    const Json folder = one.is_object() ? value_at(one, "folder") : Json();
    if (folder.is_string()) run["folders"].push_back(folder);
  }
  read_end_of_metrics(path + "/metrics.jsonl" + attempt, run);
  const Json steps = value_at(summary, "steps"), exit_code = value_at(summary, "exit_code");
  const bool has_records = !env.empty() || !run["step"].is_null();
  const bool has_summary = steps.is_number() && steps >= run["step"] &&  // of the last start
                           value_at(summary, "first_step") >= value_at(start, "step");
  if (has_summary) run["step"] = steps;
  if (has_summary) run["time"] = value_at(summary, "seconds");
  const auto job = attempt.empty() ? live_owner(path) : std::nullopt;
  const bool is_elsewhere = job && !job->shares_kernel_with(LockOwner::self());
  const bool is_silent = is_elsewhere && std::time(nullptr) - changed > kMostSilence;
  run["state"] = !attempt.empty()                                                     ? "superseded"
                 : is_silent                                                          ? "stale"
                 : job                                                                ? "running"
                 : !problems.empty()                                                  ? "?"
                 : has_summary && exit_code == static_cast<int>(ExitCode::kOk)        ? "done"
                 : has_summary && exit_code == static_cast<int>(ExitCode::kPreempted) ? "stopped"
                 : !has_summary && has_records                                        ? "crashed"
                 : has_summary || run["checkpoint"] == ""                             ? "failed"
                                                                                      : "weights";
  if (run["state"] == "failed" && has_summary) run["note"] = "exit code " + json_text(exit_code);
  if (is_elsewhere) problems.insert(problems.begin(), job->describe());
  if (!problems.empty()) run["note"] = join_words(problems, "; ");
}

/// Size in bytes, and times in seconds since 1970.
struct RunFiles {
  int64_t size = 0, begun = 0, changed = 0;
};

/// The name of the run's newest checkpoint, which may be damaged or set aside; "" without one, "?"
/// where the folder cannot be listed.
std::string newest_checkpoint_of(const fs::path& run) {
  std::string newest;
  std::error_code failed;
  for (fs::directory_iterator it(run / "ckpt", failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("step-")) newest = std::max(newest, name);
  }
  return !failed || failed == std::errc::no_such_file_or_directory ? newest : "?";
}

/// Adds a run, and the attempts whose records are in its folder.
void add_run(const fs::path& folder, const fs::path& name, std::vector<Json>& runs) {
  std::map<std::string, RunFiles> by_attempt{{"", {}}};
  std::error_code failed;
  for (fs::recursive_directory_iterator it(folder, failed), end; !failed && it != end;
       it.increment(failed)) {
    const std::string entry = it->path().filename().string();
    const size_t attempt = is_run_file(entry) ? entry.find(kAttempt) : entry.npos;
    RunFiles& files = by_attempt[entry.substr(std::min(attempt, entry.size()))];
    struct stat info {};
    if (::lstat(it->path().c_str(), &info) != 0) continue;
    if (entry.starts_with("env.json")) files.begun = info.st_mtime;
    if (!S_ISREG(info.st_mode) || entry == "report.html") continue;
    files.size += info.st_size;
    files.changed = std::max<int64_t>(files.changed, info.st_mtime);
  }
  // A training that goes on removes files meanwhile.
  const bool is_readable = !failed || failed == std::errc::no_such_file_or_directory;
  for (const auto& [attempt, files] : by_attempt) {
    Json run;
    for (const std::string& key : kColumns) run[key] = {};
    run["folders"] = Json::array();
    run["name"] = (name.empty() ? folder : name).string() + attempt;
    run["path"] = folder.string();
    run["state"] = "?";
    run["size"] = files.size;
    run["change"] = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(files.changed));
    run["checkpoint"] = attempt.empty() ? newest_checkpoint_of(folder) : "";
    run["note"] = is_readable ? "" : failed.message();
    if (files.begun > 0) run["time"] = files.changed - files.begun;
    if (is_readable) read_records(attempt, files.changed, run);
    runs.push_back(run);
  }
}

/// Adds the run in a folder, or else those below it; `name` is the folder's, or begins theirs.
void find_runs(const fs::path& folder, const fs::path& name, std::vector<Json>& runs) {
  std::error_code failed, ignored;
  for (const char* file : {"resolved.yaml", "metrics.jsonl", "ckpt"}) {
    if (fs::exists(folder / file, ignored)) return add_run(folder, name, runs);
  }
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    const fs::path inner = it->path().filename();
    const bool is_folder = it->is_directory(ignored) && !it->is_symlink(ignored);
    if (is_folder && inner.native()[0] != '.') find_runs(it->path(), name / inner, runs);
  }
  if (failed) add_run(folder, name, runs);  // tells why
}

std::string cell(const Json& run, const std::string& key) {
  const Json value = value_at(run, key.c_str());
  if (value.is_number() && key == "size") return human_bytes(value);
  if (value.is_number() && key == "time") return human_seconds(value);
  if (value.is_number_float()) return fmt::format("{:.5g}", value.get<double>());
  return value.is_null() ? "-" : value.is_string() ? std::string(value) : json_text(value);
}

/// The value of a text as JSON, that of `1e-3` a number; a string if it is none.
Json value_of(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

/// True if the run's name has the word in it or, for KEY=VALUE, its KEY is VALUE.
bool fits(const Json& run, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return cell(run, "name").find(word) != std::string::npos;
  const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
  return cell(run, key) == value || run.at(key) == value_of(value);
}

/// Refuses a key that is not among the known ones; names those with the same last word.
[[noreturn]] void refuse_key(const std::string& key, const std::set<std::string>& known) {
  std::string similar;
  const std::string last_word = fmt::format(".{}", key.substr(key.rfind('.') + 1));
  for (const std::string& one : known) {
    if (one.ends_with(last_word)) similar += " " + one;
  }
  const std::string guess = did_you_mean(key, {known.begin(), known.end()});
  throw Error(ExitCode::kUsage,
              fmt::format("no run has the key '{}'{}", key,
                          similar.empty() ? guess : "; recipes have" + similar),
              "keys are the columns of `shoal runs` and what resolved.yaml sets");
}

/// Gives the runs the values of recipes' keys that are asked for, null where resolved.yaml has
/// none. Throws Error (exit 2) for a key that no run has.
void add_recipe_values(std::vector<std::string> asked, std::vector<Json>& runs) {
  std::set<std::string> known{"path", "checkpoint", "folders"};
  known.insert(kColumns.begin(), kColumns.end());
  std::erase_if(asked, [&known](const std::string& key) { return known.contains(key); });
  if (asked.empty() || runs.empty()) return;
  for (Json& run : runs) {
    const std::string name = run["name"];
    const bool is_attempt = run["state"] == "superseded";
    const std::string file = std::string(run["path"]) + "/resolved.yaml" +
                             (is_attempt ? name.substr(name.rfind(kAttempt)) : "");
    for (const std::string& key : asked) run[key] = {};
    for (const RecipeValue& value : recipe_values(text_of_file(file))) {
      known.insert(value.path);
      if (run.contains(value.path)) run[value.path] = value_of(value.text);
    }
  }
  for (const std::string& key : asked) {
    if (!known.contains(key)) refuse_key(key, known);
  }
}

/// Sorts runs by a key; those without a value come last.
void sort_runs(const std::string& given, std::vector<Json>& runs) {
  const bool is_reversed = given.starts_with('-');
  const std::string key = given.substr(is_reversed ? 1 : 0);
  std::ranges::stable_sort(runs, [&](const Json& a, const Json& b) {
    if (a[key].is_null() || b[key].is_null()) return a[key].is_null() < b[key].is_null();
    return is_reversed ? b[key] < a[key] : a[key] < b[key];
  });
}

/// Removes a run's folder, or an attempt's records, under the run's lock.
void remove_listed(const std::string& path, const std::string& attempt) {
  if (!fs::exists(path)) return;  // an attempt's run has just been removed
  PosixFileSystem files;
  {
    const RunLock lock(path, files, [](const std::string&) {});
    if (attempt.empty() && !newest_checkpoint_of(path).empty()) {
      throw StorageError("a job has saved a checkpoint meanwhile");
    }
    if (attempt.empty()) remove_run(files, path);
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      const bool is_record = !attempt.empty() && is_run_file(name) && name.ends_with(attempt);
      if (is_record) fs::remove(entry.path());
    }
  }
  if (attempt.empty()) fs::remove(path);  // unless a job has begun to use it
}

/// The path that a recipe's model.init_from names; "" without one.
std::string first_weights_of(const std::string& recipe) {
  config::Diagnostics mistakes;
  const config::Position start{std::make_shared<const config::Source>(), 1, 1};
  const auto root = config::read_yaml(text_of_file(recipe), start, "", mistakes);
  if (!root) return "";
  const config::Node* from = config::find_node(*root, "model.init_from.from");
  if (from == nullptr) from = config::find_node(*root, "model.init_from");
  return from == nullptr ? "" : from->text;
}

/// The name of a run whose model.init_from names the run at `path`; "" without one.
std::string heir_of(const std::string& path, const std::vector<Json>& runs) {
  const std::string folder = fs::weakly_canonical(path).string() + "/";
  for (const Json& run : runs) {
    const std::string weights = first_weights_of(cell(run, "path") + "/resolved.yaml");
    std::vector<fs::path> started_in{""};
    for (const Json& start : run["folders"]) started_in.emplace_back(start.get<std::string>());
    for (const fs::path& start : started_in) {
      std::error_code failed;  // the start's folder may be closed to this user
      fs::path from = fs::weakly_canonical(start / weights, failed);
      if (failed) from = (start / weights).lexically_normal();
      const bool is_in_run = !weights.empty() && (from.string() + "/").starts_with(folder);
      if (is_in_run) return cell(run, "name");
    }
  }
  return "";
}

/// Removes what is of no use, or tells what it would remove. Runs that model.init_from of a run of
/// `all` names are kept.
ExitCode prune(const std::vector<Json>& runs, const std::vector<Json>& all, bool removes,
               std::ostream& out) {
  ExitCode code = ExitCode::kOk;
  for (const Json& run : runs) {
    const std::string path = cell(run, "path"), name = cell(run, "name"),
                      state = cell(run, "state");
    const bool is_attempt = state == "superseded", is_bad = state == "failed" || state == "crashed";
    if (!is_attempt && !(is_bad && run["checkpoint"] == "")) continue;
    std::string result = "kept", reason;
    try {
      if (!is_attempt) reason = why_not_a_run(path);
      if (live_owner(path)) reason = "a job works on it";
      const std::string heir = is_attempt ? "" : heir_of(path, all);
      if (!heir.empty()) reason = "model.init_from of " + heir + " names it";
      if (reason.empty()) result = removes ? "removed" : "would remove";
      if (reason.empty() && removes) {
        remove_listed(path, is_attempt ? name.substr(name.rfind(kAttempt)) : "");
      }
    } catch (const std::exception& error) {
      const auto* known = dynamic_cast<const Error*>(&error);
      code = known != nullptr ? known->code() : ExitCode::kStorage;
      result = "not removed", reason = error.what();
    }
    out << fmt::format("{:<12} {} ({}, {}){}\n", result, name, state, cell(run, "size"),
                       reason.empty() ? "" : ": " + reason);
  }
  if (!removes) out << "nothing is removed without --yes\n";
  return code;
}

}  // namespace

std::vector<std::string> list_runs(const std::string& folder) {
  require_path(folder);
  std::vector<Json> found;
  find_runs(folder, "", found);
  sort_runs("name", found);
  std::vector<std::string> paths;
  for (const Json& run : found) {
    if (run["state"] != "superseded") paths.push_back(run["path"]);
  }
  return paths;
}

ExitCode runs(const RunsArguments& arguments, std::ostream& out) {
  std::vector<std::string> folders = arguments.folders;
  if (folders.empty()) folders.push_back(RunOptions().root);
  std::vector<Json> runs;
  for (const std::string& folder : folders) {
    require_path(folder);
    find_runs(folder, folders.size() > 1 ? folder : "", runs);
  }
  const std::vector<std::string> columns = split(arguments.columns, ',');
  std::vector<std::string> asked = columns;
  asked.push_back(arguments.sort.substr(arguments.sort.starts_with('-') ? 1 : 0));
  for (const std::string& word : arguments.words) {
    if (word.find('=') != word.npos) asked.push_back(word.substr(0, word.find('=')));
  }
  add_recipe_values(asked, runs);
  const std::vector<Json> all = runs;
  for (const std::string& word : arguments.words) {
    std::erase_if(runs, [&](const Json& run) { return !fits(run, word); });
  }
  sort_runs("name", runs);
  sort_runs(arguments.sort, runs);
  if (arguments.prunes) return prune(runs, all, arguments.removes, out);
  std::vector<std::string> shown = columns.empty() ? kColumns : columns;
  if (!columns.empty()) {
    std::erase(shown, "name");
    shown.insert(shown.begin(), "name");
  }
  std::vector<std::vector<std::string>> rows{shown};
  for (const Json& run : runs) {
    auto& row = rows.emplace_back();
    for (const std::string& key : shown) row.push_back(cell(run, key));
  }
  out << (arguments.json ? json_text(Json{{"runs", runs}}) + "\n" : text_table(rows));
  return ExitCode::kOk;
}

}  // namespace shoal
