#pragma once

#include <map>
#include <string>

#include "runtime/module/state.h"

namespace shoal {

/// Names of a model's weights, and the names that a checkpoint has for them.
using SourceOf = std::map<std::string, std::string>;

/// The name of a sparse weight's state, such as `sparsity.mask.X`, with the checkpoint's name of X;
/// other names, and those of weights that are not in `source_of`, stay.
std::string source_name(const std::string& name, const SourceOf& source_of);

/// Hands on the state of sparse weights unit by unit, by its names in the checkpoint.
class RenamingVisitor : public StateVisitor {
 public:
  /// Both outlive this.
  RenamingVisitor(StateVisitor& visitor, const SourceOf& source_of)
      : visitor_(visitor), source_of_(source_of) {}

  void tensor(const StateTensor& entry) override;
  void integer(const std::string& name, int64_t& value) override { visitor_.integer(name, value); }
  void real(const std::string& name, double& value) override { visitor_.real(name, value); }
  void text(const std::string& name, std::string& value) override { visitor_.text(name, value); }

 private:
  StateVisitor& visitor_;
  const SourceOf& source_of_;
};

}  // namespace shoal
