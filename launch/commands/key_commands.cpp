#include <algorithm>
#include <string>
#include <vector>

#include "launch/commands/commands.h"
#include "launch/job/recipe.h"
#include "moe/routing/router.h"
#include "runtime/base/text.h"
#include "runtime/recipe/config_keys.h"
#include "runtime/recipe/key_overview.h"

namespace shoal {
namespace {

void add_owner(const config::MemberSet& set, const std::string& option, const std::string& member,
               std::vector<config::KeyOwner>& chosen) {
  if (member.empty()) return;
  if (set.find(member) == nullptr) {
    const std::string guess = did_you_mean(member, set.names());
    throw Error(ExitCode::kUsage,
                option + ": no " + set.noun() + " is called '" + member + "'" + guess,
                guess.empty() ? "one of: " + join_words(set.names()) : "");
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
  std::vector<std::string> paths;
  for (const config::KeyInfo& key : all) {
    for (std::size_t dot = key.path.find('.'); dot != std::string::npos;
         dot = key.path.find('.', dot + 1)) {
      paths.push_back(key.path.substr(0, dot));
    }
    paths.push_back(key.path);
  }
  const std::string guess = did_you_mean(name, paths);
  throw Error(ExitCode::kUsage, "no key is called '" + name + "'" + guess,
              guess.empty() ? "see shoal keys" : "");
}

void print_hints(std::ostream& out) {
  out << "\nshoal keys NAME              documents a section or a key: optimizer, train.batch, "
         "router\n"
         "shoal keys --backbone NAME   the keys of a backbone; so --task, --router, --data\n"
         "shoal keys --all             documents every key\n";
}

}  // namespace

ExitCode keys(const KeysArguments& arguments, std::ostream& out) {
  const std::vector<config::KeyOwner> chosen = chosen_owners(arguments);
  const std::vector<config::KeyInfo> all =
      config::keys_with(config::list_keys(config::type_of<Recipe>()), chosen);
  if (!arguments.name.empty() || arguments.all) {
    if (config::print_keys(all, arguments.name, out) == 0) refuse_name(arguments.name, all);
    return ExitCode::kOk;
  }
  for (const config::KeyOwner& owner : chosen) {
    if (config::print_member(all, owner, out) == 0) {
      out << owner.noun << " " << owner.member << " has no keys\n";
    }
  }
  if (!chosen.empty()) {
    out << "\nshoal keys NAME documents a key, or a section, in full\n";
    return ExitCode::kOk;
  }
  config::print_overview(all, out);
  print_hints(out);
  return ExitCode::kOk;
}

}  // namespace shoal
