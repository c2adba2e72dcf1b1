#include "runtime/recipe/registry.h"

#include <stdexcept>

#include "runtime/base/text.h"
#include "runtime/recipe/config_value.h"

namespace shoal::config {

ChoiceValue::ChoiceValue(const ChoiceValue& other) : member_(other.member_) {
  if (member_) options_ = member_->copy_options(other.erased_options());
}

ChoiceValue& ChoiceValue::operator=(const ChoiceValue& other) {
  if (this != &other) *this = ChoiceValue(other);
  return *this;
}

const std::string& ChoiceValue::name() const {
  static const std::string none;
  return member_ ? member_->name : none;
}

void ChoiceValue::choose(const MemberInfo& member) {
  if (member_ == &member) return;
  set_options(member, member.make_options());
}

void ChoiceValue::set_options(const MemberInfo& member, std::shared_ptr<void> options) {
  member_ = &member;
  options_ = std::move(options);
}

const void* ChoiceValue::options_of_type(const Type& wanted) const {
  if (member_ && &member_->options_type() == &wanted) return erased_options();
  throw std::logic_error("these are not the options of '" + name() + "'");
}

const MemberInfo& find_member(const MemberSet& set, std::string_view name) {
  if (const MemberInfo* member = set.find(name)) return *member;
  throw ConfigError("no " + std::string(set.noun()) + " is called '" + std::string(name) +
                    "'; one of: " + join_words(member_names(set)));
}

}  // namespace shoal::config
