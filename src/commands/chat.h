// maxtext decode --chat: a conversation on the terminal, or through pipes: a line is a turn.
#pragma once

#include "config/config.h"
#include "data/tokenizer.h"
#include "serve/engine.h"

namespace mt::commands {

// Until the end of stdin, /exit or a signal. Returns the exit code: 128 + the signal's number.
int chat(serve::Engine& engine, const data::Tokenizer& tokenizer, const config::Config& config);

}  // namespace mt::commands
