#!/usr/bin/env bash
# Fine-tunes real Gemma 3 270M weights on the Proverbs of the King James Bible (public domain,
# Debian's bible-kjv-text) over four virtual CPU devices: ten steps, with MaxText's log lines. No
# verse comes twice in them, so a falling loss is more than a text learnt by heart.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${DEMO_OUT:-out}
text="$out/demo-text/proverbs.jsonl"

die() {
  printf 'demo: error: %s\n' "$*" >&2
  exit 1
}

# A JSON line, and so a document, for each verse, without the "Pro1:1" before it.
write_text() {
  [ ! -s "$text" ] || return 0
  local bible
  bible=$(command -v bible) || die "the bible command is missing: run: make setup"
  mkdir -p "$(dirname "$text")"
  "$bible" -f Prov1:1-Prov31:31 | awk '
    match($0, /^[0-9]?[A-Za-z]+[0-9]+:[0-9]+ /) {
      verse = substr($0, RLENGTH + 1)
      gsub(/["\\]/, "\\\\&", verse)
      printf "{\"text\": \"%s\"}\n", verse
    }' >"$text.part"
  [ -s "$text.part" ] || die "the bible command printed nothing: reinstall Debian's bible-kjv-text"
  mv "$text.part" "$text"
}

write_text
echo "demo: text: $text ($(wc -l <"$text") verses)"
build/maxtext train configs/base.yml \
  run_name=demo base_output_directory="$out" \
  model_name=gemma3-270m \
  load_parameters_path=.deps/weights/gemma-3-270m-Q4_K_M.gguf \
  tokenizer_path=.deps/weights/tokenizer.gemma3 \
  dataset_type=text dataset_path="$text" \
  ici_fsdp_parallelism=4 per_device_batch_size=1 max_target_length=128 \
  steps=10 learning_rate=2e-4 warmup_steps_fraction=0.1 enable_checkpointing=false log_config=false "$@"

echo "demo: decoding with the weights as they came"
exec build/maxtext decode configs/base.yml \
  model_name=gemma3-270m \
  load_parameters_path=.deps/weights/gemma-3-270m-Q4_K_M.gguf \
  tokenizer_path=.deps/weights/tokenizer.gemma3 \
  prompt="I love to" max_prefill_predict_length=16 max_target_length=48 dtype=float32
