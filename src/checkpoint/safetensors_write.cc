#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/temporary_file.h"

namespace mt::checkpoint {
namespace {

std::string_view encoding_of(DType dtype) {
  switch (dtype) {
    case DType::kPred: return "BOOL";
    case DType::kS8: return "I8";
    case DType::kS32: return "I32";
    case DType::kS64: return "I64";
    case DType::kU8: return "U8";
    case DType::kU32: return "U32";
    case DType::kU64: return "U64";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kF32: return "F32";
    case DType::kF64: return "F64";
  }
  MT_CHECK(false);
  return "";
}

std::string make_header(const std::vector<std::pair<std::string, Tensor>>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  Json::Object root;
  if (!metadata.empty()) {
    Json::Object members;
    for (const auto& [key, value] : metadata) members.emplace_back(key, Json(value));
    root.emplace_back("__metadata__", Json(std::move(members)));
  }
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t end = at + static_cast<int64_t>(tensor.bytes().size());
    Json::Array shape(tensor.shape().begin(), tensor.shape().end());
    Json::Object entry;
    entry.emplace_back("dtype", Json(std::string(encoding_of(tensor.dtype()))));
    entry.emplace_back("shape", Json(std::move(shape)));
    entry.emplace_back("data_offsets", Json(Json::Array{Json(at), Json(end)}));
    root.emplace_back(name, Json(std::move(entry)));
    at = end;
  }
  std::string text = Json(std::move(root)).dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data starts aligned
  return text;
}

}  // namespace

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string header = make_header(tensors, metadata);
  TemporaryFile file(path);
  const std::array<uint64_t, 1> length = {header.size()};
  file.write(std::as_bytes(std::span(length)));
  file.write(std::as_bytes(std::span(header.data(), header.size())));
  for (const auto& [name, tensor] : tensors) file.write(tensor.bytes());
  file.commit();
}

}  // namespace mt::checkpoint
