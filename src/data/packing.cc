#include "data/packing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace mt::data {
namespace {

Row empty_row(int64_t length) {
  const std::vector<int32_t> zeros(static_cast<size_t>(length), 0);
  return {zeros, zeros, zeros, zeros, 0, 0};
}

// tokens[i] with target tokens[i + 1], i < count, as a new segment at row.used.
void append_segment(Row& row, std::span<const int32_t> tokens, int64_t count) {
  ++row.segments;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(row.used + i);
    row.inputs[at] = tokens[static_cast<size_t>(i)];
    row.targets[at] = tokens[static_cast<size_t>(i) + 1];
    row.positions[at] = static_cast<int32_t>(i);
    row.segmentation[at] = row.segments;
  }
  row.used += count;
}

Json to_json(std::span<const int32_t> numbers) {
  Json::Array array;
  array.reserve(numbers.size());
  for (const int32_t number : numbers) array.emplace_back(int64_t{number});
  return array;
}

std::vector<int32_t> to_tokens(const Json& json) {
  std::vector<int32_t> tokens;
  for (const Json& item : json.as_array()) {
    const int64_t token = item.as_int();
    if (token < 0 || token > std::numeric_limits<int32_t>::max()) {
      throw fail(ErrorKind::kConfig, "the saved packing state has the token id {}", token);
    }
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

// A row as the tokens of each segment, one more than its positions.
Json to_json(const Row& row) {
  Json::Array segments;
  std::vector<int32_t> tokens;
  for (size_t at = 0; at < static_cast<size_t>(row.used); ++at) {
    tokens.push_back(row.inputs[at]);
    const bool ends = at + 1 == static_cast<size_t>(row.used) || row.positions[at + 1] == 0;
    if (!ends) continue;
    tokens.push_back(row.targets[at]);
    segments.push_back(to_json(tokens));
    tokens.clear();
  }
  return segments;
}

Row to_row(const Json& json, int64_t length) {
  Row row = empty_row(length);
  for (const Json& segment : json.as_array()) {
    const std::vector<int32_t> tokens = to_tokens(segment);
    const int64_t count = static_cast<int64_t>(tokens.size()) - 1;
    if (count < 1 || count > length - row.used) {
      throw fail(ErrorKind::kConfig,
                 "the saved packing state has a segment of {} tokens in a row "
                 "of {}",
                 tokens.size(), length);
    }
    append_segment(row, tokens, count);
  }
  return row;
}

}  // namespace

Packer::Packer(int64_t length, bool packing) : length_(length), packing_(packing) {
  if (length < 1 || length > std::numeric_limits<int32_t>::max() - 1) {
    throw fail(ErrorKind::kConfig, "rows of {} positions; expected at least 1", length);
  }
  open_ = empty_row(length);
}

int64_t Packer::transitions() const {
  return std::max<int64_t>(0, static_cast<int64_t>(pending_.size()) - 1);
}

int64_t Packer::room() const { return length_ - open_.used; }

void Packer::place(int64_t count) {
  if (count == 0) return;
  append_segment(open_, pending_, count);
  pending_.erase(pending_.begin(), pending_.begin() + count);
  if (room() == 0) close_row();
}

void Packer::close_row() {
  if (open_.used == 0) return;
  rows_.push_back(std::exchange(open_, empty_row(length_)));
}

void Packer::add(std::span<const int32_t> tokens, bool last) {
  pending_.insert(pending_.end(), tokens.begin(), tokens.end());
  if (transitions() > length_) flows_ = true;
  // What is placed must not depend on how the document was cut into parts: whole rows while more
  // may come, the rest at its end.
  while (flows_ && transitions() >= room()) place(room());
  if (!last) return;
  if (transitions() > room()) close_row();
  place(transitions());
  if (!packing_) close_row();
  pending_.clear();
  flows_ = false;
}

Row Packer::take_row() {
  MT_CHECK(has_row());
  Row row = std::move(rows_.front());
  rows_.pop_front();
  return row;
}

void Packer::finish() { close_row(); }

Json Packer::state() const {
  Json::Array rows;
  for (const Row& row : rows_) rows.push_back(to_json(row));
  return Json::Object{{"length", Json(length_)}, {"packing", Json(packing_)},
                      {"flows", Json(flows_)},   {"pending", to_json(pending_)},
                      {"open", to_json(open_)},  {"rows", Json(std::move(rows))}};
}

void Packer::restore(const Json& state) {
  if (state.at("length").as_int() != length_ || state.at("packing").as_bool() != packing_) {
    throw fail(ErrorKind::kConfig,
               "the saved data position is of max_target_length={} packing={}; here they are {} "
               "and {}",
               state.at("length").as_int(), state.at("packing").as_bool(), length_, packing_);
  }
  flows_ = state.at("flows").as_bool();
  pending_ = to_tokens(state.at("pending"));
  open_ = to_row(state.at("open"), length_);
  rows_.clear();
  for (const Json& row : state.at("rows").as_array()) rows_.push_back(to_row(row, length_));
}

}  // namespace mt::data
