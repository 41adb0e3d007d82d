#include "train/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/reader.h"
#include "models/gemma3/session.h"
#include "nnx/init.h"
#include "train/step.h"

namespace mt::train {
namespace {

using models::gemma3::Gemma3Model;

std::string dotted(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

double max_difference(const Tensor& a, const Tensor& b) {
  double worst = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const auto k = static_cast<size_t>(i);
    const double d =
        std::abs(static_cast<double>(a.data<float>()[k]) - static_cast<double>(b.data<float>()[k]));
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

// ||a - b|| / ||b||, in double; `base` is subtracted from both if given.
double relative_difference(const Tensor& a, const Tensor& b, const Tensor* base = nullptr) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < static_cast<size_t>(a.size()); ++i) {
    const double origin = base == nullptr ? 0 : static_cast<double>(base->data<float>()[i]);
    const double x = static_cast<double>(a.data<float>()[i]) - origin;
    const double y = static_cast<double>(b.data<float>()[i]) - origin;
    error += (x - y) * (x - y);
    norm += y * y;
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

// The reference's tensors under this layout's names: scanned references are cut apart or kept.
class Reference {
 public:
  Reference(std::string folder, const models::gemma3::Gemma3Config& sizes)
      : folder_(std::move(folder)), sizes_(sizes) {}

  std::unique_ptr<checkpoint::TensorReader> open(const std::string& file) const {
    return checkpoint::open(folder_ + "/" + file);
  }

  // Variable `path` of the model as the reference file holds it, in the variable's layout.
  Tensor read(const checkpoint::TensorReader& reader, const std::string& prefix,
              const std::string& path, const nnx::Variable& v) const {
    const std::string own = prefix + dotted(path);
    if (reader.find(own) != nullptr) {
      Tensor t = reader.read(own);
      if (t.shape() == v.type.shape) return t.cast(DType::kF32);
    }
    return read_unscanned(reader, prefix, path);
  }

 private:
  // decoder/layers_13/x -> layer 1 of decoder.layers.layers_1.x, stacked at axis 1 (or the last).
  Tensor read_unscanned(const checkpoint::TensorReader& reader, const std::string& prefix,
                        const std::string& path) const {
    constexpr std::string_view kLayers = "decoder/layers_";
    if (!path.starts_with(kLayers)) {
      throw fail(ErrorKind::kIo, "{}: no tensor {}", reader.path(), prefix + dotted(path));
    }
    const size_t slash = path.find('/', kLayers.size());
    const int64_t layer = std::stoll(path.substr(kLayers.size(), slash - kLayers.size()));
    const int64_t pattern = models::gemma3::kPattern, block = layer / pattern;
    const std::string rest = dotted(path.substr(slash));
    if (block >= sizes_.scanned_blocks()) {
      const std::string name = fmt::format("{}decoder.layers_remainder.layers_{}{}", prefix,
                                           layer - sizes_.scanned_blocks() * pattern, rest);
      return reader.read(name).cast(DType::kF32);
    }
    const Tensor all =
        reader.read(fmt::format("{}decoder.layers.layers_{}{}", prefix, layer % pattern, rest))
            .cast(DType::kF32);
    Shape start(all.shape().size(), 0), sizes = all.shape();
    start[1] = block;
    sizes[1] = 1;
    Shape shape = all.shape();
    shape.erase(shape.begin() + 1);
    return all.slice(start, sizes).reshape(shape);
  }

  std::string folder_;
  models::gemma3::Gemma3Config sizes_;
};

// Batches of the reference, with empty rows (segment 0) added so that the mesh divides them.
class Batches {
 public:
  Batches(const checkpoint::TensorReader& reader, int64_t multiple) : reader_(reader) {
    const Shape shape = reader.info("packed.inputs").shape;
    if (shape.size() != 2)
      throw fail(ErrorKind::kIo, "{}: packed.inputs is not [B, L]", reader.path());
    rows_ = shape[0];
    length_ = shape[1];
    padded_rows_ = (rows_ + multiple - 1) / multiple * multiple;
  }
  int64_t rows() const { return rows_; }
  int64_t padded_rows() const { return padded_rows_; }
  int64_t length() const { return length_; }

  Tensor array(const std::string& batch, const char* name) const {
    const Tensor t = reader_.read(batch + "." + name).cast(DType::kS32);
    if (t.shape() != Shape{rows_, length_}) {
      throw fail(ErrorKind::kIo, "{}: {}.{} is {}, expected [{}, {}]", reader_.path(), batch, name,
                 mt::to_string(t.shape()), rows_, length_);
    }
    Tensor out(DType::kS32, {padded_rows_, length_});
    std::copy(t.bytes().begin(), t.bytes().end(), out.mutable_bytes().begin());
    return out;
  }
  std::vector<Tensor> inputs(const std::string& batch) const {
    return {array(batch, "inputs"), array(batch, "targets"), array(batch, "inputs_position"),
            array(batch, "inputs_segmentation"), array(batch, "targets_segmentation")};
  }

 private:
  const checkpoint::TensorReader& reader_;
  int64_t rows_, length_, padded_rows_;
};

class Comparison {
 public:
  Comparison(const std::string& folder, const std::vector<std::string>& overrides,
             const ParityLimits& limits)
      : folder_(folder),
        json_(Json::parse(read_file(folder + "/goldens.json"))),
        config_(load_config(overrides)),
        limits_(limits),
        devices_(models::gemma3::open_devices(config_)),
        model_(models::gemma3::make_model(config_, devices_.partitioner)),
        reference_(folder, model_->config()),
        batch_reader_(reference_.open("batches.safetensors")),
        batches_(*batch_reader_, rows_multiple()) {}

  std::vector<ParityRow> run() {
    load("params.safetensors", "");
    logits();
    gradients();
    steps();
    return std::move(rows_);
  }

 private:
  config::Config load_config(const std::vector<std::string>& overrides) const {
    std::map<std::string, std::string> merged;
    std::vector<std::string> order;
    const auto take = [&](const std::string& word) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        throw fail(ErrorKind::kConfig, "{}: expected key=value", word);
      }
      const std::string key = word.substr(0, equals);
      if (!merged.contains(key)) order.push_back(key);
      merged[key] = word.substr(equals + 1);
    };
    for (const Json& word : json_.at("args").as_array()) take(word.as_string());
    for (const std::string& word : overrides) take(word);
    std::vector<std::string> args;
    for (const std::string& key : order) args.push_back(key + "=" + merged[key]);
    auto environment = config::process_environment();
    std::erase_if(environment, [](const auto& e) { return e.first.starts_with("M_"); });
    return config::Config::load(args, environment);
  }

  int64_t rows_multiple() const {
    const auto spec = devices_.partitioner->spec({"activation_embed_and_logits_batch"});
    return sharding::pieces(devices_.partitioner->mesh, spec, 0) *
           std::max<int64_t>(1, config_.integer("gradient_accumulation_steps"));
  }

  StepOptions step_options() const {
    StepOptions o;
    o.batch_rows = batches_.padded_rows();
    o.length = batches_.length();
    o.loss.num_vocab_tiling = config_.integer("num_vocab_tiling");
    o.gradient_accumulation_steps = config_.integer("gradient_accumulation_steps");
    o.gradient_clipping_threshold = config_.number("gradient_clipping_threshold");
    return o;
  }

  void load(const std::string& file, const std::string& prefix) {
    const auto reader = reference_.open(file);
    for (const auto& [path, v] : nnx::variables(*model_)) {
      const Tensor t = reference_.read(*reader, prefix, path, *v).cast(v->type.dtype);
      if (t.shape() != v->type.shape) {
        throw fail(ErrorKind::kIo, "{}: {} is {}, expected {}", reader->path(), path,
                   mt::to_string(t.shape()), mt::to_string(v->type.shape));
      }
      v->array = std::make_shared<pjrt::Array>(pjrt::Array::from_host(
          devices_.client, t, nnx::array_type(path, *v, *devices_.partitioner)));
    }
  }

  void add(std::string what, double difference, double limit, std::string detail) {
    rows_.push_back({std::move(what), difference, limit, std::move(detail)});
  }

  void logits() {
    auto program = trace_logits(*model_, batches_.padded_rows(), batches_.length())
                       ->lower()
                       .compile(devices_.client, devices_.cache.get());
    const auto reader = reference_.open("logits.safetensors");
    for (const std::string batch : {"synthetic", "packed"}) {
      const Tensor segments = batches_.array(batch, "inputs_segmentation");
      const auto out = program(
          {batches_.array(batch, "inputs"), batches_.array(batch, "inputs_position"), segments});
      const Tensor mine = out[0].to_host();
      const Tensor theirs = reader->read(batch + ".logits").cast(DType::kF32);
      const int64_t vocab = model_->config().vocab_size;
      if (theirs.shape() != Shape{batches_.rows(), batches_.length(), vocab}) {
        throw fail(ErrorKind::kIo, "{}: {}.logits is {}", reader->path(), batch,
                   mt::to_string(theirs.shape()));
      }
      double worst = 0;
      for (int64_t t = 0; t < batches_.rows() * batches_.length(); ++t) {
        if (segments.data<int32_t>()[static_cast<size_t>(t)] == 0) continue;
        const auto row = [&](const Tensor& x) {
          return x.reshape({x.size() / vocab, vocab}).slice({t, 0}, {1, vocab});
        };
        const double d = max_difference(row(mine), row(theirs));
        if (!(d <= worst)) worst = d;
      }
      add("logits " + batch, worst, limits_.logits,
          "largest absolute difference at real positions");
    }
  }

  void gradients() {
    auto program = trace_gradients(*model_, step_options())
                       ->lower()
                       .compile(devices_.client, devices_.cache.get());
    const auto out = program(batches_.inputs("packed"));
    const double loss = static_cast<double>(out[0].to_host().data<float>()[0]);
    add("loss packed", std::abs(loss - json_.at("loss").at("packed").at("loss").as_double()),
        limits_.loss, "absolute difference");
    const auto reader = reference_.open("grads_packed.safetensors");
    size_t i = 1;
    for (const auto& [path, v] : nnx::variables(*model_)) {
      const Tensor theirs = reference_.read(*reader, "", path, *v);
      add("gradient " + path, relative_difference(out[i++].to_host(), theirs), limits_.gradient,
          "relative, by norm");
    }
  }

  void steps() {
    nnx::Optimizer optimizer(*model_, nnx::adamw({}), nnx::of_kind(nnx::VariableKind::kParam));
    nnx::initialize(optimizer, devices_.client, *devices_.partitioner, 0, nnx::default_logical_name,
                    devices_.cache.get());
    auto program = trace_train_step(*model_, optimizer, step_options())
                       ->lower()
                       .compile(devices_.client, devices_.cache.get());
    const auto& records = json_.at("adamw_steps").as_array();
    std::vector<Tensor> inputs = batches_.inputs("packed");
    for (size_t s = 0; s < records.size(); ++s) {
      auto arguments = inputs;
      arguments.push_back(Tensor::of<float>(DType::kF32, {},
                                            {static_cast<float>(records[s].at("lr").as_double())}));
      arguments.push_back(Tensor::of<int32_t>(DType::kS32, {}, {static_cast<int32_t>(s)}));
      const auto out = program(arguments);
      const double loss = static_cast<double>(out[0].to_host().data<float>()[kLoss]);
      add(fmt::format("loss of step {}", s),
          std::abs(loss - records[s].at("learning/loss").as_double()), limits_.loss,
          "absolute difference");
    }
    const auto before = reference_.open("params.safetensors");
    const auto after = reference_.open("adamw_steps.safetensors");
    const std::string prefix = fmt::format("step{}.", records.size());
    for (const auto& [path, v] : nnx::variables(*model_)) {
      const Tensor base = reference_.read(*before, "", path, *v);
      add("change of " + path,
          relative_difference(v->array->to_host(), reference_.read(*after, prefix, path, *v),
                              &base),
          limits_.parameter_change,
          fmt::format("over {} steps, relative, by norm", records.size()));
    }
  }

  std::string folder_;
  Json json_;
  config::Config config_;
  ParityLimits limits_;
  models::gemma3::Devices devices_;
  std::unique_ptr<Gemma3Model> model_;
  Reference reference_;
  std::unique_ptr<checkpoint::TensorReader> batch_reader_;
  Batches batches_;
  std::vector<ParityRow> rows_;
};

}  // namespace

std::vector<ParityRow> compare_with_reference(const std::string& folder,
                                              const std::vector<std::string>& overrides,
                                              const ParityLimits& limits) {
  return Comparison(folder, overrides, limits).run();
}

}  // namespace mt::train
