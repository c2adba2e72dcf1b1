#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <functional>

#include "launch/command_line/command_description.h"
#include "runtime/base/text.h"

namespace shoal {
namespace {

/// Calls `visit` with every command below `command` and its path: `data`, `data pack`.
void for_each_command(
    const CommandDescription& command, const std::string& path,
    const std::function<void(const std::string& path, const CommandDescription&)>& visit) {
  visit(path, command);
  for (const CommandDescription& below : command.commands) {
    for_each_command(below, path.empty() ? below.name : path + " " + below.name, visit);
  }
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// How a value is completed: `recipe`, `key` (with a `=` behind it), `name` (of a key), `file`,
/// `folder`, `choice`, or `text`, for which there is nothing to offer.
std::string kind_of(const OptionDescription& option) {
  if (!option.choices.empty()) return "choice";
  const std::string& value = option.value;
  if (value == "RECIPE") return "recipe";
  if (value == "KEY=VALUE") return "key";
  if (value == "NAME" && option.names.empty()) return "name";
  if (has(value, "FILE") || has(value, ".bin")) return "file";
  for (const char* word : {"FOLDER", "DIR", "CKPT", "RUN", "PATH", "OTHER", "OUT"}) {
    if (has(value, word)) return "folder";
  }
  return "text";
}

/// The text as one word in single quotes, for bash and zsh.
std::string quoted(const std::string& text) {
  return fmt::format("'{}'", replaced(text, "'", "'\\''"));
}

constexpr const char* kBashHead =
    R"bash(# Completion of shoal in bash; made by `shoal completion bash`.
_shoal_keys() {  # the keys of recipes, asked for once in a shell
  [ -n "${_shoal_known_keys-}" ] ||
    _shoal_known_keys=$("$1" keys --all 2>/dev/null | sed -n 's/^\([a-z][a-z0-9_.]*\)\(   (.*)\)\{0,1\}$/\1/p')
  printf '%s\n' "$_shoal_known_keys"
}
_shoal_recipes() { "$1" recipes 2>/dev/null | sed -n '/^[^ ].*[.]yaml$/p'; }
_shoal_offer() {  # _shoal_offer PROGRAM KIND WORD: what a value of this kind may be
  case $2 in
    recipe) compgen -f -X '!*.yaml' -- "$3"; compgen -d -- "$3"
            compgen -W "$(_shoal_recipes "$1")" -- "$3" ;;
    key) compgen -S = -W "$(_shoal_keys "$1")" -- "$3" ;;
    name) compgen -W "$(_shoal_keys "$1")" -- "$3" ;;
    file) compgen -f -- "$3" ;;
    folder) compgen -d -- "$3" ;;
    choice:*) local choices=${2#choice:}; compgen -W "${choices//,/ }" -- "$3" ;;
  esac
}
)bash";

constexpr const char* kBashTail = R"bash(_shoal() {
  local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} path='' given=0 index word
  local commands options words repeats value
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; ++index)); do
    word=${COMP_WORDS[index]}
    _shoal_command "$path"
    case " $commands " in *" $word "*) path="${path:+$path }$word"; continue ;; esac
    _shoal_value "$path" "${COMP_WORDS[index - 1]}"
    [[ $word == -* || -n $value ]] || ((++given))
  done
  _shoal_command "$path"
  _shoal_value "$path" "${COMP_WORDS[COMP_CWORD - 1]}"
  if [[ ${COMP_WORDS[COMP_CWORD - 1]} == '=' || $current == '=' ]]; then
    current=${current#=} value=file
  elif [[ -z $value && $current == -* ]]; then
    value="choice:$options"
  elif [[ -z $value && -n $commands ]]; then
    value="choice:$commands"
  elif [[ -z $value ]]; then
    local kinds=($words)
    value=${kinds[given]-}
    [ -n "$value" ] || [ -z "$repeats" ] || value=${kinds[${#kinds[@]} - 1]}
  fi
  case $value in key | name) _shoal_keys "$program" >/dev/null ;; esac  # for later, too
  mapfile -t COMPREPLY < <(_shoal_offer "$program" "$value" "$current" 2>/dev/null | sort -u)
  case $value in
    recipe | file | folder) compopt -o filenames 2>/dev/null ;;
    key) compopt -o nospace 2>/dev/null ;;
  esac
}
complete -F _shoal shoal
)bash";

std::string bash_value(const OptionDescription& option) {
  const std::string kind = kind_of(option);
  return kind == "choice" ? "choice:" + join_words(option.choices, ",") : kind;
}

std::string bash_script(const CommandDescription& program) {
  std::string commands, values;
  for_each_command(program, "", [&](const std::string& path, const CommandDescription& command) {
    std::vector<std::string> below, options, words;
    for (const CommandDescription& inner : command.commands) below.push_back(inner.name);
    for (const OptionDescription& option : command.options) {
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) {
        patterns.push_back(quoted(path + " " + name));
      }
      values += fmt::format("    {}) value={} ;;\n", join_words(patterns, " | "),
                            quoted(bash_value(option)));
    }
    bool repeats = false;
    for (const OptionDescription& word : command.words) {
      words.push_back(bash_value(word));
      repeats = word.repeats;
    }
    commands += fmt::format("    {}) commands={} options={} words={} repeats={} ;;\n", quoted(path),
                            quoted(join_words(below, " ")), quoted(join_words(options, " ")),
                            quoted(join_words(words, " ")), repeats ? "yes" : "''");
  });
  return kBashHead +
         fmt::format(
             "_shoal_command() {{  # what may follow a command\n  case $1 in\n{}  esac\n}}\n"
             "_shoal_value() {{  # what may follow an option of a command\n  value=''\n"
             "  case \"$1 $2\" in\n{}  esac\n}}\n",
             commands, values) +
         kBashTail;
}

constexpr const char* kZshHead = R"zsh(#compdef shoal
# Completion of shoal in zsh; made by `shoal completion zsh`.
_shoal_recipes() {
  local found=(${(M)${(f)"$(_call_program recipes ${(q)_shoal_program} recipes 2>/dev/null)"}:#[^ ]*.yaml})
  _alternative 'files:recipe:_files -g "*.yaml"' "known:recipe:compadd -a found"
}
_shoal_keys() {
  (( $+_shoal_known_keys )) || typeset -ga _shoal_known_keys=(
    ${(M)${${(f)"$(_call_program keys ${(q)_shoal_program} keys --all 2>/dev/null)"}%   \(*\)}:#[a-z][a-z0-9_.]#})
  if [[ $PREFIX == *=* ]]; then
    compset -P '*='
    _files
  else
    compadd "$@" -a _shoal_known_keys
  fi
}
)zsh";

/// The text within an `_arguments` specification.
std::string zsh_text(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"}) {
    text = replaced(text, special, std::string("\\") + special);
  }
  return text;
}

std::string zsh_action(const OptionDescription& option) {
  const std::string kind = kind_of(option);
  if (kind == "choice") return fmt::format("({})", join_words(option.choices, " "));
  if (kind == "recipe") return "_shoal_recipes";
  if (kind == "key") return "_shoal_keys -S =";
  if (kind == "name") return "_shoal_keys";
  if (kind == "file") return "_files";
  if (kind == "folder") return "_files -/";
  return " ";
}

std::string zsh_option(const OptionDescription& option) {
  const std::string value =
      option.value.empty() ? "" : fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
  const std::string rest = quoted("[" + zsh_text(option.doc) + "]" + value);
  if (option.repeats) {
    std::string all;
    for (const std::string& name : option.names) all += " '*'" + name + rest;
    return all;
  }
  const std::string names = join_words(option.names, " ");
  if (option.names.size() == 1) return " " + names + rest;
  return fmt::format(" '({})'{{{}}}{}", names, join_words(option.names, ","), rest);
}

std::string zsh_function(const std::string& path) {
  return path.empty() ? "_shoal_program_" : "_shoal_" + replaced(path, " ", "_") + "_";
}

std::string zsh_script(const CommandDescription& program) {
  std::string functions;
  for_each_command(program, "", [&](const std::string& path, const CommandDescription& command) {
    functions +=
        zsh_function(path) + "() {\n  local curcontext=$curcontext line state\n  _arguments -C";
    for (const OptionDescription& option : command.options) {
      functions += " \\\n   " + zsh_option(option);
    }
    for (std::size_t i = 0; i < command.words.size(); ++i) {
      const OptionDescription& word = command.words[i];
      functions += fmt::format(
          " \\\n    {}", quoted(fmt::format("{}:{}:{}", word.repeats ? "*" : std::to_string(i + 1),
                                            zsh_text(word.value), zsh_action(word))));
    }
    if (!command.commands.empty()) {
      functions += " \\\n    '1: :->command' '*:: :->below'\n  case $state in\n    command)\n";
      functions += "      local commands=(";
      for (const CommandDescription& below : command.commands) {
        functions += "\n        " + quoted(below.name + ":" + replaced(below.doc, ":", "\\:"));
      }
      functions += ")\n      _describe command commands ;;\n    below)\n      case $line[1] in\n";
      for (const CommandDescription& below : command.commands) {
        functions += fmt::format("        {}) {} ;;\n", below.name,
                                 zsh_function(path.empty() ? below.name : path + " " + below.name));
      }
      functions += "      esac ;;\n  esac";
    }
    functions += "\n}\n";
  });
  return kZshHead + functions +
         "_shoal() {\n  local _shoal_program=$words[1]\n  _shoal_program_\n}\n"
         "# Loaded from a folder of completions, or by `source`.\n"
         "if [[ $funcstack[1] == _shoal ]]; then _shoal \"$@\"; else compdef _shoal shoal; fi\n";
}

constexpr const char* kFishTail =
    R"fish(function __shoal_at # __shoal_at COMMAND [TEST NUMBER]: how many words have followed it, options apart
    set -l path
    set -l given 0
    set -l previous
    for word in (commandline -opc)[2..]
        if contains -- (string trim -- "$path $previous") $__shoal_options
            set previous # this word is its value
            continue
        end
        set previous $word
        set -l next (string trim -- "$path $word")
        if contains -- $next $__shoal_commands
            set path $next
        else if not string match -q -- '-*' $word
            set given (math $given + 1)
        end
    end
    test "$path" = "$argv[1]"; and begin
        not set -q argv[3]; or test $given $argv[2] $argv[3]
    end
end
function __shoal_keys
    set -l program (commandline -opc)[1]
    set -q __shoal_known_keys
    or set -g __shoal_known_keys ($program keys --all 2>/dev/null | string replace -rf '^([a-z][a-z0-9_.]*)(   \(.*\))?$' '$1')
    printf "%s$argv[1]\n" $__shoal_known_keys
end
function __shoal_recipes
    set -l program (commandline -opc)[1]
    __fish_complete_suffix .yaml
    $program recipes 2>/dev/null | string match -r '^[^ ].*[.]yaml$'
end
complete -c shoal -f
)fish";

std::string fish_quoted(const std::string& text) {
  return fmt::format("'{}'", replaced(replaced(text, "\\", "\\\\"), "'", "\\'"));
}

std::string fish_values(const OptionDescription& option) {
  const std::string kind = kind_of(option);
  if (kind == "choice") return join_words(option.choices, " ");
  if (kind == "recipe") return "(__shoal_recipes)";
  if (kind == "key") return "(__shoal_keys =)";
  if (kind == "name") return "(__shoal_keys)";
  if (kind == "file") return "(__fish_complete_path)";
  if (kind == "folder") return "(__fish_complete_directories)";
  return "";
}

std::string fish_option(const OptionDescription& option) {
  std::string line;
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.value.empty()) line += " -x -a " + fish_quoted(fish_values(option));
  return line + " -d " + fish_quoted(option.doc);
}

std::string fish_script(const CommandDescription& program) {
  std::string lines, paths, options;
  for_each_command(program, "", [&](const std::string& path, const CommandDescription& command) {
    const std::string condition = "__shoal_at " + fish_quoted(path);
    const std::string start = "complete -c shoal -n " + fish_quoted(condition);
    if (!path.empty()) paths += " " + fish_quoted(path);
    for (const CommandDescription& below : command.commands) {
      lines += start + " -a " + below.name + " -d " + fish_quoted(below.doc) + "\n";
    }
    for (const OptionDescription& option : command.options) {
      lines += start + fish_option(option) + "\n";
      if (option.value.empty()) continue;
      for (const std::string& name : option.names) {
        options += fmt::format(" {}", fish_quoted(path.empty() ? name : path + " " + name));
      }
    }
    for (std::size_t i = 0; i < command.words.size(); ++i) {
      const std::string values = fish_values(command.words[i]);
      const std::string place =
          condition + (command.words[i].repeats ? " -ge " : " -eq ") + std::to_string(i);
      if (values.empty()) continue;
      lines += "complete -c shoal -n " + fish_quoted(place) + " -a " + fish_quoted(values) + "\n";
    }
  });
  return "# Completion of shoal in fish; made by `shoal completion fish`.\n"
         "set -g __shoal_commands" +
         paths + "\nset -g __shoal_options" + options + " # that take a value\n" + kFishTail +
         lines;
}

}  // namespace

std::vector<std::string> completion_shells() { return {"bash", "zsh", "fish"}; }

std::string completion_script(const CommandDescription& program, const std::string& shell) {
  if (shell == "bash") return bash_script(program);
  if (shell == "zsh") return zsh_script(program);
  TORCH_CHECK(shell == "fish", "no completion for the shell '", shell, "'");
  return fish_script(program);
}

}  // namespace shoal
