#!/bin/sh
# Usage: ccache_fresh_header.sh CCACHE COMPILER ARGUMENT...
# Removes a precompiled header before it is made anew: the compiler would read the old one while
# ccache looks for the new one, and checkouts would never share it, nor what is compiled with it.
header='' output='' before=''
for argument in "$@"; do
  [ "$argument" = c++-header ] && header=yes
  [ "$before" = -o ] && output=$argument
  before=$argument
done
[ -z "$header" ] || rm -f "$output"
exec "$@"
