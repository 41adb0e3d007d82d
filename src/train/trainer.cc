#include "train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "models/gemma3/from_run.h"
#include "models/gemma3/session.h"
#include "nnx/init.h"
#include "train/flops.h"
#include "train/from_run.h"
#include "train/log_lines.h"
#include "train/memory.h"
#include "train/metrics.h"
#include "train/open_data.h"
#include "train/progress.h"
#include "train/schedule.h"
#include "train/step.h"

namespace mt::train {
namespace {

using Clock = std::chrono::steady_clock;
using models::gemma3::Gemma3Model;

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

int64_t shard_bytes(const std::vector<nnx::NamedVariable>& vars,
                    const nnx::Partitioner& partitioner) {
  int64_t bytes = 0;
  for (const auto& [path, v] : vars) {
    const auto type = nnx::array_type(path, *v, partitioner);
    bytes += element_count(type->shard_shape()) * byte_size(type->dtype);
  }
  return bytes;
}

// One training run; its members in the order in which they are made.
class Trainer {
 public:
  explicit Trainer(const config::Config& config) : config_(config) {}

  RunResult run() {
    announce();
    set_up();
    log_text("Compiling the train step and making the parameters.");
    std::future<void> compiling = compile();
    make_state();
    compiling.get();
    report_program();
    if (config_.integer("steps") == 0) return {};
    return loop();
  }

 private:
  void announce() {
    config_.require_run_name();
    for (const std::string& line : config_.log_lines()) log_text(line);
    for (const std::string& line : config_.warnings()) log_warning("{}", line);
    if (config_.flag("log_config")) {
      for (const std::string& line : config_.dump()) log_text(line);
    }
  }

  void set_up() {
    sizes_ = models::gemma3::sizes_from(config_);
    devices_ = models::gemma3::open_devices(config_);
    const pjrt::Client& client = *devices_.client;
    log_text(system_information_lines(client.platform_version(), client.plugin().api_version(),
                                      client.platform_name()));
    const sharding::Mesh& mesh = devices_.partitioner->mesh;
    std::vector<int64_t> shape;
    for (const auto& axis : mesh.axes) shape.push_back(axis.size);
    log_text(num_devices_line(mesh.device_count(), shape));
    model_ = models::gemma3::make_model(config_, devices_.partitioner);
    optimizer_ = make_optimizer(config_, *model_);
    choose_batch();
    check_memory();
    check_batch_fits();
    weights_ = models::gemma3::open_weights(*model_, config_);
    data_ = std::make_unique<data::Batcher>(open_data(config_, rows_to_load_));
    if (config_.integer("steps") != 0) read_first_batch();
    open_metrics();
  }

  void choose_batch() {
    const int64_t devices = devices_.partitioner->mesh.device_count();
    rows_to_load_ = batch_rows_from(config_, devices).to_load;
    options_ = step_options_from(config_, *devices_.partitioner);
  }

  void check_fits(const MemoryNeed& need, const MemorySettings& settings) const {
    if (devices_.client->is_cpu()) {
      check_fits_host(need, available_at_start_, settings);
    } else if (const auto stats = devices_.client->memory_stats(0); stats && stats->limit) {
      check_fits_device(need, *stats->limit, settings);
    }
  }

  // Before anything is compiled or allocated: what must exist at once in any case.
  void check_memory() const {
    const nnx::Partitioner& partitioner = *devices_.partitioner;
    const auto parameters = nnx::variables(*model_);
    const int64_t parameter_bytes = shard_bytes(parameters, partitioner);
    MemoryNeed need;
    need.what = config_.text("model_name");
    need.devices = partitioner.mesh.device_count();
    need.parts = {{"parameters", parameter_bytes},
                  {"optimizer", shard_bytes(nnx::variables(*optimizer_), partitioner)},
                  {"gradients", parameter_bytes}};
    // None of this shrinks with the batch or with what is kept of it: suggest nothing of the kind.
    MemorySettings settings = memory_settings_from(config_);
    settings.remat_policy = "full";
    settings.per_device_batch_size = 1;
    settings.max_target_length = 1;
    settings.num_vocab_tiling = 2;
    check_fits(need, settings);
  }

  int64_t memory_for_all() const {
    if (devices_.client->is_cpu()) return available_at_start_;
    const auto stats = devices_.client->memory_stats(0);
    const int64_t devices = devices_.partitioner->mesh.device_count();
    return stats && stats->limit ? *stats->limit * devices : std::numeric_limits<int64_t>::max();
  }

  // The arrays of a batch, and one layer's input for each of its tokens that are run at once.
  void check_batch_fits() const {
    constexpr double kBatchArrays = 6 * sizeof(int32_t);
    const auto length = static_cast<double>(options_.length);
    const double batch = kBatchArrays * length * static_cast<double>(rows_to_load_);
    const double input = length * static_cast<double>(options_.batch_rows) /
                         static_cast<double>(options_.gradient_accumulation_steps) *
                         static_cast<double>(sizes_.emb_dim * byte_size(model_->options().dtype));
    const double most = static_cast<double>(memory_for_all());
    if (batch + input <= most) return;
    constexpr double kGb = 1073741824.0;
    throw fail(ErrorKind::kLimit,
               "max_target_length={} with per_device_batch_size={} and "
               "gradient_accumulation_steps={}: a batch and one layer's input need {:.1f} GB, but "
               "{:.1f} GB of memory is available: make one of them smaller",
               options_.length, config_.number("per_device_batch_size"),
               options_.gradient_accumulation_steps, (batch + input) / kGb, most / kGb);
  }

  void open_metrics() {
    const StepFlops flops = step_flops(sizes_, config_.number("per_device_batch_size"),
                                       options_.length, options_.gradient_accumulation_steps);
    MetricsOptions o;
    o.run_name = config_.text("run_name");
    o.metrics_file = config_.text("metrics_file");
    if (config_.flag("enable_tensorboard") && !config_.text("tensorboard_dir").empty()) {
      o.tensorboard_dir = config_.text("tensorboard_dir") + o.run_name;
    }
    o.log_period = config_.integer("log_period");
    o.per_device_tflops = flops.total();
    o.per_device_tokens = static_cast<double>(options_.length) *
                          config_.number("per_device_batch_size") *
                          static_cast<double>(options_.gradient_accumulation_steps);
    flops_ = flops;
    metrics_ = std::make_unique<MetricsLogger>(o);
  }

  // Traces now and compiles in a thread of its own: first values are made meanwhile.
  std::future<void> compile() {
    const auto traced = trace_train_step(*model_, *optimizer_, options_, &sown_);
    nnx::Lowered lowered = traced->lower();
    pjrt::CompileOptions options;
    if (config_.flag("dump_hlo")) dump(lowered.text(), options);
    return std::async(std::launch::async, [this, lowered = std::move(lowered), options] {
      program_ = std::make_unique<nnx::Compiled>(
          lowered.compile(devices_.client, devices_.cache.get(), options));
      const pjrt::ProgramMemory m = program_->executable().memory_stats();
      memory_ = {m.outputs, m.temporaries, m.arguments, m.aliased, m.host_temporaries};
      MemoryNeed need;
      need.what = config_.text("model_name");
      need.devices = devices_.partitioner->mesh.device_count();
      need.parts = {{"arguments", m.arguments},
                    {"temporary", m.temporaries},
                    {"outputs", m.outputs - m.aliased}};
      check_fits(need, memory_settings_from(config_));
    });
  }

  void dump(const std::string& text, pjrt::CompileOptions& options) const {
    const std::string& folder = config_.text("dump_hlo_local_dir");
    make_directories(folder);
    write_file(folder + "/jit_train_step.stablehlo.mlir", text);
    options.xla["xla_dump_to"] = folder;
    options.xla["xla_dump_hlo_module_re"] = config_.text("dump_hlo_module_name");
    options.xla["xla_dump_hlo_as_text"] = true;
  }

  void make_state() {
    models::gemma3::give_parameters(*model_, weights_.get(), config_, devices_);
    weights_ = nullptr;
    nnx::initialize(*optimizer_, devices_.client, *devices_.partitioner, 0,
                    nnx::default_logical_name, devices_.cache.get());
    for (nnx::Module* m :
         {static_cast<nnx::Module*>(model_.get()), static_cast<nnx::Module*>(optimizer_.get())}) {
      for (const auto& [path, v] : nnx::variables(*m)) v->array->await();
    }
    report_memory("After params initialized");
  }

  // The plugin's own figures, or, where it has none (CPU), the bytes of the arrays on each device.
  void report_memory(std::string_view label) const {
    std::vector<DeviceMemory> lines;
    const pjrt::Client& client = *devices_.client;
    for (int64_t d = 0; d < devices_.partitioner->mesh.device_count(); ++d) {
      DeviceMemory line{client.devices()[static_cast<size_t>(d)].description, {}, {}};
      if (const auto stats = client.memory_stats(d)) {
        line.used = stats->in_use;
        line.limit = stats->limit;
      } else {
        int64_t used = 0;
        for (nnx::Module* m : {static_cast<nnx::Module*>(model_.get()),
                               static_cast<nnx::Module*>(optimizer_.get())}) {
          for (const auto& [path, v] : nnx::variables(*m)) used += v->array->bytes_on_device(d);
        }
        line.used = used;
        line.limit = read_ram_stats().total;
      }
      lines.push_back(std::move(line));
    }
    log_text(memstats_lines(label, lines));
    log_text(ramstats_lines(label, read_ram_stats()));
  }

  void report_program() {
    log_text(memory_analysis_line(memory_));
    log_text(memory_analysis_note(memory_));
    log_text(per_train_step_lines(flops_.weight_tflops, flops_.attention_tflops));
    metrics_->write_setup(sizes_.parameter_count(), config_.entries());
  }

  // ---- the loop

  struct Pending {
    int64_t step;
    float learning_rate;
    Clock::time_point launched;
    std::shared_ptr<std::vector<pjrt::Array>> results;
    std::future<Clock::time_point> done;  // when the device had finished, whenever we look
  };

  RunResult loop() {
    signals_.begin();
    const int64_t steps = config_.integer("steps");
    ProgressBar bar(0, steps);
    RunResult result;
    std::optional<Pending> pending;
    for (int64_t step = 0; step < steps; ++step) {
      if (signals_.requested()) {
        result.end = RunEnd::kStopped;
        result.signal_number = signals_.signal_number();
        break;
      }
      std::optional<std::vector<Tensor>> batch = next_batch();
      if (!batch) {
        result.end = RunEnd::kDataEnded;
        break;
      }
      Pending launched = launch(step, std::move(*batch));
      if (pending) finish(*pending, bar, result);
      pending = std::move(launched);
    }
    if (pending) finish(*pending, bar, result);
    if (result.end == RunEnd::kDataEnded) {
      log_line("The data ended after {} of {} steps (num_epoch={}).", result.steps, steps,
               config_.integer("num_epoch"));
    } else if (result.end == RunEnd::kStopped) {
      log_line("Stopped by {} after {} of {} steps.", signals_.name(), result.steps, steps);
    }
    metrics_->finish();
    return result;
  }

  // Data without a single batch is the user's mistake: said before anything is compiled.
  void read_first_batch() {
    ready_ = next_batch();
    if (ready_) return;
    throw fail(ErrorKind::kIo,
               "The data ended after 0 of {} steps (num_epoch={}): no document in dataset_path={} "
               "has two tokens",
               config_.integer("steps"), config_.integer("num_epoch"),
               config_.text("dataset_path"));
  }

  std::optional<std::vector<Tensor>> next_batch() {
    if (ready_) return std::exchange(ready_, std::nullopt);
    if (config_.integer("reuse_example_batch") > 0 && first_batch_) return first_batch_;
    std::optional<data::Batch> b = data_->next();
    if (!b) return std::nullopt;
    std::vector<Tensor> arrays{b->inputs, b->targets, b->inputs_position, b->inputs_segmentation,
                               b->targets_segmentation};
    if (rows_to_load_ != options_.batch_rows) {
      for (Tensor& t : arrays) t = t.slice({0, 0}, {options_.batch_rows, options_.length});
    }
    if (config_.integer("reuse_example_batch") > 0) first_batch_ = arrays;
    return arrays;
  }

  Pending launch(int64_t step, std::vector<Tensor> inputs) {
    const ScheduleConfig schedule{
        config_.number("learning_rate"), config_.number("learning_rate_final_fraction"),
        config_.number("warmup_steps_fraction"), config_.integer("learning_rate_schedule_steps")};
    const float rate = learning_rate_at(schedule, step);
    inputs.push_back(Tensor::of<float>(DType::kF32, {}, {rate}));
    inputs.push_back(Tensor::of<int32_t>(DType::kS32, {}, {static_cast<int32_t>(step)}));
    const auto now = Clock::now();
    auto results = std::make_shared<std::vector<pjrt::Array>>((*program_)(inputs));
    auto done = std::async(std::launch::async, [results] {
      results->front().await();
      return Clock::now();
    });
    return {step, rate, now, std::move(results), std::move(done)};
  }

  // Waits for a step and logs it; by then the next one is on its way.
  void finish(Pending& pending, ProgressBar& bar, RunResult& result) {
    const Tensor values = pending.results->front().to_host();
    const auto begin = std::max(pending.launched, last_done_);
    // The watcher of the step before may have woken late: a step never takes no time or less.
    const auto now = std::max(pending.done.get(), begin + std::chrono::microseconds(1));
    last_done_ = now;
    const auto at = [&](StepMetric m) { return static_cast<double>(values.data<float>()[m]); };
    StepMetrics m;
    m.step = pending.step;
    m.seconds = seconds_between(begin, now);
    m.loss = at(kLoss);
    m.total_weights = std::llround(at(kTotalWeights));
    m.grad_norm = at(kGradNorm);
    m.raw_grad_norm = at(kRawGradNorm);
    m.param_norm = at(kParamNorm);
    m.learning_rate = static_cast<double>(pending.learning_rate);
    m.extra["learning/z_loss"] = at(kZLoss);
    add_sown(pending, m.extra);
    metrics_->write_step(m);
    warn_unless_finite(m);
    if (pending.step == 0) report_memory("After the first step");
    bar.update(pending.step + 1, m.seconds, m.loss);
    result.steps = pending.step + 1;
    result.last_loss = m.loss;
  }

  // Once: from there on every step says the same.
  void warn_unless_finite(const StepMetrics& m) {
    if (warned_not_finite_ || (std::isfinite(m.loss) && std::isfinite(m.raw_grad_norm))) return;
    warned_not_finite_ = true;
    log_warning(
        "step {}: the loss is {} and the norm of its gradients {}: training goes on, but likely to "
        "no use (a smaller learning_rate, other data or weights may help)",
        m.step, m.loss, m.raw_grad_norm);
  }

  // "decoder/layers/layers_3/activation_mean", one value a block -> activ_mean/layer_009, ...
  void add_sown(Pending& pending, Scalars& extra) const {
    for (size_t i = 0; i < sown_.size(); ++i) {
      const Tensor t = (*pending.results)[1 + i].to_host();
      const bool stacked = !t.shape().empty();
      for (int64_t b = 0; b < t.size(); ++b) {
        const std::string name = models::gemma3::logical_name(sizes_, sown_[i], stacked ? b : -1);
        constexpr std::string_view kLayers = "decoder/layers_", kActivation = "/activation_";
        const size_t at = name.find(kActivation);
        if (!name.starts_with(kLayers) || at == std::string::npos) continue;
        const int64_t layer = std::stoll(name.substr(kLayers.size(), at - kLayers.size()));
        extra[fmt::format("activ_{}/layer_{:03}", name.substr(at + kActivation.size()), layer)] =
            static_cast<double>(t.data<float>()[static_cast<size_t>(b)]);
      }
    }
  }

  StopSignals signals_{"step"};
  const config::Config& config_;
  models::gemma3::Gemma3Config sizes_;
  models::gemma3::Devices devices_;
  std::unique_ptr<Gemma3Model> model_;
  std::unique_ptr<nnx::Optimizer> optimizer_;
  std::unique_ptr<models::gemma3::WeightSource> weights_;
  StepOptions options_;
  int64_t rows_to_load_ = 0;
  std::unique_ptr<data::Batcher> data_;
  StepFlops flops_;
  std::unique_ptr<MetricsLogger> metrics_;
  std::vector<std::string> sown_;
  std::unique_ptr<nnx::Compiled> program_;
  CompiledMemory memory_;
  const int64_t available_at_start_ = available_memory();  // before this run takes any
  std::optional<std::vector<Tensor>> ready_;               // read while setting up
  std::optional<std::vector<Tensor>> first_batch_;         // of reuse_example_batch
  Clock::time_point last_done_{};
  bool warned_not_finite_ = false;
};

}  // namespace

RunResult train(const config::Config& config) { return Trainer(config).run(); }

}  // namespace mt::train
