#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/data/data_source.h"

namespace shoal {

/// The first name that is empty, repeats or cannot be written in a recipe; nullopt without one.
std::optional<std::string> unfit_name(std::vector<std::string> names);

/// The names of a split's classes, in the order of their own numbers, in a folder or file.
struct FoundClasses {
  std::string place;
  std::vector<std::string> names;
};
using FindClasses = std::function<FoundClasses(Split)>;

/// Keys of sources whose files can name classes. A label is the place of its class in class_names,
/// whatever order the files have.
struct ClassOptions {
  std::optional<int64_t> classes = {};        ///< unset: not found yet; 0: samples without labels
  std::vector<std::string> class_names = {};  ///< by label; empty: not known

  static constexpr auto fields() {
    return std::tuple{
        field("classes", &ClassOptions::classes,
              "number of classes; auto: that of the data; none = samples without labels",
              in_range(2, 1e6), zero_word("none"), unset_word("auto")),
        field("class_names", &ClassOptions::class_names,
              "class names in the order of their labels, which the data's own names are mapped to; "
              "none given: in the data's order",
              not_empty())};
  }
  /// Reports names that repeat, cannot be written in a recipe, or are not `classes` in number.
  void validate(Problems& problems) const;
  void resolve() {
    if (!classes && !class_names.empty()) classes = std::ssize(class_names);
  }
  /// Sets what the recipe leaves to the data: the names that `classes_of` returns for the training
  /// split or, if it throws DataError there, for the validation split. Fewer than two: no labels.
  void find(const FindClasses& classes_of);
  /// Reports splits of another number of classes, if class_names is unset, and a class of the
  /// training split that class_names lacks.
  void check(const FindClasses& classes_of, Problems& problems) const;
};

/// Labels of the classes of a split.
struct ClassLabels {
  std::vector<int64_t> label_of = {};                  ///< by the files' own number; empty: equal
  std::vector<std::string> notes = {}, warnings = {};  ///< lines for the log

  int64_t of(int64_t number) const { return label_of.empty() ? number : label_of.at(number); }
};

/// Labels the classes `found` in the folder or file `place`, in the order of their own numbers, by
/// name. Throws DataError for a class that class_names lacks, or if the number of classes is
/// unknown.
ClassLabels label_classes(const std::vector<std::string>& found, const ClassOptions& options,
                          const std::string& place, Split split);

/// The class options of a source, or of the source that it reads; null if it has none.
ClassOptions* class_options_of(Choice<DataSource>& source);

}  // namespace shoal
