#include "runtime/data/class_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/base/utf8.h"
#include "runtime/options/automatic_values.h"

namespace shoal {
namespace {

const AutomaticValues<ClassOptions> automatic_class_options;

}  // namespace

std::string unfit_name(std::vector<std::string> names) {
  std::ranges::sort(names);
  for (size_t i = 0; i < names.size(); ++i) {
    const bool repeats = i > 0 && names[i] == names[i - 1];
    if (repeats || has_control_character(names[i]) || check_utf8(names[i]).valid < names[i].size())
      return names[i];
  }
  return "";
}

void ClassOptions::validate(Problems& problems) const {
  const std::string unfit = unfit_name(class_names);
  if (!unfit.empty()) {
    problems.add("class_names", quoted_excerpt(unfit) + " repeats, or is not plain UTF-8 text");
  } else if (!class_names.empty() && std::ssize(class_names) != classes) {
    problems.add("class_names",
                 fmt::format("{} names, and data.classes is {}", class_names.size(), *classes));
  }
}

void ClassOptions::find(const std::function<std::vector<std::string>(Split)>& names_of) {
  if (classes == 0 || !class_names.empty()) return;
  for (const Split split : {Split::kTrain, Split::kValid}) {
    try {
      const std::vector<std::string> names = names_of(split);
      if (!classes) classes = names.size() < 2 ? 0 : std::ssize(names);
      if (std::ssize(names) == classes && unfit_name(names).empty()) class_names = names;
      return;
    } catch (const DataError&) {
      continue;  // opening the split tells
    }
  }
}

ClassLabels label_classes(const std::vector<std::string>& found, const ClassOptions& options,
                          const std::string& place, Split split) {
  if (!options.classes) throw DataError(place + ": was not there at the start", "start again");
  const std::vector<std::string>& names = options.class_names;
  ClassLabels labels;
  if (found.empty() && !names.empty()) {
    labels.warnings.push_back(
        place + ": names no classes; its labels are taken for places in data.class_names");
  } else if (!found.empty() && std::ssize(found) < *options.classes) {
    (split == Split::kTrain ? labels.warnings : labels.notes)
        .push_back(fmt::format("{}: has {} of the {} classes of data.classes", place, found.size(),
                               *options.classes));
  }
  if (const std::string unfit = unfit_name(found); names.empty() && !unfit.empty()) {
    labels.warnings.push_back(
        fmt::format("{}: its classes are numbers without names, since {} repeats, or is not plain "
                    "UTF-8 text; rename it",
                    place, quoted_excerpt(unfit)));
  }
  if (found.empty() || names.empty()) return labels;
  std::map<std::string, int64_t> label_of;
  for (const std::string& name : names) label_of.emplace(name, std::ssize(label_of));
  for (const std::string& name : found) {
    if (!label_of.contains(name)) {
      throw DataError(
          fmt::format("{}: its class {} is not in data.class_names{}", place, quoted_excerpt(name),
                      did_you_mean(name, names)),
          "rename it or take it away, or train a new model with other data.class_names");
    }
    labels.label_of.push_back(label_of.at(name));
  }
  if (!std::ranges::is_sorted(labels.label_of)) {
    labels.notes.push_back(
        place + ": its classes are in another order than data.class_names, and labelled by name");
  }
  return labels;
}

ClassOptions* class_options_of(Choice<DataSource>& source) {
  return config::find_options<ClassOptions>(config::type_of<Choice<DataSource>>(), &source);
}

}  // namespace shoal
