#include "runtime/options/registry.h"

#include <cstddef>
#include <stdexcept>

#include "runtime/base/text.h"

namespace shoal::config {

const MemberInfo* MemberSet::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

const MemberInfo& MemberSet::at(std::string_view name) const {
  if (const MemberInfo* member = find(name)) return *member;
  throw ConfigError("unknown " + noun_ + " '" + std::string(name) +
                    "'; one of: " + join_words(names()));
}

std::vector<const MemberInfo*> MemberSet::members() const {
  std::vector<const MemberInfo*> result;
  for (const auto& [name, member] : by_name_) result.push_back(&member);
  return result;
}

std::vector<std::string> MemberSet::names() const {
  std::vector<std::string> result;
  for (const auto& [name, member] : by_name_) result.push_back(name);
  return result;
}

void MemberSet::add(MemberInfo info) {
  const std::string name = info.name;
  if (!by_name_.try_emplace(name, std::move(info)).second) {
    throw std::logic_error("two members of one set are registered as '" + name + "'");
  }
}

ChoiceValue::ChoiceValue(const ChoiceValue& other) : member_(other.member_) {
  if (member_) options_ = member_->options_type().copy(other.erased_options());
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
  set_options(member, member.options_type().make());
}

void ChoiceValue::set_options(const MemberInfo& member, std::shared_ptr<void> options) {
  member_ = &member;
  options_ = std::move(options);
}

const void* ChoiceValue::options_of_type(const Type& wanted) const {
  if (member_ && &member_->options_type() == &wanted) return erased_options();
  throw std::logic_error("these are not the options of '" + name() + "'");
}

void visit_all(const Type& type, void* object,
               const std::function<void(const Type& type, void* object)>& visit) {
  if (type.element != nullptr) {  // optionals, lists and maps of sections
    for (std::size_t i = 0; i < type.size(object); ++i) {
      visit_all(type.element(), const_cast<void*>(type.at(object, i)), visit);
    }
  }
  if (type.kind == Kind::kChoice) {
    auto& choice = const_cast<ChoiceValue&>(type.choice(object));
    if (choice.is_empty()) return;
    visit_all(choice.member()->options_type(), choice.erased_options(), visit);
  }
  for (const FieldInfo& field : type.fields) visit_all(field.type(), field.member(object), visit);
  visit(type, object);
}

}  // namespace shoal::config
