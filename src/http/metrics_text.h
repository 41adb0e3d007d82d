// What an orchestrator counted, in Prometheus' text form (version 0.0.4). Names are JetStream's
// where it has one, with its label id.
#pragma once

#include <string>

#include "serve/serving_counts.h"

namespace mt::http {

struct ServerFigures {
  std::string id;  // the label: the host's name
  double load_seconds = 0, startup_seconds = 0;
  int64_t connections = 0;
};

std::string metrics_text(const serve::ServingCounts& counts, const ServerFigures& server);

}  // namespace mt::http
