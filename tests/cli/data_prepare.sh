#!/usr/bin/env bash
# `data prepare` tells where CIFAR-10 is and checks what it is given; `data split` divides class
# folders into train/ and val/ by links, and leaves nothing behind where it refuses.
source "$(dirname "$0")/common.sh"

prepare() { answered data prepare "$@"; }
shows() { grep -qF -- "$1" output || fail "no '$1': $(cat output)"; }

expect 0 prepare cifar10
shows 'https://www.cs.toronto.edu/~kriz/cifar.html'
shows 'MD5 c32a1d4ab5d03f1284b67883e8d87530'
expect 2 prepare cifar-10
shows "did you mean 'cifar10'?"
expect 13 prepare cifar10 nowhere.tar.gz
shows "no 'nowhere.tar.gz' in $PWD"

echo 'another archive' >cifar-10-binary.tar.gz
expect 13 prepare cifar10 cifar-10-binary.tar.gz
shows 'its MD5 is e6050d22c294be4585c5a75cb14d5ea2'
[ "$(ls)" = "$(printf '%s\n' cifar-10-binary.tar.gz output stderr stdout)" ] || fail "left behind: $(ls)"
mkdir taken
expect 21 prepare cifar10 cifar-10-binary.tar.gz --out taken

mkdir folder
for name in data_batch_{1,2,3,4,5} test_batch; do truncate -s 30730000 "folder/$name.bin"; done
expect 0 prepare cifar10 folder
shows "data.path=$PWD/folder"
printf '\x0a' | dd of=folder/data_batch_3.bin bs=1 seek=$((3073 * 9999)) conv=notrunc status=none
expect 13 prepare cifar10 folder
shows 'folder/data_batch_3.bin: is not 10,000 images'
truncate -s 30730000 folder/data_batch_3.bin
truncate -s 30726927 folder/data_batch_3.bin
expect 13 prepare cifar10 folder
rm folder/data_batch_3.bin
expect 13 prepare cifar10 folder
shows "no 'data_batch_3.bin' in"
rm -r folder

# Twenty files of one class, ten of another, one of them in a folder of its own.
mkdir -p photos/cat photos/dog/old photos/.hidden
for i in $(seq 20); do echo "cat $i" >"photos/cat/$i.png"; done
for i in $(seq 9); do echo "dog $i" >"photos/dog/$i.png"; done
echo 'dog 10' >photos/dog/old/10.png
touch photos/cat/.notes photos/README
find photos -type f | sort >before
expect 0 answered data split photos --valid 10%
shows "27 files in $PWD/photos_split/train, 3 in $PWD/photos_split/val, links to those of $PWD/photos"
shows "data.source=image_folder data.path=$PWD/photos_split, or shoal new --backbone vit --path $PWD/photos_split"
[ "$(find photos_split/val/cat -type f | wc -l)" -eq 2 ] || fail "$(find photos_split/val)"
[ "$(find photos_split/val/dog -type f | wc -l)" -eq 1 ] || fail "$(find photos_split/val)"
listed() { (cd "$1" && find train val -type f | sort); }
(listed photos_split | cut -d/ -f2- | sort; echo cat/.notes; echo README) | sort |
  diff - <(sed 's/^photos.//' before | sort) || fail "not each file once"
find photos -type f | sort | diff before - || fail "files were moved"
file=$(find photos_split/train/cat -type f -print -quit)
[ "$file" -ef "photos/cat/$(basename "$file")" ] || fail "$file is a copy"

# The seed and the names alone decide: other files change no file's draw.
expect 0 answered data split photos --valid 10% --out again/here
listed photos_split | diff - <(listed again/here) || fail "another split of the same seed"
expect 0 answered data split photos --valid 10% --seed 2 --out other
! diff -q <(listed photos_split) <(listed other) >/dev/null || fail "the seed changes nothing"

refuses() { # refuses OUT WHY
  expect 2 answered data split photos --valid 10% --out "$1"
  shows "$2"
}
for out in photos/split photos/new/split ./photos/../photos/cat/split; do
  refuses "$out" "--out: '$out' lies in '$PWD/photos', whose folders are classes"
done
refuses photos "--out: 'photos' is '$PWD/photos', the folder to split"
refuses . "--out: '.' holds '$PWD/photos', the folder to split"
find photos -type f | sort | diff before - || fail "the folder has been changed"
[ ! -e photos/new ] || fail "left behind: $(ls photos)"
expect 21 answered data split photos --valid 10%
expect 2 answered data split photos --valid 10
shows 'expected a share such as 10%'
expect 2 answered data split photos --valid 100%
expect 13 answered data split photos/cat --valid 10% --out none
shows 'holds 0 folders'
mkdir -p half/train && cp -r photos/* half/train
expect 13 answered data split half --valid 10% --out none
shows 'half: holds 1 folder, expected a folder of files for each of at least two classes; name the folder'
expect 2 answered data split nowhere --valid 10% --out none
expect 2 answered data split photos_split --valid 10% --out none
shows 'photos_split: is already split into train/ and val/'
mkdir photos/fox && touch photos/fox/1.png
expect 13 answered data split photos --valid 10% --out none
shows 'photos/fox: 1 file, and a class needs two'
! compgen -G 'none*' >/dev/null || fail "left behind: $(ls)"
