#include "train/tensorboard.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace mt::train {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

template <typename T>
void put_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// The protobuf wire format, as much of it as Event needs. Field numbers: tensorflow's event.proto,
// summary.proto, tensor.proto.
void put_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_tag(std::string& out, uint32_t number, WireType type) {
  put_varint(out, (number << 3) | type);
}

void put_int(std::string& out, uint32_t number, int64_t value) {
  put_tag(out, number, kVarint);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_bytes(std::string& out, uint32_t number, std::string_view value) {
  put_tag(out, number, kBytes);
  put_varint(out, value.size());
  out.append(value);
}

std::string event_start(double wall_time, int64_t step) {
  std::string event;
  put_tag(event, 1, kFixed64);  // Event.wall_time
  put_raw(event, wall_time);
  if (step != 0) put_int(event, 2, step);  // Event.step
  return event;
}

std::string summary_event(double wall_time, int64_t step, std::string_view value) {
  std::string summary;
  put_bytes(summary, 1, value);  // Summary.value
  std::string event = event_start(wall_time, step);
  put_bytes(event, 5, summary);  // Event.summary
  return event;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::string event_file_path(const std::string& directory) {
  static std::atomic<int> count{0};  // two writers of one process and second differ
  return fmt::format("{}{}events.out.tfevents.{:010d}.{}.{}.{}", directory,
                     directory.ends_with('/') ? "" : "/", static_cast<int64_t>(now()), host_name(),
                     ::getpid(), count++);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffu] ^ (crc >> 8);
  }
  return ~crc;
}

std::string tfrecord(std::string_view payload) {
  const auto masked = [](std::string_view bytes) {
    const uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  std::string record;
  put_raw(record, static_cast<uint64_t>(payload.size()));
  put_raw(record, masked(record));
  record.append(payload);
  put_raw(record, masked(payload));
  return record;
}

std::string version_event(double wall_time) {
  std::string event = event_start(wall_time, 0);
  put_bytes(event, 3, "brain.Event:2");  // Event.file_version
  return event;
}

std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value) {
  std::string entry;
  put_bytes(entry, 1, tag);     // Value.tag
  put_tag(entry, 2, kFixed32);  // Value.simple_value
  put_raw(entry, value);
  return summary_event(wall_time, step, entry);
}

std::string text_event(double wall_time, int64_t step, std::string_view tag,
                       std::string_view text) {
  std::string dimension, shape, tensor, plugin, metadata, entry;
  put_int(dimension, 1, 1);        // Dim.size
  put_bytes(shape, 2, dimension);  // TensorShapeProto.dim
  put_int(tensor, 1, 7);           // TensorProto.dtype = DT_STRING
  put_bytes(tensor, 2, shape);     // .tensor_shape
  put_bytes(tensor, 8, text);      // .string_val
  put_bytes(plugin, 1, "text");    // PluginData.plugin_name
  put_bytes(metadata, 1, plugin);  // SummaryMetadata.plugin_data
  put_bytes(entry, 1, tag);
  put_bytes(entry, 8, tensor);    // Value.tensor
  put_bytes(entry, 9, metadata);  // Value.metadata
  return summary_event(wall_time, step, entry);
}

EventWriter::EventWriter(const std::string& directory) {
  make_directories(directory);
  path_ = event_file_path(directory);
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw fail(ErrorKind::kIo, "{}: can't write TensorBoard events: {}", path_,
               std::strerror(errno));
  }
  add(version_event(now()));
  flush();
}

EventWriter::~EventWriter() {
  flush();
  ::close(fd_);
}

void EventWriter::scalar(std::string_view tag, double value, int64_t step) {
  add(scalar_event(now(), step, tag, static_cast<float>(value)));
}

void EventWriter::text(std::string_view tag, std::string_view value, int64_t step) {
  add(text_event(now(), step, std::string(tag) + "/text_summary", value));
}

void EventWriter::add(const std::string& event) {
  if (!fault_.empty()) return;
  buffer_ += tfrecord(event);
  if (std::chrono::steady_clock::now() - last_flush_ > std::chrono::seconds(30)) flush();
}

void EventWriter::flush() {
  last_flush_ = std::chrono::steady_clock::now();
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fault_ = std::strerror(errno);
      log_warning("{}: {}: no more TensorBoard events are written", path_, fault_);
      break;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
}

}  // namespace mt::train
