#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/parsers/recipe_helper.h"
#include "tests/support/peak_memory.h"

namespace shoal::sample {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// One bad input and the only line that must come back.
struct Case {
  const char* name;
  std::string text;
  std::string line;
};

/// One bad override on a good recipe.
struct OverrideCase {
  const char* name;
  std::vector<std::string> overrides;
  std::string line;
};

std::string repeat(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

const std::vector<Case>& yaml_cases() {
  static const std::vector<Case> cases{
      {"Empty", "", "r.yaml:1:1: empty document"},
      {"OnlyComment", "# nothing\n", "r.yaml:1:1: empty document"},
      {"OnlyMarker", "---\n", "r.yaml:2:1: empty document"},
      {"Scalar", "train\n", "r.yaml:1:1: expected a mapping of keys, found 'train'"},
      {"List", "- a\n- b\n", "r.yaml:1:1: expected a mapping of keys, found a list"},
      {"SecondDocument", kGood + "---\nseed: 2\n",
       "r.yaml:4:1: text after the first document; a recipe is one document"},
      {"EmptySecondDocument", kGood + "---\n",
       "r.yaml:4:1: text after the first document; a recipe is one document"},
      {"TextAfterEnd", kGood + "...\nseed: 2\n",
       "r.yaml:5:1: text after the first document; a recipe is one document"},
      {"ListThenMapping", "- x\na: 1\n",
       "r.yaml:2:1: text after the first document; a recipe is one document"},
      {"OpenBracket", kGood + "data: {files: [a\n",
       "r.yaml:5:1: not YAML: end of sequence flow not found"},
      {"Tab", "\tseed: 1\n", "r.yaml:1:1: not YAML: a tab in the indentation; indent with spaces"},
      {"TabBelowASection", "model:\n\tbackbone: mixer\n",
       "r.yaml:2:1: not YAML: a tab in the indentation; indent with spaces"},
      {"TabBehindBlanks", "model:\n  backbone: mixer\n \twidth: 8\n",
       "r.yaml:3:2: not YAML: a tab in the indentation; indent with spaces"},
      {"ReferenceInFlow", kGood + "data: {path: ${env:DATA}}\n",
       "r.yaml:4:15: not YAML: end of map flow not found; inside {...} or [...] a reference needs "
       "quotes"},
      {"DuplicateKey", kGood + "seed: 1\nseed: 2\n",
       "r.yaml:5:1: seed: duplicate key, first given in line 4"},
      {"DuplicateInFlow", "model: {backbone: mixer}\ntrain: {duration: 1ep, batch: 8, batch: 9}\n",
       "r.yaml:2:34: train.batch: duplicate key, first given in line 2"},
      {"DuplicateQuoted", kGood + "seed: 1\n\"seed\": 2\n",
       "r.yaml:5:1: seed: duplicate key, first given in line 4"},
      {"Anchor", kGood + "seed: &s 1\n",
       "r.yaml:4:7: seed: anchor '&s': anchors are not supported; use ${path.to.key}"},
      {"AnchorOnMapping", kGood + "data: &d {flip: true}\n",
       "r.yaml:4:7: data: anchor '&d': anchors are not supported; use ${path.to.key}"},
      {"UnknownAlias", kGood + "seed: *s\n",
       "r.yaml:4:7: not YAML: the referenced anchor is not defined"},
      {"Tag", kGood + "seed: !!int 1\n", "r.yaml:4:7: seed: tag '!!int': tags are not supported"},
      {"PythonTag", kGood + "data: !!python/object {flip: true}\n",
       "r.yaml:4:7: data: tag '!!python/object': tags are not supported"},
      {"LoneTag", kGood + "seed: ! 1\n", "r.yaml:4:7: seed: tag '!': tags are not supported"},
      {"MergeKey", kGood + "data:\n  <<: {flip: true}\n",
       "r.yaml:5:3: data: merge key '<<' is not supported; use include"},
      {"ListAsKey", kGood + "data:\n  ? [a, b]\n  : c\n",
       "r.yaml:5:5: data: a key must be plain text, found a list"},
      {"NullAsKey", kGood + "data:\n  ~: c\n",
       "r.yaml:5:3: data: a key must be plain text, found '~'"},
  };
  return cases;
}

const std::vector<Case>& limit_cases() {
  static const std::vector<Case> cases{
      {"DeepNesting", "a: " + repeat("[", 40) + repeat("]", 40) + "\n",
       "r.yaml:1:35: a" + repeat("[0]", 31) + ": nesting deeper than 32 levels"},
      {"TooManyValues", "a:\n" + repeat("- 1\n", 120000),
       "r.yaml:99999:3: a[99997]: more than 100000 values"},
      {"TooManyCommas", "a: [" + repeat("1,", 200000) + "]\n",
       "r.yaml:1:1: more than 100000 of the characters [{,:?&*!: this is not a recipe"},
      {"TooManyBrackets", "a: " + repeat("[", 100000),
       "r.yaml:1:1: more than 10000 '[' or '{': nesting like this is not a recipe"},
      {"TooLarge", std::string((1 << 20) + 1, '#'),
       "r.yaml:1:1: larger than 1 MiB; this is not a recipe"},
      {"NotUtf8", "seed: \xff\xfe\n", "r.yaml:1:7: this byte is not UTF-8"},
      {"Utf16",
       std::string("\xff\xfe"
                   "a\0:\0",
                   6),
       "r.yaml:1:1: this byte is not UTF-8"},
      {"OverlongUtf8", "seed: 1\n# \xc0\xaf\n", "r.yaml:2:3: this byte is not UTF-8"},
      {"Surrogate", "# \xed\xa0\x80\n", "r.yaml:1:3: this byte is not UTF-8"},
      {"EndOfTransmission", kGood + "# \x04\nseed: x\n",
       "r.yaml:4:3: control character; text only"},
      {"NulByte", kGood + std::string("\0", 1), "r.yaml:4:1: control character; text only"},
  };
  return cases;
}

const std::vector<Case>& value_cases() {
  static const std::vector<Case> cases{
      {"Octal", kGood + "seed: 010\n",
       "r.yaml:4:7: seed: expected an integer, found '010'; a leading zero could mean octal, leave "
       "it out"},
      {"Hexadecimal", kGood + "seed: 0x10\n",
       "r.yaml:4:7: seed: expected an integer, found '0x10'"},
      {"Fraction", kGood + "seed: 1.5\n", "r.yaml:4:7: seed: expected an integer, found '1.5'"},
      {"InexactExponent", kGood + "seed: 1e-3\n",
       "r.yaml:4:7: seed: expected an integer, found '1e-3', which is not whole"},
      {"IntegerTooLarge", kGood + "seed: 9223372036854775808\n",
       "r.yaml:4:7: seed: the integer '9223372036854775808' is out of range (64 bits)"},
      {"HugeExponent", kGood + "seed: 1e999999999999\n",
       "r.yaml:4:7: seed: the integer '1e999999999999' is out of range (64 bits)"},
      {"QuotedInteger", kGood + "seed: \"1\"\n",
       "r.yaml:4:7: seed: expected an integer, found the quoted text \"1\""},
      {"EmptyInteger", kGood + "seed:\n",
       "r.yaml:4:1: seed: expected an integer, found nothing: the value is empty"},
      {"NullInteger", kGood + "seed: null\n",
       "r.yaml:4:7: seed: expected an integer, found 'null'"},
      {"ListForInteger", kGood + "seed: [1]\n",
       "r.yaml:4:7: seed: expected an integer, found a list"},
      {"TextForNumber", kGood + "optimizer: {lr: fast}\n",
       "r.yaml:4:17: optimizer.lr: expected a number, found 'fast'"},
      {"NotANumber", kGood + "optimizer: {lr: .nan}\n",
       "r.yaml:4:17: optimizer.lr: expected a finite number, found '.nan'"},
      {"Infinite", kGood + "optimizer: {lr: -.inf}\n",
       "r.yaml:4:17: optimizer.lr: expected a finite number, found '-.inf'"},
      {"Underflow", kGood + "optimizer: {lr: 1e-400}\n",
       "r.yaml:4:17: optimizer.lr: the number '1e-400' is out of range (64-bit float)"},
      {"Overflow", kGood + "optimizer: {lr: 1e400}\n",
       "r.yaml:4:17: optimizer.lr: the number '1e400' is out of range (64-bit float)"},
      {"LeadingZeroNumber", kGood + "optimizer: {lr: 00.1}\n",
       "r.yaml:4:17: optimizer.lr: expected a number, found '00.1'; leave the leading zero out"},
      {"BelowOpenRange", kGood + "optimizer: {lr: 0}\n",
       "r.yaml:4:17: optimizer.lr: must be above 0, found '0'"},
      {"AboveClosedRange", kGood + "data: {}\noptimizer: {beta1: 1}\n",
       "r.yaml:5:20: optimizer.beta1: must be at least 0 and below 1, found '1'"},
  };
  return cases;
}

const std::vector<Case>& kind_cases() {
  static const std::vector<Case> cases{
      {"BooleanYes", kGood + "data: {flip: yes}\n",
       "r.yaml:4:14: data.flip: expected true or false, found 'yes'"},
      {"BooleanOn", kGood + "data: {flip: on}\n",
       "r.yaml:4:14: data.flip: expected true or false, found 'on'"},
      {"BooleanCapital", kGood + "data: {flip: True}\n",
       "r.yaml:4:14: data.flip: expected true or false, found 'True'"},
      {"BooleanQuoted", kGood + "data: {flip: \"true\"}\n",
       "r.yaml:4:14: data.flip: expected true or false, found the quoted text \"true\""},
      {"BooleanNumber", kGood + "data: {flip: 1}\n",
       "r.yaml:4:14: data.flip: expected true or false, found '1'"},
      {"BooleanForText", kGood + "data: {path: false}\n",
       "r.yaml:4:14: data.path: expected text, found false; quote it if it is meant"},
      {"QuotedList", kGood + "data: {files: \"[a, b]\"}\n",
       "r.yaml:4:15: data.files: expected a list, found the quoted text \"[a, b]\"; leave the "
       "quotes out"},
      {"UnknownNameForSection", kGood + "optimizer: adam\n",
       "r.yaml:4:12: optimizer: expected a mapping of keys, found 'adam'; choose an optimizer as "
       "{name: NAME}"},
      {"NameForSectionOfMore", "model: mixer\ntrain: {duration: 1ep, batch: 8}\n",
       "r.yaml:1:8: model: expected a mapping of keys, found 'mixer'; write {backbone: mixer}"},
      {"ControlCharacterInAPath", kGood + "data: {path: \"a\\eb\"}\n",
       "r.yaml:4:14: data.path: a path has no control characters"},
      {"HomeForAPath", kGood + "data: {path: ~}\n",
       "r.yaml:4:14: data.path: '~' alone is null in YAML; write ~/ for the home folder"},
      {"ScalarForList", kGood + "data: {files: a.bin}\n",
       "r.yaml:4:15: data.files: expected a list, as [a.bin], found 'a.bin'"},
      {"EmptyList", kGood + "data: {files: []}\n", "r.yaml:4:15: data.files: the list is empty"},
      {"MappingInList", kGood + "data: {files: [a, {b: c}]}\n",
       "r.yaml:4:19: data.files[1]: expected text, found a mapping"},
      {"EmptySection", kGood + "data:\n",
       "r.yaml:4:1: data: expected a mapping of keys, found nothing: the value is empty"},
      {"ScalarForSection", kGood + "optimizer: lamb\n",
       "r.yaml:4:12: optimizer: expected a mapping of keys, found 'lamb'; write {name: lamb}"},
      {"DurationWithoutUnit", "model: {backbone: mixer}\ntrain: {duration: 10, batch: 8}\n",
       "r.yaml:2:19: train.duration: expected a duration, found '10', which needs a unit: 10step, "
       "10ep, 10tok"},
      {"DurationOfWrongKind", "model: {backbone: mixer}\ntrain: {duration: 10min, batch: 8}\n",
       "r.yaml:2:19: train.duration: expected a duration in step, ep or tok, found '10min'"},
      {"DurationOfNothing", "model: {backbone: mixer}\ntrain: {duration: 0ep, batch: 8}\n",
       "r.yaml:2:19: train.duration: must be above 0, found '0ep'"},
      {"UnknownWord",
       "model: {backbone: mixer, router: {order: slot_mayor}}\n"
       "train: {duration: 1ep, batch: 8}\n",
       "r.yaml:1:42: model.router.order: expected one of: slot_major, batch_priority, position, "
       "found 'slot_mayor'; did you mean 'slot_major'?"},
  };
  return cases;
}

const std::vector<Case>& key_cases() {
  static const std::vector<Case> cases{
      {"UnknownKey", "model: {backbone: mixer, num_expert: 4}\ntrain: {duration: 1ep, batch: 8}\n",
       "r.yaml:1:26: model.num_expert: unknown key; did you mean 'num_experts'?"},
      {"UnknownSection", kGood + "optimiser: {lr: 1}\n",
       "r.yaml:4:1: optimiser: unknown key; did you mean 'optimizer'?"},
      {"KeyInTheWrongSection", kGood + "batch: 8\n",
       "r.yaml:4:1: batch: unknown key; did you mean 'train.batch'?"},
      {"NothingNear", kGood + "zebra: 8\n", "r.yaml:4:1: zebra: unknown key"},
      {"KeyOfAnotherMember", kGood + "optimizer: {name: sgd, beta2: 0.5}\n",
       "r.yaml:4:24: optimizer.beta2: unknown key of optimizer 'sgd'; it belongs to lamb"},
      {"MissingKey", "model: {backbone: mixer}\ntrain:\n  duration: 10ep\n",
       "r.yaml:2:1: train.batch: required key is missing (samples per step)"},
      {"MisspeltRequiredKey", "model: {backbone: mixer}\ntrain: {duration: 10ep, bach: 8}\n",
       "r.yaml:2:25: train.bach: unknown key; did you mean 'batch'?"},
      {"MissingName", "model: {width: 8}\ntrain: {duration: 10ep, batch: 8}\n",
       "r.yaml:1:1: model.backbone: required key is missing; one of: mixer"},
      {"UnknownMember", kGood + "optimizer: {name: lamp}\n",
       "r.yaml:4:19: optimizer.name: unknown optimizer 'lamp'; one of: lamb, sgd; did you "
       "mean 'lamb'?"},
      {"ListForName", kGood + "optimizer: {name: [lamb]}\n",
       "r.yaml:4:19: optimizer.name: expected the name of an optimizer, found a list"},
      {"RuleBetweenKeys", kGood + "optimizer: {beta1: 0.9, beta2: 0.5}\n",
       "r.yaml:4:32: optimizer.beta2: must not be below beta1"},
      {"RuleOnAKeyNotGiven", kGood + "optimizer: {beta1: 0.9999}\n",
       "r.yaml:4:1: optimizer.beta2: must not be below beta1"},
      {"RuleBelow",
       "model: {backbone: mixer, router: {top_k: 9}}\n"
       "train: {duration: 1ep, batch: 8}\n",
       "r.yaml:1:42: model.router.top_k: must not be above num_experts"},
  };
  return cases;
}

const std::vector<Case>& reference_cases() {
  static const std::vector<Case> cases{
      {"ReferenceCycle", kGood + "seed: ${data.path}\ndata: {path: \"${seed}\"}\n",
       "r.yaml:4:7: seed: reference cycle: seed -> data.path -> seed"},
      {"ReferenceToItself", kGood + "seed: ${seed}\n",
       "r.yaml:4:7: seed: reference cycle: seed -> seed"},
      {"ReferenceToItsSection", kGood + "data:\n  path: ${data}\n",
       "r.yaml:5:9: data.path: reference cycle: data.path -> data.path"},
      {"ReferenceToNothing", kGood + "seed: ${train.bach}\n",
       "r.yaml:4:7: seed: this recipe does not set 'train.bach'; did you mean 'train.batch'?"},
      {"OpenReference", kGood + "seed: ${train.batch\n",
       "r.yaml:4:7: seed: '${' without '}'; write '$${' for the plain characters"},
      {"OddReference", kGood + "seed: ${a b}\n",
       "r.yaml:4:7: seed: '${a b}' is not a reference; write ${section.key} or ${env:NAME}"},
      {"ListInsideText", kGood + "data:\n  files: [a, b]\n  path: x/${data.files}\n",
       "r.yaml:6:9: data.path: ${data.files} is a list; only a single value can stand inside text"},
      {"UnsetVariable", kGood + "data:\n  path: ${env:NOWHERE}/x\n",
       "r.yaml:5:9: data.path: needs an environment variable that is not set: '${env:NOWHERE}/x'"},
      {"EmptyVariable", kGood + "data:\n  path: ${env:EMPTY}\n",
       "r.yaml:5:9: data.path: needs an environment variable that is not set: '${env:EMPTY}'"},
      {"EscapeCodesInAKey", kGood + "\"a\\e[31m\": 1\n", "r.yaml:4:1: a [31m: unknown key"},
  };
  return cases;
}

const std::vector<OverrideCase>& override_cases() {
  static const std::vector<OverrideCase> cases{
      {"NoOverride", {"seed"}, "command line: seed: is not an override; write key=value or ~key"},
      {"NoKey", {"=3"}, "command line: =3: '' is not a key; write section.key=value"},
      {"DoubleDot",
       {"train..batch=3"},
       "command line: train..batch=3: 'train..batch' is not a key; write section.key=value"},
      {"BadValue",
       {"seed=2", "train.batch=many"},
       "command line: train.batch=many: expected an integer, found 'many'"},
      {"EmptyValue",
       {"train.batch="},
       "command line: train.batch=: expected an integer, found nothing: the value is empty"},
      {"UnknownKey",
       {"train.bach=3"},
       "command line: train.bach=3: unknown key; did you mean 'batch'?"},
      {"KeyBelowAValue",
       {"seed.x=3"},
       "command line: seed.x=3: seed: expected an integer, found a mapping"},
      {"KeyBelowAGivenValue",
       {"train.batch.x=3"},
       "command line: train.batch.x=3: train.batch: is '8', so it has no keys to override"},
      {"KeyBelowNone",
       {"model.init_from=none", "model.init_from.x=3"},
       "command line: model.init_from.x=3: model.init_from: is 'none', so it has no keys to "
       "override; give all of it: model.init_from={...}"},
      {"ItemOfAList",
       {"data.files[0]=x"},
       "command line: data.files[0]=x: one item of a list cannot be set; give the whole list"},
      {"Include", {"include=x.yaml"}, "command line: include=x.yaml: can only be given in a file"},
      {"ScalarForAList",
       {"data.files=x"},
       "command line: data.files=x: expected a list, as [x], found 'x'"},
      {"BrokenValue",
       {"data.files=[a"},
       "command line: data.files=[a: not YAML: end of sequence flow not found"},
      {"AnchorInValue",
       {"seed=&a 3"},
       "command line: seed=&a 3: anchor '&a': anchors are not supported; use ${path.to.key}; quote "
       "the value: seed='\"&a 3\"'"},
      {"SignInValue",
       {"data.path=@a"},
       "command line: data.path=@a: not YAML: unknown token; quote the value: data.path='\"@a\"'"},
      {"DirectiveInValue",
       {"data.path=%a"},
       "command line: data.path=%a: expected text, found nothing: the value is empty; quote the "
       "value: data.path='\"%a\"'"},
      {"MappingForText",
       {"data.path=x: y"},
       "command line: data.path=x: y: expected text, found a mapping; quote the value: "
       "data.path='\"x: y\"'"},
      {"SecondDocumentInValue",
       {"seed=--- 3\n--- 4"},
       "command line: seed=--- 3 --- 4: text after the first document; a recipe is one document"},
  };
  return cases;
}

const std::vector<OverrideCase>& more_override_cases() {
  static const std::vector<OverrideCase> cases{
      {"NotUtf8", {"data.path=\xff"}, "command line: data.path=?: this byte is not UTF-8"},
      {"RemoveUnknown",
       {"~train.bach"},
       "command line: ~train.bach: unknown key: there is nothing to remove; did you mean "
       "'train.batch'?"},
      {"CommentInAValue",
       {"data.path=exp #3"},
       "command line: data.path=exp #3: '#3' is a comment in YAML and would be left out; quote the "
       "value: data.path='\"exp #3\"'"},
      {"NothingButAComment",
       {"data.path=#3"},
       "command line: data.path=#3: '#3' is a comment in YAML and would be left out; quote the "
       "value: data.path='\"#3\"'"},
      {"CommentBehindAHash",
       {"data.path=a#b #3"},
       "command line: data.path=a#b #3: '#3' is a comment in YAML and would be left out; quote the "
       "value: data.path='\"a#b #3\"'"},
      {"NameForSection",
       {"optimizer=sgd"},
       "command line: optimizer=sgd: expected a mapping of keys, found 'sgd'; write "
       "optimizer.name=sgd"},
      {"LongOverride",
       {"seed=" + repeat("\xc3\xa4", 60)},
       "command line: seed=" + repeat("\xc3\xa4", 27) + "...: expected an integer, found '" +
           repeat("\xc3\xa4", 60) + "'"},
      {"RemoveRequired",
       {"~train.batch"},
       "r.yaml:2:1: train.batch: required key is missing (samples per step)"},
      {"RemoveTwice",
       {"~model.backbone", "model.backbone=mixer", "~data"},
       "command line: ~data: unknown key: there is nothing to remove"},
  };
  return cases;
}

void expect_lines(const std::vector<Case>& cases) {
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.name);
    EXPECT_THAT(mistakes(bad.text), ElementsAre(bad.line));
  }
}

TEST(RecipeMistakes, AreTheOneLineExpectedForBadYaml) {
  expect_lines(yaml_cases());
  expect_lines(limit_cases());
}

TEST(RecipeMistakes, AreTheOneLineExpectedForBadValues) {
  expect_lines(value_cases());
  expect_lines(kind_cases());
}

TEST(RecipeMistakes, AreTheOneLineExpectedForBadKeysAndReferences) {
  expect_lines(key_cases());
  expect_lines(reference_cases());
}

TEST(RecipeMistakes, AreTheOneLineExpectedForBadOverrides) {
  for (const auto* cases : {&override_cases(), &more_override_cases()}) {
    for (const OverrideCase& bad : *cases) {
      SCOPED_TRACE(bad.name);
      EXPECT_THAT(mistakes(kGood, bad.overrides), ElementsAre(bad.line));
    }
  }
}

TEST(RecipeMistakes, ComeAllAtOnceInTheOrderOfTheFile) {
  const std::string text =
      "seed: x\n"
      "model: {backbone: mixer, widht: 4, router: {keep_fracton: 1, top_k: 0}}\n"
      "train: {duration: 1ep}\n";
  EXPECT_THAT(mistakes(text, {"data.flip=no"}),
              ElementsAre("r.yaml:1:7: seed: expected an integer, found 'x'",
                          "r.yaml:2:26: model.widht: unknown key; did you mean 'width'?",
                          "r.yaml:2:45: model.router.keep_fracton: unknown key; did you mean "
                          "'keep_fraction'?",
                          "r.yaml:2:69: model.router.top_k: must be at least 1, found '0'",
                          "r.yaml:3:1: train.batch: required key is missing (samples per step)",
                          "command line: data.flip=no: expected true or false, found 'no'"));
}

TEST(RecipeMistakes, ExitWithTheCodeOfRecipes) {
  try {
    read("seed: x\n");
    FAIL() << "a bad recipe was read";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kRecipe);
  }
}

TEST(RecipeMistakes, StopAtAHundredLines) {
  std::string text = kGood;
  for (int i = 0; i < 5000; ++i) text += "key" + std::to_string(i) + ": 1\n";
  const std::vector<std::string> lines = mistakes(text);
  ASSERT_EQ(lines.size(), 101);
  EXPECT_EQ(lines[0], "r.yaml:4:1: key0: unknown key");
  EXPECT_EQ(lines[100], "and 4900 more mistakes");
}

TEST(RecipeMistakes, NestingIsRefusedBeforeTheParserRecurses) {
  EXPECT_THAT(mistakes("a: " + repeat("[", 9000)),
              ElementsAre(HasSubstr("nesting deeper than 32 levels")));
  EXPECT_THAT(mistakes("a: " + repeat("{b: ", 9000)),
              ElementsAre(HasSubstr("nesting deeper than 32 levels")));
  std::string block;
  for (int i = 0; i < 600; ++i) block += repeat(" ", i) + "a:\n";
  EXPECT_THAT(mistakes(block), ElementsAre(HasSubstr("nesting deeper than 32 levels")));
}

#if !defined(__SANITIZE_ADDRESS__)  // which keeps what was freed
TEST(RecipeMistakes, TakeLittleMemoryToFind) {
  const std::vector<std::string> hostile{
      "{" + repeat("a,", 500000),
      "[" + repeat("1,", 500000),
      repeat("[", 9990) + repeat("1,", 45000),
      repeat("{? ", 9000) + repeat("? ", 40000),
      "[" + repeat("&a ", 300000),
      "{" + repeat("\"\",", 90000),
      "{" + repeat("a: {},\n", 9990),
      repeat("[\n", 500000),
      "a:\n" + repeat("- - - - ", 100000),
      repeat("k: 1\n", 99000),
      "a: \"" + std::string(1 << 19, 'x') + "\"\n",
      "a: " + repeat("'' ", 300000),
  };
  for (const std::string& text : hostile) {
    EXPECT_LT(testing::peak_bytes_of([&] { mistakes(text); }), 64 << 20) << text.substr(0, 20);
    EXPECT_FALSE(mistakes(text).empty());
  }
}
#endif

TEST(RecipeMistakes, GrowNoBombsFromReferences) {
  std::string text = "a0: [1,1,1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string before = "\"${a" + std::to_string(i - 1) + "}\"";
    text += "a" + std::to_string(i) + ": [" + before + "," + before + "," + before + "]\n";
  }
  EXPECT_THAT(mistakes(text), ::testing::Contains(HasSubstr("references copy more than 100000")));
  text = "a0: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "${a" + std::to_string(i - 1) + "}";
    text += "a" + std::to_string(i) + ": " + before + before + "\n";
  }
  EXPECT_THAT(mistakes(text), ::testing::Contains(HasSubstr("longer than 64 KiB")));
}

}  // namespace
}  // namespace shoal::sample
