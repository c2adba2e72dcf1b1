#include "launch/recipe/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "launch/recipe/key_overview.h"
#include "launch/recipe/recipe.h"
#include "moe/routing/router.h"
#include "runtime/base/text.h"
#include "runtime/options/config_keys.h"
#include "runtime/options/key_synonyms.h"
#include "runtime/yaml/config_node.h"

namespace shoal {
namespace {

void add_owner(const config::MemberSet& set, const std::string& option, const std::string& member,
               std::vector<config::KeyOwner>& chosen) {
  if (member.empty()) return;
  if (set.find(member) == nullptr) {
    refuse_unknown(option + ": unknown " + set.noun(), member, set.names());
  }
  chosen.push_back({set.noun(), member});
}

std::vector<config::KeyOwner> chosen_owners(const KeysArguments& arguments) {
  std::vector<config::KeyOwner> chosen;
  add_owner(members_of<Backbone>(), "--backbone", arguments.backbone, chosen);
  add_owner(members_of<Task>(), "--task", arguments.task, chosen);
  add_owner(members_of<Router>(), "--router", arguments.router, chosen);
  add_owner(members_of<DataSource>(), "--data", arguments.data, chosen);
  return chosen;
}

[[noreturn]] void refuse_name(const std::string& name, const std::vector<config::KeyInfo>& all) {
  std::vector<std::string> known;
  std::set<std::string> containing;
  const auto add = [&](const std::string& path) {
    const std::string word(config::last_key(path));
    known.insert(known.end(), {path, word});
    const std::string& place = name.find('.') == std::string::npos ? word : path;
    if (name.size() > 2 && place.find(name) != std::string::npos) containing.insert(path);
  };
  for (const config::KeyInfo& key : all) {
    for (std::size_t dot = 0; dot != std::string::npos;) {
      dot = key.path.find('.', dot + 1);
      add(key.path.substr(0, dot));  // sections, and at last the key
    }
    for (const auto& [member, doc] : key.choices) add(member);
  }
  std::string guess = did_you_mean(name, known);
  if (!containing.empty()) {
    guess = "; names that contain it: " + join_words({containing.begin(), containing.end()});
  }
  throw Error(ExitCode::kUsage, "unknown key '" + name + "'" + guess,
              guess.empty() ? "see shoal keys" : "");
}

/// The keys that stand for what other programs call `name`, which may be in a section.
std::size_t print_synonyms(const std::vector<config::KeyInfo>& all, const std::string& name,
                           std::ostream& out) {
  const std::size_t dot = name.rfind('.');
  const std::string word = name.substr(dot + 1);  // of npos, too: the whole name
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  std::ostringstream found;
  std::size_t count = 0;
  const auto keys = config::keys_for_word(word, section.empty() ? "model" : section);
  for (const std::string& place : {section, std::string()}) {
    for (const std::string_view key : keys) {
      if (count > 0 && place != section) break;  // the section has some
      const bool is_within_another = std::ranges::any_of(
          keys, [key](std::string_view other) { return key.ends_with(fmt::format(".{}", other)); });
      if (is_within_another) continue;  // printed with the other
      count += config::print_keys(all, config::join_path(place, key), found);
    }
    if (section.empty()) break;
  }
  if (count == 0 && !section.empty()) count = config::print_keys(all, word, found);
  if (count > 0) out << "unknown key '" << name << "'; these may be meant:\n";
  out << found.str();
  return count;
}

/// Prints what recipes choose by `name`, such as the router sinkhorn, and the keys that it adds.
/// Returns the number of choices.
std::size_t print_choices(const std::vector<config::KeyInfo>& all, const std::string& name,
                          std::ostream& out) {
  std::set<std::string> lines, owners;
  for (const config::KeyInfo& key : all) {
    const std::size_t section = key.path.rfind('.', key.path.rfind('.') - 1) + 1;
    for (const auto& [member, doc] : key.choices) {
      if (member != name) continue;
      lines.insert(fmt::format("{}: {}\n    {}\n", key.path.substr(section), name, doc));
    }
    for (const config::KeyOwner& owner : key.owners) {
      if (owner.member == name) owners.insert(owner.noun);
    }
  }
  for (const std::string& line : lines) out << line;
  for (const std::string& noun : owners) config::print_member(all, {noun, name}, out);
  return lines.size();
}

/// Lines of at most `columns` where blanks allow; what follows a cut is indented.
std::string wrapped(const std::string& text, std::size_t columns, std::size_t indent_by = 4) {
  std::string result;
  for (std::string line : split(text, '\n')) {
    const std::size_t own = std::min(line.find_first_not_of(' '), line.size());
    const std::string indent(own + indent_by, ' ');
    while (line.size() > columns) {
      const std::size_t first = line.find_first_not_of(' ');
      std::size_t cut = line.rfind(' ', columns);
      if (cut == std::string::npos || cut < first) cut = line.find(' ', first);
      if (cut == std::string::npos) break;
      result += line.substr(0, line.find_last_not_of(' ', cut) + 1) + "\n";
      line = indent + line.substr(line.find_first_not_of(' ', cut));
    }
    result += line + "\n";
  }
  return result;
}

void print_answer(const KeysArguments& arguments, std::size_t columns, std::ostream& out) {
  const std::vector<config::KeyOwner> chosen = chosen_owners(arguments);
  const std::vector<config::KeyInfo> all =
      config::keys_with(config::list_keys(config::type_of<Recipe>()), chosen);
  if (!arguments.name.empty() || arguments.all) {
    std::size_t found = config::print_keys(all, arguments.name, out);
    found += print_choices(all, arguments.name, out);
    if (found == 0) found = print_synonyms(all, arguments.name, out);
    if (found == 0) refuse_name(arguments.name, all);
    return;
  }
  for (const config::KeyOwner& owner : chosen) {
    if (config::print_member(all, owner, out) == 0) {
      out << owner.noun << " " << owner.member << " has no keys\n";
    }
  }
  if (!chosen.empty()) {
    out << "\nshoal keys NAME documents a key, or a section, in full\n";
    return;
  }
  std::ostringstream overview;
  config::print_overview(all, overview);
  out << wrapped(overview.str(), columns, config::kNameWidth)
      << "\nshoal keys NAME              documents a section, key or choice: train, rigl\n"
         "shoal keys --backbone NAME   the keys of a backbone; so --task, --router, --data\n"
         "shoal keys --all             documents every key\n";
}

}  // namespace

std::string key_named(std::string name) {
  std::ranges::replace(name, '-', '_');
  const std::vector<config::KeyInfo> all = config::list_keys(config::type_of<Recipe>());
  std::vector<std::string_view> words = config::keys_for_word(name);
  words.insert(words.begin(), name);
  const auto depth = [](const config::KeyInfo& key) { return std::ranges::count(key.path, '.'); };
  for (const std::string_view word : words) {
    const config::KeyInfo* best = nullptr;
    for (const config::KeyInfo& key : all) {
      const bool is_named = key.path.ends_with(fmt::format(".{}", word));
      if (is_named && (best == nullptr || depth(key) < depth(*best))) best = &key;
    }
    if (best != nullptr && best->path.find('[') == std::string::npos) return best->path;
  }
  return "";
}

ExitCode keys(const KeysArguments& arguments, std::ostream& out) {
  constexpr std::size_t kUsual = 80, kFewest = 40;
  const std::size_t columns =
      arguments.columns ? std::max(kFewest, static_cast<std::size_t>(*arguments.columns)) : kUsual;
  std::ostringstream text;
  print_answer(arguments, columns, text);
  out << (arguments.columns ? wrapped(text.str(), columns) : text.str());
  return ExitCode::kOk;
}

}  // namespace shoal
