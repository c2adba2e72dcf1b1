#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/module/parameter.h"
#include "runtime/module/state.h"

namespace shoal {

/// Names of a model's weights, and the names that a checkpoint has for them.
using SourceOf = std::map<std::string, std::string>;

/// A parameter's name; of a stack its first unit's on this rank.
std::string name_of_first_unit(const Parameter& parameter);

/// The name of a sparse weight's state, such as `sparsity.mask.X`, with the checkpoint's name of X;
/// other names, and those of weights that are not in `source_of`, stay.
std::string source_name(const std::string& name, const SourceOf& source_of);

/// Asks `saved` for names of the model's state by the checkpoint's names. Both outlive the result.
SavedNames by_source_names(const SavedNames& saved, const SourceOf& source_of);

/// Throws Error (exit 12) if units of this stack are among `missing`, the model's names of weights
/// that no rank takes: they would keep `what` of their own, while others get the checkpoint's.
void require_whole_stack(const Parameter& weight, const std::vector<std::string>& missing,
                         std::string_view what);

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
