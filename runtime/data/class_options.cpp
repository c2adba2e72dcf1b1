#include "runtime/data/class_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/base/utf8.h"
#include "runtime/options/automatic_values.h"

namespace shoal {

const AutomaticValues<ClassOptions> automatic_class_options;

std::optional<std::string> unfit_name(std::vector<std::string> names) {
  std::ranges::sort(names);
  for (size_t i = 0; i < names.size(); ++i) {
    const bool repeats = i > 0 && names[i] == names[i - 1];
    const bool is_text =
        !has_control_character(names[i]) && check_utf8(names[i]).valid == names[i].size();
    if (repeats || names[i].empty() || !is_text) return names[i];
  }
  return std::nullopt;
}

void ClassOptions::validate(Problems& problems) const {
  if (const auto unfit = unfit_name(class_names)) {
    problems.add("class_names",
                 quoted_excerpt(*unfit) + " is empty, repeats or is not plain UTF-8 text");
  } else if (!class_names.empty() && std::ssize(class_names) != classes) {
    problems.add("class_names",
                 fmt::format("{} names, and data.classes is {}", class_names.size(), *classes));
  }
}

void ClassOptions::find(const FindClasses& classes_of) {
  if (classes == 0 || !class_names.empty()) return;
  for (const Split split : {Split::kTrain, Split::kValid}) {
    try {
      const std::vector<std::string> names = classes_of(split).names;
      if (!classes) classes = names.size() < 2 ? 0 : std::ssize(names);
      if (std::ssize(names) == classes && !unfit_name(names)) class_names = names;
      return;
    } catch (const DataError&) {
      continue;  // opening the split tells
    }
  }
}

void ClassOptions::check(const FindClasses& classes_of, Problems& problems) const {
  if (classes.value_or(0) == 0) return;
  for (const Split split : {Split::kTrain, Split::kValid}) {
    FoundClasses found;
    try {
      found = classes_of(split);
      const bool is_checked = split == Split::kTrain || class_names.empty();
      if (is_checked) label_classes(found.names, *this, found.place, split);
    } catch (const DataError& error) {  // unless there are names, opening the split tells
      if (found.names.empty()) continue;
      problems.add(class_names.empty() ? "classes" : "class_names", error.what());
    }
  }
}

ClassLabels label_classes(const std::vector<std::string>& found, const ClassOptions& options,
                          const std::string& place, Split split) {
  if (!options.classes) throw DataError(place + ": was not there at the start", "start again");
  const std::vector<std::string>& names = options.class_names;
  ClassLabels labels;
  const bool is_counted = names.empty() && !found.empty() && *options.classes > 0;
  if (is_counted && std::ssize(found) != *options.classes) {
    throw DataError(fmt::format("{}: {}, and data.classes is {}", place,
                                counted(std::ssize(found), "class name"), *options.classes),
                    "set data.classes to that number for a new model; a trained one needs the "
                    "data, or the list "
                    "of names, of all its classes");
  }
  if (found.empty() && !names.empty()) {
    labels.warnings.push_back(
        place + ": names no classes; its labels are taken for places in data.class_names");
  } else if (!found.empty() && std::ssize(found) < *options.classes) {
    (split == Split::kTrain ? labels.warnings : labels.notes)
        .push_back(fmt::format("{}: has {} of the {} classes of data.classes", place, found.size(),
                               *options.classes));
  }
  const std::optional<std::string> unfit = unfit_name(found);
  if (is_counted && unfit) {
    labels.warnings.push_back(
        fmt::format("{}: its classes are numbers without names, since {} is empty, repeats or is "
                    "not plain UTF-8 text; rename its folder (and pack again)",
                    place, quoted_excerpt(*unfit)));
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
