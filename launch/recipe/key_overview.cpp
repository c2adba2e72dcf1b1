#include "launch/recipe/key_overview.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string_view>

#include "runtime/base/text.h"
#include "runtime/yaml/config_node.h"

namespace shoal::config {
namespace {

/// A line of a name and words behind it.
void print_words(std::string name, const std::vector<std::string>& words, std::ostream& out) {
  name.resize(std::max(kNameWidth, name.size() + 2), ' ');
  out << name << join_words(words) << "\n";
}

std::string first_step(const std::string& path) { return path.substr(0, path.find('.')); }
std::string without_last_step(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

void add_new(std::vector<std::string>& words, const std::string& word) {
  if (std::ranges::find(words, word) == words.end()) words.push_back(word);
}

std::vector<std::string> names_of(const KeyInfo& choice) {
  std::vector<std::string> names;
  for (const auto& [name, doc] : choice.choices) names.push_back(name);
  return names;
}

/// `section` and what it holds, below it sections inside by their first step: "train (2 keys)".
void print_section(const std::vector<KeyInfo>& keys, const std::string& section,
                   std::ostream& out) {
  std::vector<std::string> words;
  const KeyInfo* lone = nullptr;
  bool is_section = false;
  for (const KeyInfo& key : keys) {
    if (!is_at_or_below(key.path, section) || !key.owners.empty()) continue;
    if (key.path == section) {
      lone = &key;
      continue;
    }
    is_section = true;
    if (!key.choices.empty() && without_last_step(key.path) == section) {
      print_words(key.path, names_of(key), out);
    } else {
      const std::string step = first_step(key.path.substr(section.size() + 1));
      add_new(words, step.substr(0, step.find('[')));
    }
  }
  if (lone != nullptr && !is_section) words.push_back(lone->type);
  if (!words.empty()) print_words(section, words, out);
}

/// A choice inside sections, and where it is.
struct InnerChoice {
  std::string name;
  std::vector<std::string> members, places;
};

/// Choices of the same members are one, whatever section they are in.
std::vector<InnerChoice> inner_choices(const std::vector<KeyInfo>& keys) {
  std::vector<InnerChoice> found;
  for (const KeyInfo& key : keys) {
    const std::string place = without_last_step(key.path);
    if (key.choices.empty() || place.find('.') == std::string::npos) continue;
    const std::vector<std::string> members = names_of(key);
    auto known = std::ranges::find(found, members, &InnerChoice::members);
    if (known == found.end()) {
      known = found.insert(
          known,
          {std::string(last_key(place)) + "." + std::string(last_key(key.path)), members, {}});
    }
    add_new(known->places, place);
  }
  return found;
}

/// A key of a member, or a section inside it.
struct MemberLine {
  std::string path;
  const KeyInfo* key = nullptr;
  int64_t num_inside = 0;  ///< keys

  std::string text() const {
    const std::string inside = num_inside > 0 ? counted(num_inside, "key") + " inside" : "";
    if (key == nullptr) return path + ": " + inside;
    const std::string value = key->is_required ? "required" : "default " + key->default_value;
    return path + ": " + key->doc + " (" + value + (inside.empty() ? "" : "; " + inside) + ")";
  }
};

/// Where the choice is: its section, "" for none.
std::string section_of(const std::vector<KeyInfo>& keys, const KeyOwner& owner,
                       const KeyInfo& first) {
  std::string section;
  for (const KeyInfo& key : keys) {
    const bool is_choice =  // whose type is its noun
        key.type == owner.noun && std::ranges::any_of(key.choices, [&owner](const auto& choice) {
          return choice.first == owner.member;
        });
    const std::string place = without_last_step(key.path);
    if (is_choice && is_at_or_below(first.path, place) && place.size() > section.size()) {
      section = place;
    }
  }
  return section;
}

}  // namespace

void print_overview(const std::vector<KeyInfo>& keys, std::ostream& out) {
  std::vector<std::string> sections;
  for (const KeyInfo& key : keys) add_new(sections, first_step(key.path));
  for (const std::string& section : sections) print_section(keys, section, out);
  out << "\ninside them:\n";
  for (const InnerChoice& choice : inner_choices(keys)) {
    print_words(choice.name, choice.members, out);
  }
}

std::size_t print_member(const std::vector<KeyInfo>& keys, const KeyOwner& owner,
                         std::ostream& out) {
  const auto is_of_owner = [&owner](const KeyInfo& key) {
    return std::ranges::find(key.owners, owner) != key.owners.end();
  };
  const auto first = std::ranges::find_if(keys, is_of_owner);
  if (first == keys.end()) return 0;
  const std::string section = section_of(keys, owner, *first);
  std::vector<MemberLine> lines;
  std::set<std::string_view> seen;  // with one member of an outer choice
  for (const KeyInfo& key : keys) {
    const bool is_inside = is_of_owner(key) && is_at_or_below(key.path, section);
    if (!is_inside || key.path == section || !seen.insert(key.path).second) continue;
    const std::string inner = first_step(key.path.substr(section.empty() ? 0 : section.size() + 1));
    const std::string top = join_path(section, inner.substr(0, inner.find('[')));
    if (lines.empty() || lines.back().path != top) lines.push_back({top});
    if (key.path == top) {
      lines.back().key = &key;
    } else {
      ++lines.back().num_inside;
    }
  }
  // A choice inside sections may be in several of them.
  const std::size_t shown_from = section.size() - last_key(section).size();
  for (const MemberLine& line : lines) out << line.text().substr(shown_from) << "\n";
  return lines.size();
}

std::vector<KeyInfo> keys_with(const std::vector<KeyInfo>& keys,
                               const std::vector<KeyOwner>& chosen) {
  const auto fits = [&chosen](const KeyInfo& key) {
    return std::ranges::none_of(key.owners, [&chosen](const KeyOwner& owner) {
      return std::ranges::any_of(chosen, [&owner](const KeyOwner& choice) {
        return choice.noun == owner.noun && choice.member != owner.member;
      });
    });
  };
  std::vector<KeyInfo> left;
  std::ranges::copy_if(keys, std::back_inserter(left), fits);
  return left;
}

}  // namespace shoal::config
