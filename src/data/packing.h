// Documents -> rows of S positions, each input with its next token as target.
//
// A document of n tokens gives n-1 positions (input t[i], target t[i+1]); nothing is lost:
//  * n-1 <= S: one segment. With packing it goes into the open row if there is room, else the row
//  is
//    closed (padded) and the next one opened. Without packing each document has its own row.
//  * longer: flows over as many rows as it needs, one segment in each (with packing it begins right
//    where the open row ends). MaxText cuts such a document off instead.
// A document of fewer than two tokens has no target and gives no position.
// Whether a position counts is told by segment ids only, never by token values.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/json.h"

namespace mt::data {

// All vectors have S elements. Padding: everything 0.
struct Row {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
  std::vector<int32_t> positions;     // restart at 0 in each segment; of inputs
  std::vector<int32_t> segmentation;  // 1, 2, ... in the order of the row; 0 padding
  int64_t used = 0;                   // positions that are not padding; they come first
  int32_t segments = 0;
};

class Packer final {
 public:
  Packer(int64_t length, bool packing);  // S >= 1, else kConfig

  // Tokens of a document, in parts; `last` ends the document.
  void add(std::span<const int32_t> tokens, bool last);
  bool has_row() const { return !rows_.empty(); }
  Row take_row();
  // No more documents: closes the open row.
  void finish();

  // Everything held: full rows, the open row, tokens of an unfinished document. restore() throws
  // kConfig if the state is of another length or packing, or is not a state.
  Json state() const;
  void restore(const Json& state);

 private:
  int64_t transitions() const;  // pending positions
  int64_t room() const;         // free positions of the open row
  void place(int64_t count);    // as a segment of the open row; closes it when full
  void close_row();

  int64_t length_;
  bool packing_;
  bool flows_ = false;            // the pending document is longer than a row
  std::vector<int32_t> pending_;  // tokens of the document that are not placed as inputs yet
  Row open_;
  std::deque<Row> rows_;
};

}  // namespace mt::data
