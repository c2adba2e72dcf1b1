#!/usr/bin/env bash
# A folder of images becomes shards on which training takes the same steps; hostile archives and
# images are named, nothing is written outside the folder, and corrupt images are skipped and counted.
source "$(dirname "$0")/common.sh"

# Images of 16 x 16: YCbCr, progressive, and CMYK as Adobe writes it.
base64 -d >baseline.jpg <<'END'
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1RV19i
Z2hnPk1xeXBkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj
Y2NjY2NjY2P/wAARCAAQABADASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAABQQG/8QAGBAAAwEBAAAAAAAAAAAAAAAAAAME
MSH/xAAUAQEAAAAAAAAAAAAAAAAAAAAA/8QAFhEBAQEAAAAAAAAAAAAAAAAABAAD/9oADAMBAAIRAxEAPwDLxqzg5GrCGNWDkas4
EaRQ7//Z
END
base64 -d >progressive.jpg <<'END'
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABALDA4MChAODQ4SERATGCgaGBYWGDEjJR0oOjM9PDkzODdASFxOQERXRTc4UG1RV19i
Z2hnPk1xeXBkeFxlZ2P/2wBDARESEhgVGC8aGi9jQjhCY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2NjY2Nj
Y2NjY2NjY2P/wgARCAAQABADASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAABAMF/8QAFAEBAAAAAAAAAAAAAAAAAAAAAP/a
AAwDAQACEAMQAAABy3Qcf//EABYQAAMAAAAAAAAAAAAAAAAAAAABAv/aAAgBAQABBQKEQiEQj//EABURAQEAAAAAAAAAAAAAAAAA
AAMA/9oACAEDAQE/AVG//8QAFhEAAwAAAAAAAAAAAAAAAAAAAAID/9oACAECAQE/AaMf/8QAFBABAAAAAAAAAAAAAAAAAAAAIP/a
AAgBAQAGPwIf/8QAFBABAAAAAAAAAAAAAAAAAAAAIP/aAAgBAQABPyEAH//aAAwDAQACAAMAAAAQA//EABQRAQAAAAAAAAAAAAAA
AAAAAAD/2gAIAQMBAT8QH//EABQRAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQIBAT8QH//EABYQAQEBAAAAAAAAAAAAAAAAAAAxIf/a
AAgBAQABPxCOIoo4/9k=
END
base64 -d >cmyk.jpg <<'END'
/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwAQCwwODAoQDg0OEhEQExgoGhgWFhgxIyUdKDozPTw5Mzg3QEhcTkBEV0U3OFBtUVdfYmdo
Zz5NcXlwZHhcZWdj/8AAFAgAEAAQBEMRAE0RAFkRAEsRAP/EABcAAQEBAQAAAAAAAAAAAAAAAAAGBQf/xAAYEAEAAwEAAAAAAAAA
AAAAAAAABRVBYv/aAA4EQwBNAFkASwAAPwCUreUpF4zHQCt5WEXgLCt5R8XgFbysIvAf/9k=
END

verify() { answered data verify "$@"; }
shows() { grep -q "$@" output || fail "$(cat output)"; }
for split in train val; do
  mkdir -p "folder/$split/cat/deep" "folder/$split/dog"
  cp baseline.jpg "folder/$split/cat/a.jpg"
  cp progressive.jpg "folder/$split/cat/deep/b.JPEG"
  cp cmyk.jpg "folder/$split/dog/c.jpeg"
  cp baseline.jpg "folder/$split/dog/d.jpg"
done
mkdir shards

expect 0 answered data pack folder/train --classes --out shards/train --shard-size 6KB
shows '^shards/train: 4 images in 2 shards, .* bytes, .* MB/s$'
expect 0 answered data pack folder/train --out new/parents/train
[ -s new/parents/train/shard-000000.tar ] || fail "no parents were made: $(ls)"
expect 0 answered data pack folder/val --classes --out shards/val --json
shows '"shards":1,"samples":4,"bytes":9728,'
[ "$(tar -tf shards/val/shard-000000.tar | xargs)" = "000000000.jpg 000000000.cls \
000000001.jpg 000000001.cls 000000002.jpg 000000002.cls 000000003.jpg 000000003.cls" ] ||
  fail "tar lists $(tar -tf shards/val/shard-000000.tar)"
tar -xOf shards/val/shard-000000.tar 000000001.jpg | cmp - progressive.jpg || fail "another image"
[ "$(tar -xOf shards/val/shard-000000.tar 000000003.cls)" = 1 ] || fail "another label"
expect 0 verify shards/train shards/val/shard-000000.tar --decode
shows '^3 shards, 8 samples, .* bytes: valid$'

# The folder for shards is empty; what cannot be written leaves none.
expect 2 answered data pack folder/train --out shards/train
shows "'shards/train': is not an empty folder"
expect 13 answered data pack folder/train/cat/deep --classes --out shards/none
[ ! -e shards/none ] || fail "a folder is left of images that were refused"
limited() {
  (
    ulimit -f 4
    "$program" data pack folder/train --out shards/full --shard-size 3KB
  )
}
expect 0 limited
rm -r shards/full
limited() {
  (
    ulimit -f 2
    "$program" data pack folder/train --out shards/full --shard-size 3KB
  )
}
expect 21 limited
[ ! -e shards/full ] || fail "a full disk left $(ls shards/full)"

# Training takes the same steps on shards as on the folder.
data="path: PATH, image_size: 16, classes: 2, train: {crop: {name: random}}, valid: {crop: {name: center}}"
train() {
  local source=$1 name=$2
  shift 2
  ranks 2 train "$tiny" "data={source: $source, $data}" run.root=. "run.name=$name" \
    train.duration=3step "$@"
}
expect 0 train image_folder by_files data.path=folder
expect 0 train tar_shards by_shards data.path=shards
[ "$(digest by_files)" = "$(digest by_shards)" ] || fail "shards give other steps"
rm shards/*/*.index
expect 0 train tar_shards by_headers data.path=shards
[ "$(digest by_files)" = "$(digest by_headers)" ] || fail "without indices other steps"

# A corrupt image, one cut short and a bomb of 541 bytes: each fails by name; one may be skipped.
cut() { head -c 200 baseline.jpg; }
bomb() { # 20,000 x 20,000 pixels by the frame header, whose height is at byte 163
  head -c 163 progressive.jpg
  printf '\x4e\x20\x4e\x20'
  tail -c +168 progressive.jpg
}
noise() { echo 'no image'; }
for kind in cut bomb noise; do
  rm -rf bad && cp -r shards bad && rm -r bad/train && mkdir bad/train
  cp -r folder/train "$kind"
  "$kind" >"$kind/cat/a.jpg"
  expect 0 answered data pack "$kind" --classes --out bad/train
  expect 0 verify bad/train
  expect 13 verify bad/train --decode
  shows "error\[E13\].*bad/train/shard-000000.tar: member '000000000.jpg': "
  expect 13 train tar_shards "run_$kind" data.path=bad
  shows "bad/train/shard-000000.tar: member '000000000.jpg': "
  [ "$kind" != bomb ] || shows '20000 x 20000 pixels'
done
expect 0 train tar_shards skipped data.path=bad data.on_corrupt=skip
shows '1 of training, 0 of validation, replaced'
shows "data.train: replaced: bad/train/shard-000000.tar: member '000000000.jpg': "
grep -q '"train": 1' skipped/summary.json || fail "$(cat skipped/summary.json)"
mkdir -p bad_folder && cp -r noise bad_folder/train && cp -r folder/val bad_folder/val
expect 13 train image_folder noise_files data.path=bad_folder
shows 'bad_folder/train/cat/a.jpg: neither a JPEG nor a PNG'
expect 0 train image_folder skipped_files data.path=bad_folder data.on_corrupt=skip
[ "$(digest skipped)" = "$(digest skipped_files)" ] || fail "other images are skipped"
noise >bad_folder/train/cat/deep/b.JPEG
expect 13 train image_folder noisy data.path=bad_folder data.on_corrupt=skip
shows '2 of 4 images met so far are corrupt, and on_corrupt: skip allows 1'

# An index of another shard, and archives that lead elsewhere or are cut short.
rm -rf bad && mkdir bad
expect 0 answered data pack folder/val --classes --out bad/val
printf '\x00' | dd of=bad/val/shard-000000.tar bs=1 seek=3 conv=notrunc status=none
expect 13 verify bad/val
cp shards/val/shard-000000.tar bad/val/
truncate -s +512 bad/val/shard-000000.tar
expect 13 verify bad/val
shows 'shard-000000.tar.index: is of an archive of 9728 bytes'
refused() { # refused PATTERN: verify and training name bad.tar and what is wrong with it
  expect 13 verify bad.tar --json
  shows "$1"
  expect 13 train tar_shards refused data.path=. 'data.train.shards=[bad.tar]' \
    'data.valid.shards=[shards/val/shard-000000.tar]'
  shows "bad.tar.*$1"
}
mkdir inside && cp baseline.jpg inside/a.jpg && ln -s a.jpg inside/b.jpg && mkfifo inside/c.jpg
ln inside/a.jpg inside/d.jpg
# What is here, and outside of here, where other tests have folders.
all_files() { { find . -maxdepth 2 ! -name bad.tar ! -name output && find .. -maxdepth 1 -type f; } | sort; }
before=$(all_files)
(cd inside && tar -P -cf ../bad.tar ../baseline.jpg)
refused "member '../baseline.jpg' has a name that leads out of its folder"
tar -P -cf bad.tar "$PWD/baseline.jpg"
refused 'has an absolute name'
tar -cf bad.tar -C inside a.jpg b.jpg
refused "member 'b.jpg' is a symbolic link"
tar -cf bad.tar -C inside c.jpg
refused "member 'c.jpg' is a FIFO"
tar -cf bad.tar -C inside a.jpg d.jpg
refused "member 'd.jpg' is a hard link"
cat progressive.jpg progressive.jpg >bad.tar
refused 'no header of a tar archive'
head -c 700 shards/val/shard-000000.tar >bad.tar
refused 'and the file ends 188 bytes behind its header'
: >bad.tar
refused 'the file has 0 bytes'
[ "$(all_files)" = "$before" ] ||
  fail "reading an archive made files"

# Archives of other programs, with names that ustar has room for, and with longer ones.
foreign() { # foreign FOLDER LETTERS: a sample whose two folders and name have so many letters
  local name
  name=$(printf "n%.0s" $(seq "$2"))
  mkdir -p "$1/$name/$name"
  cp baseline.jpg "$1/$name/$name/$name.jpg"
  echo 1 >"$1/$name/$name/$name.cls"
}
valid_sample() {
  expect 0 verify "$1" --decode
  shows '^1 shard, 1 sample, '
}
foreign short 70
foreign long 120
for format in ustar:short posix:long gnu:long; do
  tar "--format=${format%:*}" -cf foreign.tar "${format#*:}"
  valid_sample foreign.tar
done
if command -v python3 >/dev/null; then
  for format in USTAR:short PAX:long GNU:long; do
    python3 -c "
import tarfile
with tarfile.open('foreign.tar', 'w', format=tarfile.${format%:*}_FORMAT) as archive:
    archive.add('${format#*:}')"
    valid_sample foreign.tar
  done
fi
