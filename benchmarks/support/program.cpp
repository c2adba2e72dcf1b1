#include "benchmarks/support/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/device/process_parts.h"

namespace shoal::bench {

Program::Program(std::string name, const std::string& what, int64_t rounds)
    : name_(std::move(name)),
      rounds_(rounds),
      options_(std::make_unique<CLI::App>(what, name_ + "_bench")) {
  options_->add_option("--rounds", rounds_, "timed turns of each contender")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  options_->add_option("--json", json_, "write the results to this file")->type_name("FILE");
}

Program::~Program() = default;

void Program::add(const std::string& name, std::string& target, const std::string& what) {
  options_->add_option(name, target, what)->capture_default_str();
}

void Program::add(const std::string& name, int64_t& target, const std::string& what) {
  options_->add_option(name, target, what)->check(CLI::PositiveNumber)->capture_default_str();
}

void Program::add(const std::string& name, std::vector<std::string>& targets,
                  const std::string& what) {
  options_->add_option(name, targets, what);
}

void Program::add(const std::string& name, std::vector<int64_t>& targets, const std::string& what) {
  options_->add_option(name, targets, what)->delimiter(',')->capture_default_str();
}

void Program::require(const std::string& name, std::string& target, const std::string& what) {
  options_->add_option(name, target, what)->required();
}

void Program::add_choices(const std::string& name, std::vector<std::string>& choices,
                          const std::string& what) {
  options_->add_option(name, choices, what)->check(CLI::IsMember(choices));
}

int Program::run(int argc, char** argv, const std::function<void(Report&)>& measure) {
  use_process_parts();
  try {
    options_->parse(argc, argv);
    Report report(name_, argc, argv);
    report.note("rounds", rounds_);
    measure(report);
    if (!report.empty()) report.write(json_);
    return 0;
  } catch (const CLI::ParseError& error) {
    return options_->exit(error);
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const std::string next = known != nullptr && !known->hint().empty() ? "; " + known->hint() : "";
    std::fprintf(stderr, "%s_bench: %s%s\n", name_.c_str(), error.what(), next.c_str());
    std::fflush(stdout);
    // Ranks that wait for this one under mpirun end when it leaves without MPI_Finalize.
    std::_Exit(1);
  }
}

}  // namespace shoal::bench
