#include "launch/command_line/command_description.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

OptionDescription option(std::vector<std::string> names, std::string value, std::string doc) {
  OptionDescription result;
  result.names = std::move(names);
  result.value = std::move(value);
  result.doc = std::move(doc);
  return result;
}

/// `fish train RECIPE [KEY=VALUE ...] [--pace PACE] [-o FILE]`, `fish net mend DIR --with THREAD`.
CommandDescription small_program() {
  OptionDescription recipe = option({}, "RECIPE", "what to do");
  recipe.is_required = true;
  OptionDescription keys = option({}, "KEY=VALUE", "sets a key");
  keys.repeats = true;
  OptionDescription pace = option({"--pace"}, "PACE", "it's [how] fast: in all");
  pace.choices = {"slow", "quick"};
  CommandDescription train;
  train.name = "train";
  train.doc = "Train a recipe";
  train.footer = "Examples:\n  fish train r.yaml\n.hidden\\too";
  train.options = {pace, option({"-o", "--output"}, "FILE", "where to")};
  train.words = {recipe, keys};
  OptionDescription thread = option({"--with"}, "THREAD", "what with");
  thread.is_required = true;
  CommandDescription mend;
  mend.name = "mend";
  mend.doc = "Mend a net";
  mend.options = {thread};
  mend.words = {option({}, "DIR", "the net's")};
  CommandDescription net;
  net.name = "net";
  net.doc = "Nets";
  net.commands = {mend};
  CommandDescription program;
  program.name = "fish";
  program.doc = "Swims";
  program.options = {option({"--version"}, "", "of the fish")};
  program.commands = {train, net};
  return program;
}

TEST(Completion, BashOffersTheWordsOfEachCommand) {
  const std::string script = completion_script(small_program(), "bash");
  EXPECT_THAT(script, HasSubstr("'') commands='train net' options='--version' "));
  EXPECT_THAT(script, HasSubstr("'train') commands='' options='--pace -o --output' "
                                "words='recipe key' repeats=yes"));
  EXPECT_THAT(script, HasSubstr("'net mend') commands='' options='--with' words='folder' "
                                "repeats=''"));
  EXPECT_THAT(script, HasSubstr("'train -o' | 'train --output') value='file'"));
  EXPECT_THAT(script, HasSubstr("'train --pace') value='choice:slow,quick'"));
  EXPECT_THAT(script, HasSubstr("'net mend --with') value='text'"));
}

TEST(Completion, ZshEscapesWhatItsSpecificationsReadOtherwise) {
  const std::string script = completion_script(small_program(), "zsh");
  EXPECT_THAT(script, HasSubstr(R"(--pace'[it'\''s \[how\] fast\: in all]:PACE:(slow quick)')"));
  EXPECT_THAT(script, HasSubstr("'(-o --output)'{-o,--output}'[where to]:FILE:_files'"));
  EXPECT_THAT(script, HasSubstr("'1:RECIPE:_shoal_recipes'"));
  EXPECT_THAT(script, HasSubstr("'*:KEY=VALUE:_shoal_keys -S ='"));
  EXPECT_THAT(script, HasSubstr("mend) _shoal_net_mend_ ;;"));
}

TEST(Completion, FishOffersWordsAtTheirPlace) {
  const std::string script = completion_script(small_program(), "fish");
  EXPECT_THAT(script, HasSubstr("set -g __shoal_commands 'train' 'net' 'net mend'\n"));
  EXPECT_THAT(script, HasSubstr("set -g __shoal_options 'train --pace' 'train -o' "
                                "'train --output' 'net mend --with' "));
  EXPECT_THAT(script, HasSubstr(R"('__shoal_at \'net\'' -a mend -d 'Mend a net')"));
  EXPECT_THAT(script, HasSubstr(R"('__shoal_at \'train\'' -s o -l output -x)"));
  EXPECT_THAT(script, HasSubstr(R"('__shoal_at \'train\' -eq 0' -a '(__shoal_recipes)')"));
  EXPECT_THAT(script, HasSubstr(R"('__shoal_at \'train\' -ge 1' -a '(__shoal_keys =)')"));
  EXPECT_THAT(script, HasSubstr(R"(-d 'it\'s [how] fast: in all')"));
}

TEST(Completion, KnowsTheShellsItNames) {
  for (const std::string& shell : completion_shells()) {
    EXPECT_THAT(completion_script(small_program(), shell), HasSubstr("made by `shoal completion "));
  }
  EXPECT_THROW(completion_script(small_program(), "csh"), c10::Error);
}

TEST(Manual, NamesCommandsWithTheirOptionsAndExamples) {
  const std::string page = manual_page(small_program(), build_info());
  EXPECT_THAT(page, HasSubstr(".SS train RECIPE [KEY=VALUE ...] [OPTION ...]\nTrain a recipe.\n"));
  EXPECT_THAT(page, HasSubstr(".SS net mend [DIR] \\-\\-with THREAD [OPTION ...]\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIFILE\\fR\nwhere to\n"));
  EXPECT_THAT(page, HasSubstr("it's [how] fast: in all: slow, quick\n"));
  EXPECT_THAT(page, HasSubstr("\"shoal " + build_info().version + "\""));
}

TEST(Manual, PrintsTextThatRoffWouldReadAsARequest) {
  const std::string page = manual_page(small_program(), build_info());
  EXPECT_THAT(page, HasSubstr("\n\\&.hidden\\etoo\n"));
  EXPECT_THAT(page, Not(HasSubstr("\n.hidden")));
}

}  // namespace
}  // namespace shoal
