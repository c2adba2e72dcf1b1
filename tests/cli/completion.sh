#!/usr/bin/env bash
# `shoal completion` and `shoal man` name every command and every option of `--help`; bash completes
# them, and recipes, keys and files. zsh and fish read their scripts where they are installed.
source "$(dirname "$0")/common.sh"
mkdir bin && ln -s "$program" bin/shoal
PATH=$PWD/bin:$PATH
# What completes calls it, too.
shoal() { answered "$@"; }
for shell in bash zsh fish; do
  expect 0 shoal completion "$shell"
  mv output "completion.$shell"
done
expect 0 shoal man
mv output shoal.1
expect 2 shoal completion csh
grep -q 'csh not in {bash,zsh,fish}' output || fail "an unknown shell: $(cat output)"

# subcommands COMMAND...: the names below `Subcommands:` in its help.
subcommands() { shoal "$@" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'; }
# options COMMAND...: the options of its help.
options() { shoal "$@" --help | sed -n 's/^  \(-[^ ]*\).*/\1/p' | sed 's/{[^}]*}//g' | tr , '\n'; }

# complete_words WORD...: what bash offers for the last word.
source completion.bash
complete_words() {
  COMP_WORDS=(shoal "$@") COMP_CWORD=$#
  _shoal
  printf '%s\n' "${COMPREPLY[@]}"
}
# offers WORD COMMAND...: the last argument is what is typed so far.
offers() {
  grep -qxF -- "$1" <<<"$(complete_words "${@:2}")" || fail "bash: '${*:2}' does not offer '$1'"
}

# check_command COMMAND...: the scripts and the manual name it, its options and all below it.
num_options=0
check_command() {
  local name offered of_fish
  offered=$(complete_words "$@" -)
  of_fish=$(grep -F -- "__shoal_at \\'$*\\'" completion.fish)
  for name in $(options "$@"); do
    grep -qxF -- "$name" <<<"$offered" || fail "bash: no $name of '$*'"
    [ "$name" = -h ] || [ "$name" = --help ] || num_options=$((num_options + 1))
    [[ $name = --* ]] || continue
    [ "$name" = --help ] || grep -qF -- "\\fB${name//-/\\-}\\fR" shoal.1 || fail "man: no $name"
    grep -qE -- "(^|[^a-z-])$name['}]" completion.zsh || fail "zsh: no $name of '$*'"
    grep -qF -- "-l ${name#--} " <<<"$of_fish" || fail "fish: no $name of '$*'"
  done
  offered=$(complete_words "$@" '')
  for name in $(subcommands "$@"); do
    grep -qxF -- "$name" <<<"$offered" || fail "bash: no $* $name"
    grep -qF "__shoal_at \\'$*\\'' -a $name -d" <<<"$of_fish" || fail "fish: no $* $name"
    [ -n "$(subcommands "$@" "$name")" ] || grep -q "^\\.SS $*${1:+ }$name " shoal.1 ||
      fail "man: no $* $name"
    check_command "$@" "$name"
  done
}
check_command
[ "$num_options" -gt 40 ] || fail "only $num_options options in the help"

touch mine.yaml other.txt
mkdir -p runs/a
offers mine.yaml train ''
offers runs train ''
offers "$root/configs/quickstart.yaml" train "$root/configs/quick"
! grep -q other.txt <<<"$(complete_words train '')" || fail "bash: a recipe in .txt"
offers train.batch= train mine.yaml train.b
offers optimizer.lr= train mine.yaml optimizer.l   # of some optimizers only
offers data.path keys data.p
offers train.batch keys train.b
offers other.txt train mine.yaml data.path = o
offers runs eval ''
offers other.txt generate runs/a --prompt-file o
[ -z "$(complete_words generate runs/a --prompt r)" ] || fail "bash: completes a prompt"
offers fish completion ''
offers vit new --backbone v
offers mqar new --backbone gpt2 --data ''
offers top_k keys --router top
offers bytes data tokenize a.txt --tokenizer ''

# The exit codes of the manual are those of docs/troubleshooting.md.
sed -n '/^\.SH EXIT STATUS/,/^\.PP/s/^\.B \([0-9]*\)$/\1/p' shoal.1 | sort -n >in_manual
sed -n 's/^| \([0-9]*\) | .*/\1/p' "$root/docs/troubleshooting.md" | grep -vx 1 | sort -n >on_page
diff in_manual on_page || fail "exit codes of manual and docs/troubleshooting.md differ"
if command -v groff >/dev/null; then
  groff -man -Tutf8 -ww -z shoal.1 2>warnings
  [ ! -s warnings ] || fail "roff: $(cat warnings)"
fi
if command -v zsh >/dev/null; then zsh -n completion.zsh || fail "zsh cannot read its script"; fi
if command -v fish >/dev/null; then
  fish --no-config -c "source completion.fish; complete -C 'shoal inspect --gat'" >offered
  grep -q '^--gates' offered || fail "fish: $(cat offered)"
  fish --no-config -c "source completion.fish; complete -C 'shoal train mine.yaml train.bat'" >offered
  grep -q '^train.batch=' offered || fail "fish: $(cat offered)"
  fish --no-config -c "source completion.fish; complete -C 'shoal train mine.yaml optimizer.l'" >offered
  grep -q '^optimizer.lr=' offered || fail "fish: $(cat offered)"
  # The value of an option is neither a word of the command nor a command.
  for line in 'keys --router top_k train.bat' 'keys --data text --all train.bat'; do
    fish --no-config -c "source completion.fish; complete -C 'shoal $line'" >offered
    grep -qx 'train.batch' offered || fail "fish: '$line' offers $(cat offered)"
  done
  fish --no-config -c "source completion.fish; complete -C 'shoal new --experts 4 --backbone v'" \
    >offered
  grep -q '^vit' offered || fail "fish: $(cat offered)"
fi
