// TensorBoard event files: TFRecord frames (length, masked CRC-32C) around Event messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace mt::train {

// Appends to DIR/events.out.tfevents.SECONDS.HOST.PID.N. Buffered: records reach the file at
// flush(), every 30 seconds, and at destruction. A failed write warns once and writes no more: a
// full disk does not end a run.
class EventWriter final {
 public:
  // Makes the directory. Throws kIo naming it when that or the file can't be made.
  explicit EventWriter(const std::string& directory);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void scalar(std::string_view tag, double value, int64_t step);  // stored as float32
  // Shown as Markdown; the tag becomes TAG/text_summary, as tensorboardX (MaxText's writer) has it.
  void text(std::string_view tag, std::string_view value, int64_t step = 0);
  void flush();
  const std::string& path() const { return path_; }
  const std::string& fault() const {
    return fault_;
  }  // why no more events are written; "" if they are

 private:
  void add(const std::string& event);

  std::string path_;
  int fd_ = -1;
  std::string fault_;
  std::string buffer_;
  std::chrono::steady_clock::time_point last_flush_;
};

// The pieces, for tests. Times are seconds since 1970.
uint32_t crc32c(std::string_view bytes);
std::string tfrecord(std::string_view payload);
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);
std::string text_event(double wall_time, int64_t step, std::string_view tag, std::string_view text);

}  // namespace mt::train
